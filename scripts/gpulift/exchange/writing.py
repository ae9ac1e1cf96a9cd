"""Where an export goes: a file that was not there, or standard output."""

from __future__ import annotations

import sys
from pathlib import Path

from gpulift.ground.arguments import require_free
from gpulift.ground.errors import write_error
from gpulift.ground.whole import write_whole


def deliver(content: bytes, out: Path | None, force: bool) -> None:
    """Writes to the file, as a whole or not at all, or to standard output.

    Raises GpuliftError for a file that is there already, unless forced, or cannot be written, and
    OSError for standard output, as every command does.
    """
    if out is None:
        _to_stdout(content)
        return
    require_free(out, force)
    write_whole(content, out)


def append(content: bytes, file: Path) -> None:
    """Adds to the end of a file."""
    try:
        with file.open("ab") as opened:
            opened.write(content)
    except OSError as error:
        raise write_error(file, error) from None


def _to_stdout(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
