"""Other programs that are asked for an answer, within a limit that none of them can ignore."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

KILLED_WITHIN_S = 1  # where no driver holds it


def finished(
    command: Sequence[str | Path], limit_s: float, folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program to its end. Throws subprocess.TimeoutExpired after the limit: it is killed
    then, with all that it started, and hardly waited for, since a driver may hold it."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        cwd=folder,
        start_new_session=True,
    )
    try:
        said, errors = process.communicate(timeout=limit_s)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe_end in (process.stdout, process.stderr):
            if pipe_end is not None:
                pipe_end.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILLED_WITHIN_S)
        raise
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def text_of(said: bytes) -> str:
    """What a program wrote, whatever it was."""
    return said.decode("utf-8", "replace")
