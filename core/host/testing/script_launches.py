"""Arms that tell what the engine told them of their launch, and share a file."""

import os

from gpulift_worker import Arm, check_seed, earlier, launch, shared, spent

TECHNIQUE = {
    "question": "What does an arm know of its case beyond its point?",
    "expectation": "The launch, what was found in an earlier one, and a folder of all arms.",
    "arms": ["writes", "reads"],
    "check": {"meaning": "said by the script", "tolerance": 0},
}


def make(arm, point, seed, gpu):
    """The arm that is made later finds what the first one left in this launch alone."""
    file = shared() / "seed"
    error = 0.0
    if file.exists():
        error = float(int(file.read_text()) != seed)
    else:
        with spent("reference"):
            file.write_text(str(seed))
    before = earlier()
    side = float(os.environ.get("GPULIFT_TESTING_SIDE", "0"))
    told = {"launch": launch(), "check_seed": check_seed(), "seed": seed, "side": side}
    return Arm(
        step=lambda: sum(range(1000)),
        error=lambda: error,
        items=1,
        notes={f"{arm}_folder": file.parent.name},
        metrics=lambda: {
            **told,
            "found": float(len(list(file.parent.iterdir()))),
            "earlier_launch": -1 if before is None else before["launch"],
            "earlier_seed": -1 if before is None else before["seed"],
            "earlier_side": -1 if before is None else before["side"],
        },
    )
