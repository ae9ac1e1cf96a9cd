"""How much of a report is drawn: figures cost far more than rows, and tables have all of it."""

from __future__ import annotations

from dataclasses import dataclass

LARGE = 3000  # records; a run of all cases has about 170


@dataclass(frozen=True)
class Limits:
    """The most that is drawn or listed; what is left out is counted on the page."""

    machines: int
    forest: int  # techniques of the figure that has all of a machine's
    sweeps: int
    panels: int
    models: int
    strips: int


USUAL = Limits(machines=8, forest=100, sweeps=24, panels=8, models=24, strips=1500)
SPARING = Limits(machines=1, forest=8, sweeps=1, panels=4, models=1, strips=150)


def limits(records: int) -> Limits:
    """For a report of so many records."""
    return SPARING if records > LARGE else USUAL
