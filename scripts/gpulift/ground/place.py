"""Where this gpulift keeps what it reads: in its checkout, or in the folder that a wheel brings."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_BROUGHT = _PACKAGE / "installed"  # laid out as a checkout, by tools/wheel.py

INSTALLED = _BROUGHT.is_dir()
FILES = _BROUGHT if INSTALLED else _PACKAGE.parents[1]
RESULTS = Path("gpulift-results")  # in the current folder, of who has no checkout to add them to
PROGRAM = "gpulift" if INSTALLED else "./gpulift"


def cache() -> Path | None:
    """Where this user's programs keep what can be made again; None of one who has no home."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return named if named.is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
