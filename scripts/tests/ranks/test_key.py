"""The secret of ranks: where it comes from, and what it signs."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ranks import key

SECRET = "x" * key.LEAST_LETTERS


def home(folder: Path) -> dict[str, str]:
    """An environment whose configuration is there."""
    return {"XDG_CONFIG_HOME": str(folder)}


def test_the_launchers_comes_first(tmp_path: Path) -> None:
    assert key.key_of({key.VARIABLE: SECRET, **home(tmp_path)}) == SECRET.encode()
    assert not list(tmp_path.iterdir())
    with pytest.raises(GpuliftError, match="16 letters or more"):
        key.key_of({key.VARIABLE: SECRET[1:]})


def test_a_file_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    made = key.key_of(home(tmp_path))
    assert len(made) == 64
    assert key.key_of(home(tmp_path)) == made
    (file,) = (tmp_path / "gpulift").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_two_who_make_it_at_once_have_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = key.key_of(home(tmp_path))
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert key.key_of(home(tmp_path)) == first


def readable(file: Path) -> None:
    file.chmod(0o640)


def linked(file: Path) -> None:
    other = file.with_name("other")
    file.rename(other)
    file.symlink_to(other)


def short(file: Path) -> None:
    file.write_text("short", encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (readable, "owner alone can read"),
        (linked, "cannot be used"),
        (short, "owner alone can read"),
    ],
)
def test_a_file_that_others_could_have_made_is_refused(
    tmp_path: Path, change: object, words: str
) -> None:
    key.key_of(home(tmp_path))
    assert callable(change)
    change(tmp_path / "gpulift" / "ranks.key")
    with pytest.raises(GpuliftError, match=words):
        key.key_of(home(tmp_path))


def test_a_home_that_cannot_be_written_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "gpulift").touch()
    with pytest.raises(GpuliftError, match=f"give all ranks one {key.VARIABLE}"):
        key.key_of(home(tmp_path))


def test_on_one_host_a_home_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "gpulift").touch()
    made = key.key_of(home(tmp_path), on_one_host=True)
    assert key.key_of(home(tmp_path), on_one_host=True) == made
    (folder,) = tmp_path.glob("gpulift-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_secret_may_be_any_bytes() -> None:
    assert key.key_of({key.VARIABLE: "\udcff" * 16}) == b"\xff" * 16


def test_a_signature_is_of_key_name_text_and_run() -> None:
    run = key.of_run(b"key", ["a", "b"])
    message = key.sealed(run, "1/down/0", "{}")
    assert key.opened(run, "1/down/0", message) == "{}"
    assert key.opened(run, "1/down/1", message) is None
    assert key.opened(b"key", "1/down/0", message) is None
    assert key.opened(key.of_run(b"key", ["a", "c"]), "1/down/0", message) is None
    assert key.opened(run, "1/down/0", message[:-1] + "]") is None
    assert key.opened(run, "1/down/0", "") is None
    assert key.opened(run, "1/down/0", "\u00e9" * 70) is None
