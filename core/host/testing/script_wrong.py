"""An arm whose result is another, beside those that give the same."""

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a case of which one arm is wrong?",
    "expectation": "The others are measured, and the run fails.",
    "arms": ["baseline", "other", "wrong"],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """An arm that says of itself whether it is right."""
    return Arm(step=lambda: sum(range(1000)), error=lambda: float(arm == "wrong"), items=1)
