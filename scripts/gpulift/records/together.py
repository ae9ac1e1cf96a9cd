"""Runs in which several GPUs of a machine were busy at once: run.json beside the records says so.

The cards share power, links and the host, so what is measured then says nothing of the model.
"""

from __future__ import annotations

import json
from pathlib import Path

STATE_FILE = "run.json"
KEY = "together"  # of the options in run.json: how many GPUs were busy


def was_crowded(folder: Path) -> bool:
    """Whether other GPUs were busy too while the run in this folder was measured."""
    try:
        state = json.loads((folder / STATE_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):  # a run of older code, or put together by hand
        return False
    options = state.get("options") if isinstance(state, dict) else None
    together = options.get(KEY) if isinstance(options, dict) else None
    return isinstance(together, int) and together > 1
