"""The steps from windows to a verdict: each line begins with the section of METHOD.md behind it."""

from __future__ import annotations

COMPARABILITY = "Comparability"
LAUNCH_VALUE = "Launch value"
INDEPENDENT = "Independent launches"
PAIRED = "Paired launches"
FAMILY = "Family"
SCREEN = "Gate: screen"
CONFIRMATION = "Gate: confirmation"
EQUIVALENCE = "Equivalence"
VERDICT = "Verdict"
SMALLEST_EFFECT = "Smallest effect"
ATTRIBUTION = "Attribution"
QUALIFICATION = "Qualification"
HEALTH = "Health"
COMPUTED_PEAKS = "Computed peaks"
SIBLINGS = "Siblings"
INTEGRITY = "Integrity"
SECTIONS = (
    COMPARABILITY,
    LAUNCH_VALUE,
    INDEPENDENT,
    PAIRED,
    FAMILY,
    SCREEN,
    CONFIRMATION,
    EQUIVALENCE,
    VERDICT,
    SMALLEST_EFFECT,
    ATTRIBUTION,
    QUALIFICATION,
    HEALTH,
    COMPUTED_PEAKS,
    SIBLINGS,
    INTEGRITY,
)


def step(section: str, text: str) -> str:
    """One line of a path."""
    return f"{section}: {text}"
