"""Never comes back from its first step."""

import time

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a Python arm that never answers?",
    "expectation": "An error that says so.",
    "arms": ["baseline", "other"],
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """An arm that waits for ever."""
    return Arm(step=lambda: time.sleep(3600), error=lambda: 0.0)
