"""git, asked about a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import finished, text_of

LIMIT_S = 600  # of a checkout on a slow disk


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What it says in the folder. Raises GpuliftError where it does not end."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = finished(command, LIMIT_S)
    except subprocess.TimeoutExpired:
        asked = f"git {arguments[0]}"
        raise GpuliftError(f"{asked}: has not ended in {LIMIT_S} s in {folder}") from None
    said, errors = text_of(done.stdout), text_of(done.stderr)
    return subprocess.CompletedProcess(command, done.returncode, said, errors)
