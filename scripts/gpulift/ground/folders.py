"""Whether a folder can serve, looked at before anything is measured."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEAST_FREE_BYTES = 1 << 20
PAGE = bytes(mmap.PAGESIZE)
TEMPORARY = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")  # as the C++ library asks them
SCRATCH = ("GPULIFT_SCRATCH_DIR",)


@dataclass(frozen=True)
class Chosen:
    """A folder, and the variable that names it; empty for the usual one."""

    path: Path
    variable: str


def temporary(environment: Mapping[str, str] = os.environ) -> Chosen:
    """Where gpulift-bench puts temporary files."""
    return _chosen(environment, TEMPORARY, "/tmp")


def scratch(environment: Mapping[str, str] = os.environ) -> Chosen:
    """Where cases with files put them."""
    return _chosen(environment, SCRATCH, "/var/tmp")


def _chosen(environment: Mapping[str, str], variables: tuple[str, ...], usual: str) -> Chosen:
    found = next((name for name in variables if environment.get(name)), "")
    return Chosen(Path(environment[found] if found else usual), found)


def why_unusable(folder: Path, *, runs_code: bool = False) -> str:
    """Why a folder cannot serve: `read-only`, `full`; empty where it can. A nameless file is made
    in it; `runs_code` asks whether libraries can be loaded from it."""
    if not folder.is_dir():
        return "not a folder" if folder.exists() else "not there"
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            probe.write(PAGE)
            if runs_code and not _may_run(probe.fileno()):
                return "mounted noexec, and libraries are loaded from it"
        disk = os.statvfs(folder)
    except OSError as error:
        return _worded(error)
    return "" if disk.f_bavail * disk.f_frsize >= LEAST_FREE_BYTES else "full"


def _may_run(file: int) -> bool:
    try:
        mmap.mmap(file, len(PAGE), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError:
        return False
    return True


def _worded(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "full"
    if error.errno == errno.EROFS:
        return "read-only"
    return f"not writable ({error.strerror})"
