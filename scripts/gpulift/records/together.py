"""Runs that say nothing of a model, by run.json beside their records: those of a user's script, and
those in which several GPUs of a machine were busy at once, which share power, links and the host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATE_FILE = "run.json"
PART = "."  # between the name of a folder and that of a part beside it
KEY = "together"  # of the options in run.json: how many GPUs were busy


def was_crowded(folder: Path) -> bool:
    """Whether other GPUs were busy too while the run in this folder was measured."""
    together = options_of(folder).get(KEY)
    return isinstance(together, int) and together > 1


def was_of_script(folder: Path) -> bool:
    """Whether `bench` measured the run in this folder: what it measured is no technique of ours."""
    return bool(options_of(folder).get("modules"))


def options_of(folder: Path) -> Mapping[str, Any]:
    """What the run in this folder was told; nothing where its folder does not say it."""
    options = read_state(folder).get("options")
    return options if isinstance(options, dict) else {}


def read_state(folder: Path) -> Mapping[str, Any]:
    """What run.json says of the run in this folder; nothing where it cannot be read."""
    try:
        state = json.loads((folder / STATE_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):  # a run of older code, or put together by hand
        return {}
    return state if isinstance(state, dict) else {}
