"""Python arms with events, which need no device here: they tell the host's time."""

import time

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "Which clock judges arms when all of them have events, or one has none?",
    "expectation": "Events, or for all the wall clock.",
    "arms": ["baseline", "other"],
    "sweep": {"without": ["none", "other"]},
    "quick": [{}],
    "check": {"meaning": "nothing", "tolerance": 0},
}


class Event:
    """Reached when it is made."""

    def __init__(self):
        self.time_s = time.monotonic()

    def elapsed_time(self, end):
        """Milliseconds."""
        return 1e3 * (end.time_s - self.time_s)


def make(arm, point, seed, gpu):
    """The arm of the name that the case says has none."""
    return Arm(
        step=lambda: time.sleep(1e-3),
        error=lambda: 0.0,
        mark=None if point["without"] == arm else Event,
    )
