"""Arms that log when their process loads the script, and when they are made; two cannot start."""

import os

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "Do the workers of all arms start before the first arm is made?",
    "expectation": "Yes, and those that cannot start take nothing from the others.",
    "arms": ["one", "other", "not_loaded", "not_preloaded"],
    "check": {"meaning": "said by the script", "tolerance": 0},
    "environment": {"not_loaded": {"GPULIFT_TESTING_NEEDS": "gpulift_that_does_not_exist"}},
    "preload": {"not_preloaded": "libgpulift_that_does_not_exist.so.1"},
}


def say(what):
    """A line of the log that the variable names."""
    with open(os.environ.get("GPULIFT_TESTING_LOG", os.devnull), "a") as log:
        log.write(what + "\n")


say("loaded")
if "GPULIFT_TESTING_NEEDS" in os.environ:
    __import__(os.environ["GPULIFT_TESTING_NEEDS"])


def make(arm, point, seed, gpu):
    """Of a duet the side is logged in place of the arm."""
    say("made " + os.environ.get("GPULIFT_TESTING_SIDE", arm))
    return Arm(step=lambda: sum(range(1000)), error=lambda: 0.0, items=1)
