"""Is right in its baseline, and no number in its other arm."""

from gpulift_worker import Arm


def make(arm, point, seed, gpu):
    """The baseline is right."""
    return Arm(step=int, error=lambda: 0.0 if arm == "baseline" else float("nan"))
