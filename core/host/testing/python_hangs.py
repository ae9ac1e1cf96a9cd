"""Never comes back from its first step."""

import time

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """An arm that waits for ever."""
    return Arm(step=lambda: time.sleep(3600), error=lambda: 0.0)
