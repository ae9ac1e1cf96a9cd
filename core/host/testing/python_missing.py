"""Needs a package that nobody has."""

import gpulift_no_such_package  # noqa: F401

TECHNIQUE = {
    "question": "What becomes of a script whose package is not installed?",
    "expectation": "A skip with a remedy.",
    "arms": ["baseline", "other"],
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}
