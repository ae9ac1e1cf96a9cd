"""Runs in which several GPUs of a machine were busy at once: run.json beside the records says so.

The cards share power, links and the host, so what is measured then says nothing of the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATE_FILE = "run.json"
KEY = "together"  # of the options in run.json: how many GPUs were busy


def was_crowded(folder: Path) -> bool:
    """Whether other GPUs were busy too while the run in this folder was measured."""
    options = state_of(folder).get("options")
    together = options.get(KEY) if isinstance(options, dict) else None
    return isinstance(together, int) and together > 1


def state_of(folder: Path) -> Mapping[str, Any]:
    """What run.json says of the run in this folder; nothing where it cannot be read."""
    try:
        state = json.loads((folder / STATE_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):  # a run of older code, or put together by hand
        return {}
    return state if isinstance(state, dict) else {}
