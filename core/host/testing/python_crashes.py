"""Is killed by a signal in its second step; the first is the check."""

import os
import signal

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a Python arm that crashes in a window?",
    "expectation": "An error that names the worker and the signal.",
    "arms": ["baseline", "other"],
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """An arm with a second step that ends its process."""
    steps = []

    def step():
        steps.append(1)
        if len(steps) > 1:
            os.kill(os.getpid(), signal.SIGSEGV)

    return Arm(step=step, error=lambda: 0.0)
