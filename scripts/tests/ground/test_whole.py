"""What is written is whole or not there, whatever ends the writing."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from pathlib import Path

import pytest

from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.ground.whole import (
    SETTLED_S,
    TEMPORARY,
    is_aside,
    temporary_folder,
    whole_folder,
    write_whole,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def end_writing(monkeypatch: pytest.MonkeyPatch, cause: BaseException) -> None:
    """Of the next file that waits for the disk."""

    def ended(_: int) -> None:
        raise cause

    monkeypatch.setattr(os, "fsync", ended)


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.json"
    for content, held in (("é", "é".encode()), (b"\x00", b"\x00")):
        write_whole(content, file)
        assert file.read_bytes() == held
    assert names(file.parent) == ["a.json"]


def test_a_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole("", tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_full_disk_leaves_the_old_file_and_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    end_writing(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(GpuliftError, match=r"a: cannot be written: No space left") as refused:
        write_whole("new", tmp_path / "a")
    assert refused.value.exit_code == FAILED
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["a"]


def test_an_interruption_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_writing(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_whole("new", tmp_path / "a")
    assert names(tmp_path) == []


def test_what_a_kill_left_of_a_file_goes_and_what_another_writes_stays(tmp_path: Path) -> None:
    for name in (".gpulift-a-1.new", ".gpulift-a-2.new", ".gpulift-b-3.new"):
        (tmp_path / name).write_text("half", encoding="utf-8")
    with (tmp_path / ".gpulift-a-2.new").open() as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        write_whole("new", tmp_path / "a")
    assert names(tmp_path) == [".gpulift-a-2.new", ".gpulift-b-3.new", "a"]


def test_what_need_not_last_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_writing(monkeypatch, AssertionError("it waited"))
    write_whole("new", tmp_path / "a", lasting=False)
    assert names(tmp_path) == ["a"]


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs", encoding="utf-8")
    (tmp_path / "a").symlink_to("theirs")
    write_whole("ours", tmp_path / "a")
    assert (tmp_path / "theirs").read_text(encoding="utf-8") == "theirs"
    assert (tmp_path / "a").read_text(encoding="utf-8") == "ours"


def test_a_device_is_written_to() -> None:
    write_whole("x", Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
    with pytest.raises(GpuliftError, match="/dev/full: cannot be written"):
        write_whole("x", Path("/dev/full"))


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(GpuliftError, match="cannot be written"):
        write_whole("x", tmp_path / "a")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_takes_the_place_of_none_or_of_an_empty_one(tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "above" / ("n" * 200)
    if there:
        folder.mkdir(parents=True)
    with whole_folder(folder) as aside:
        (aside / "a").write_text("a", encoding="utf-8")
        assert is_aside(aside)
        assert not is_aside(folder)
    assert names(folder) == ["a"]
    assert names(folder.parent) == [folder.name]


def test_a_folder_takes_no_other_s_place(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(OSError, match="not empty"), whole_folder(tmp_path / "x"):
        (tmp_path / "x" / "theirs").touch()
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == ["theirs"]


@pytest.mark.parametrize("cause", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_a_folder_that_was_not_filled_is_not_there(tmp_path: Path, cause: BaseException) -> None:
    def fill() -> None:
        with whole_folder(tmp_path / "x") as aside:
            (aside / "a").touch()
            raise cause

    with pytest.raises(type(cause)):
        fill()
    assert names(tmp_path) == []


def test_what_a_kill_left_is_removed_and_what_another_fills_stays(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "x") as busy:
        killed = busy.with_name(busy.name.replace("x-", "x-0"))
        killed.mkdir()
        (killed / "half").touch()
        with whole_folder(tmp_path / "x") as aside:
            (aside / "a").touch()
            assert not killed.exists()
            assert busy.is_dir()
        (busy / "b").touch()
        (tmp_path / "x" / "a").unlink()
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == ["b"]


def test_what_a_kill_left_in_the_temporary_folder_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old = time.time() - 2 * SETTLED_S
    left, fresh, others = (
        tmp_path / name for name in (f"{TEMPORARY}1", f"{TEMPORARY}2", "gpulift-3")
    )
    for folder in (left, fresh, others):
        (folder / "below").mkdir(parents=True)
    link = tmp_path / f"{TEMPORARY}4"
    link.symlink_to(others)
    with temporary_folder() as running:
        for folder in (left, others, running):
            os.utime(folder, (old, old))
        with temporary_folder() as made:
            assert names(made) == []
            assert names(tmp_path) == sorted(
                one.name for one in (fresh, others, link, running, made)
            )
    assert names(tmp_path) == sorted(one.name for one in (fresh, others, link))
    assert names(others) == ["below"]
