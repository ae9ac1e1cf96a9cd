"""Where an export goes: a file that was not there, or standard output."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from gpulift.errors import GpuliftError
from gpulift.runs import write_error
from gpulift.text import visible


def deliver(content: bytes, out: Path | None, force: bool) -> None:
    """Writes to the file, as a whole or not at all, or to standard output.

    Raises GpuliftError for a file that is there already, unless forced, or cannot be written, and
    OSError for standard output, as every command does.
    """
    if out is None:
        _to_stdout(content)
        return
    require_free(out, force)
    try:
        if out.exists() and not out.is_file():  # a device or a pipe
            out.write_bytes(content)
        else:
            _replace(out, content)
    except OSError as error:
        raise write_error(out, error) from None


def require_free(out: Path, force: bool) -> None:
    """Raises GpuliftError where `out` is a folder, or a file that would be written over."""
    try:
        if out.is_dir():
            raise GpuliftError(f"{visible(str(out))}: is a folder; name a file")
        if out.is_file() and not force:
            raise GpuliftError(f"{visible(str(out))}: is there already; --force writes over it")
    except OSError as error:  # a name that is too long, or a folder that may not be read
        raise write_error(out, error) from None


def append(content: bytes, file: Path) -> None:
    """Adds to the end of a file."""
    try:
        with file.open("ab") as opened:
            opened.write(content)
    except OSError as error:
        raise write_error(file, error) from None


def _replace(out: Path, content: bytes) -> None:
    whole = out.with_name(f".{os.getpid()}.gpulift.new")
    try:
        whole.write_bytes(content)
        whole.replace(out)
    except OSError:
        with suppress(OSError):
            whole.unlink()
        raise


def _to_stdout(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
