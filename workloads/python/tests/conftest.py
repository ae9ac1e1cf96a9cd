"""Where the tests find what arms import."""

from __future__ import annotations

import sys
from pathlib import Path

WORKLOADS = Path(__file__).parents[1]
WORKER = WORKLOADS.parents[1] / "core" / "python"
sys.path[:0] = [str(WORKLOADS), str(WORKER), str(WORKER / "testing")]
