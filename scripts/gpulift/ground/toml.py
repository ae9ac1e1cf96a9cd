"""Reads TOML; Python 3.10 has no tomllib, and tomli is the same under its older name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from gpulift.ground.errors import GpuliftError


def parsed(file: Path) -> Any:
    """What the file holds. Throws GpuliftError where it cannot be read or is no TOML."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return toml.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise GpuliftError(f"{file.name}: not TOML: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise GpuliftError(f"{file.name}: not TOML: it is nested too deeply") from None
    except ValueError as error:
        raise GpuliftError(f"{file.name}: not TOML: {error}") from None
