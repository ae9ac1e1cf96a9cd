"""Arms that take memory and ranks as they are asked to."""

import mmap

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of sizes and numbers of processes that no sweep has?",
    "expectation": "What this machine has is measured; the rest is one line.",
    "arms": ["baseline", "other"],
    "sweep": {"mebibytes": [2], "ranks": [1]},
    "check": {"meaning": "said by the script", "tolerance": 0},
    "ranks": {"other": "ranks"},
}


def make(arm, point, seed, gpu):
    """Memory that nothing touches."""
    mebibytes = int(point["mebibytes"])
    if mebibytes % 2:
        raise ValueError("mebibytes come in pairs")
    memory = mmap.mmap(-1, mebibytes << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return Arm(step=lambda: sum(range(1000)), error=lambda: float(memory.closed), items=1)
