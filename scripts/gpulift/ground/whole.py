"""Files and folders that are whole or not there: made aside, on the same disk, and renamed."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from gpulift.ground.errors import GpuliftError, write_error

BEGINNING, END = ".gpulift-", ".new"  # of what is aside
TEMPORARY = "gpulift-temporary-"  # no name of what gpulift-bench makes, which removes its own
SETTLED_S = 60.0  # since when a folder is there that its owner has surely locked
NAME_LETTERS = 100  # of the folder's own name in that of what is aside: names have 255 at most


def read_whole(file: Path) -> bytes:
    """All of a file. Raises GpuliftError where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None


def write_whole(content: str | bytes, file: Path, *, lasting: bool = True) -> None:
    """Replaces a file at once; makes its folder. What is no file, as a device, is written to.

    `lasting` waits for the disk, so that a loss of power leaves no empty file either. Raises
    GpuliftError where it cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not (file.is_file() or file.is_dir()):
            file.write_bytes(data)
        else:
            _replace(file, data, lasting)
    except OSError as error:
        raise write_error(file, error) from None


def _replace(file: Path, data: bytes, lasting: bool) -> None:
    if lasting:  # what a kill left of an earlier call goes first
        _remove_all_left(file)
    aside = file.with_name(_name_aside(file.name))
    with aside.open("xb") as opened:  # which follows no link that somebody put there
        try:
            with suppress(OSError):
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            opened.write(data)
            opened.flush()
            if lasting:
                os.fsync(opened.fileno())
            aside.replace(file)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which then takes the place of `folder`: of none, or of an empty one.

    What a kill left half filled is removed by the next call for the same folder. Raises OSError
    where it cannot be made.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_all_left(folder)
    aside = folder.with_name(_name_aside(folder.name))
    aside.mkdir()
    lock = _locked(aside)
    try:
        yield aside
        for file in filter(Path.is_file, aside.iterdir()):
            _settle(file)
        aside.replace(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    finally:
        os.close(lock)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """An empty folder that goes at the end; those that a kill left of earlier ones go first. Raises
    OSError where there can be none."""
    for left in Path(gettempdir()).glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > SETTLED_S:
                _remove_left(left)
    with TemporaryDirectory(prefix=TEMPORARY) as name:
        lock = _locked(Path(name))
        try:
            yield Path(name)
        finally:
            os.close(lock)


def is_aside(path: Path) -> bool:
    """Whether it is in a folder that is not whole yet, or never will be."""
    return any(part.startswith(BEGINNING) and part.endswith(END) for part in path.parts)


def _name_aside(name: str) -> str:
    return f"{_beginning(name)}{secrets.token_hex(8)}{END}"


def _beginning(name: str) -> str:
    return f"{BEGINNING}{name[:NAME_LETTERS]}-"


def _locked(folder: Path) -> int:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    with suppress(OSError):  # held by another command, or a disk that locks no folders
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _remove_all_left(path: Path) -> None:
    for left in path.parent.glob(glob.escape(_beginning(path.name)) + f"*{END}"):
        _remove_left(left)


def _remove_left(aside: Path) -> None:
    """Unless another command fills it at this moment."""
    with suppress(OSError):
        lock = os.open(aside, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
        finally:
            os.close(lock)


def _settle(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
