"""Arms that refuse some sizes, and take ranks as they are asked to."""

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of sizes and numbers of ranks that no sweep has?",
    "expectation": "Even sizes are measured, and ranks that memory holds; the rest is one line.",
    "arms": ["baseline", "other"],
    "sweep": {"size": [2], "ranks": [1]},
    "check": {"meaning": "said by the script", "tolerance": 0},
    "ranks": {"other": "ranks"},
}


def make(arm, point, seed, gpu):
    """Refuses odd sizes."""
    if int(point["size"]) % 2:
        raise ValueError("sizes are even")
    return Arm(step=lambda: sum(range(1000)), error=lambda: 0.0, items=1)
