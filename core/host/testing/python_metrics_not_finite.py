"""Right in its result, and no number in what it says of itself."""

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a Python arm that says a number that is not finite?",
    "expectation": "It is an error that names the metric.",
    "arms": ["baseline", "other"],
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """Both arms alike."""
    return Arm(step=int, error=lambda: 0.0, metrics=lambda: {"speed": float("nan")})
