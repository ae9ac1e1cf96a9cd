"""Right in its result, and no number in what it says of itself."""

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """Both arms alike."""
    return Arm(step=int, error=lambda: 0.0, metrics=lambda: {"speed": float("nan")})
