"""What a hostile node can put into an archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from gpulift.fleet import fetched
from gpulift.ground.errors import GpuliftError

MOST_BYTES = 1 << 16


def packed(*members: tarfile.TarInfo) -> bytes:
    """An archive of these, each as long as it says."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def member(
    name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, to: str = ""
) -> tarfile.TarInfo:
    """One of an archive."""
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, to
    return made


RESULTS = member("results", tarfile.DIRTYPE)


def test_files_and_folders_are_kept_in_place_of_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "results" / "old").mkdir(parents=True)
    inner = member("results/gpu0", tarfile.DIRTYPE)
    fetched.unpack(packed(RESULTS, inner, member("results/gpu0/a", size=3)), tmp_path, MOST_BYTES)
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["results", "gpu0", "a"]
    assert (tmp_path / "results" / "gpu0" / "a").read_bytes() == bytes(3)


@pytest.mark.parametrize(
    ("hostile", "words"),
    [
        (member("log.txt", tarfile.SYMTYPE, to="/etc/passwd"), "is not below results/"),
        (member("verdicts.txt", size=1), "is not below results/"),
        (member("results/../log.txt", size=1), "is not below results/"),
        (member("/results/a", size=1), "is not below results/"),
        (member(f"results/{'a' * 600}", size=1), "is not below results/"),
        (member("results/a", tarfile.SYMTYPE, to="../../.."), "is neither a file nor a folder"),
        (member("results/a", tarfile.LNKTYPE, to="results/b"), "is neither a file nor a folder"),
        (member("results/a", tarfile.FIFOTYPE), "is neither a file nor a folder"),
        (member("results/a", tarfile.CHRTYPE), "is neither a file nor a folder"),
        (member("results/a", size=MOST_BYTES + 1), "more than"),
    ],
)
def test_anything_else_leaves_nothing(tmp_path: Path, hostile: tarfile.TarInfo, words: str) -> None:
    with pytest.raises(GpuliftError, match=words):
        fetched.unpack(
            packed(RESULTS, member("results/fine", size=1), hostile), tmp_path, MOST_BYTES
        )
    assert not list(tmp_path.iterdir())


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    twice = packed(member("results/a", size=1), member("results/a", size=1))
    with pytest.raises(GpuliftError, match="cannot be written"):
        fetched.unpack(twice, tmp_path, MOST_BYTES)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched, "MOST_FILES", 2)
    many = packed(*(member(f"results/{number}") for number in range(3)))
    with pytest.raises(GpuliftError, match="more than 2 files"):
        fetched.unpack(many, tmp_path, MOST_BYTES)


@pytest.mark.parametrize(
    "headers",
    [{"path": "results/a\0b"}, {"GNU.sparse.map": "a,b"}, {"GNU.sparse.size": "9" * 500}],
)
def test_headers_that_break_the_reader_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    hostile = member("results/a", size=1)
    hostile.pax_headers = headers
    with pytest.raises(GpuliftError):
        fetched.unpack(packed(RESULTS, hostile), tmp_path, MOST_BYTES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cut", [0, 700])
def test_an_archive_that_is_cut_is_refused(tmp_path: Path, cut: int) -> None:
    with pytest.raises(GpuliftError, match="no whole archive"):
        fetched.unpack(packed(member("results/a", size=600))[:cut], tmp_path, MOST_BYTES)
    assert not list(tmp_path.iterdir())
