"""Two arms of long steps that give something up while they rest, and log when they wake."""

import os
import time

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "How often do arms wake that cannot all be awake at once?",
    "expectation": "For their check, their calibration and two visits.",
    "arms": ["slow", "fast"],
    "check": {"meaning": "said by the script", "tolerance": 0},
}
STEP_S = {"slow": 0.03, "fast": 0.02}


def make(arm, point, seed, gpu):
    """A step without what it has while it is awake is an error."""
    held = []

    def wake():
        if held:
            raise RuntimeError("it is awake")
        time.sleep(0.02)
        held.append(arm)
        with open(os.environ.get("GPULIFT_TESTING_LOG", os.devnull), "a") as log:
            log.write(arm + "\n")

    return Arm(
        step=lambda: time.sleep(STEP_S[held[0]]),
        error=lambda: 0.0,
        rest=held.clear,
        wake=wake,
        items=1,
    )
