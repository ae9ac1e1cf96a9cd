"""Raises in its first step."""

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """An arm that raises."""

    def step():
        raise ValueError("raised on purpose")

    return Arm(step=step, error=lambda: 0.0)
