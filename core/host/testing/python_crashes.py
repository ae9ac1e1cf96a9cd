"""Is killed by a signal in its second step; the first is the check."""

import os
import signal

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """An arm with a second step that ends its process."""
    steps = []

    def step():
        steps.append(1)
        if len(steps) > 1:
            os.kill(os.getpid(), signal.SIGSEGV)

    return Arm(step=step, error=lambda: 0.0)
