"""Is right in its baseline, and no number in its other arm."""

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a Python arm whose result is wrong?",
    "expectation": "It failed, and is not timed.",
    "arms": ["baseline", "other"],
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """The baseline is right."""
    return Arm(step=int, error=lambda: 0.0 if arm == "baseline" else float("nan"))
