"""Arms that refuse some sizes, and take ranks as they are asked to."""

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
    """Refuses odd sizes."""
    mebibytes = int(point["mebibytes"])
    if mebibytes % 2:
        raise ValueError("mebibytes come in pairs")
    return Arm(step=lambda: sum(range(1000)), error=lambda: 0.0, items=1)
