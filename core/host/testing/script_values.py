"""Arms that give a value after a step, or nothing that could be compared."""

import math

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "Are values of arms held against each other?",
    "expectation": "Yes, relative to the first arm's.",
    "arms": ["baseline", "other"],
    "sweep": {"gives": ["near", "far", "nan", "nothing"]},
}
VALUES = {"near": 201.0, "far": 210.0, "nan": math.nan}


def make(arm, point, seed, gpu):
    """The baseline gives 200."""
    gives = str(point["gives"])
    if gives == "nothing":
        return Arm(step=lambda: sum(range(1000)), items=1)
    value = 200.0 if arm == "baseline" else VALUES[gives]
    return Arm(step=lambda: sum(range(1000)), value=lambda: value, items=1)
