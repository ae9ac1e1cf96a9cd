"""Raises in its first step."""

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a Python arm that raises?",
    "expectation": "An error with its text; the traceback goes to the terminal.",
    "arms": ["baseline", "other"],
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """An arm that raises."""

    def step():
        raise ValueError("raised on purpose")

    return Arm(step=step, error=lambda: 0.0)
