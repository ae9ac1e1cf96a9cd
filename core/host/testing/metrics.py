"""A Python arm that says something of itself."""

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """As many bytes as the other arms."""
    return Arm(
        step=int,
        error=lambda: 0.0,
        metrics=lambda: {"peak_allocated_bytes": 4096},
    )
