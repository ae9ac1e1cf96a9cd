"""How much a shown figure rests on: its launches and cards, of which text it is, and what else ran.

Every figure that is not wrong is shown, with its grade. A grade decides order and colour; withheld
is what an erratum calls wrong for these very arms alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpulift.analysis.choice import Evidence, evidence_of
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.summary import Worth
from gpulift.analysis.today import TODAYS
from gpulift.ground.text import counted
from gpulift.records.model import Record
from gpulift.verdicts.stats import measured_arms

MARKS = ("●○○", "●●○", "●●●")


@dataclass(frozen=True)
class Grade:
    """What a figure rests on. `launches` and `runs` are of the text that is shown, on all cards of
    the model; `thrice` is how many of the `cards` have three launches or more."""

    launches: int
    cards: int  # 0 of what no GPU took part in
    runs: int
    text: str  # today's, or before (2026-11-23); empty of a user's own technique
    gone: str = ""  # what of it is no more: technique, case, baseline, arm
    withheld: str = ""  # the one reason, where an erratum withholds these very arms
    bound: str = ""
    beside: str = ""  # what else ran
    thrice: int = 0

    @property
    def level(self) -> int:
        """2: three launches on each of two cards; 1: three launches; 0: fewer."""
        return Evidence(self.launches, self.cards, self.thrice).level

    @property
    def marks(self) -> str:
        """`●●○`."""
        return MARKS[self.level]

    @property
    def todays(self) -> bool:
        """Whether it is of today's text, or of a user's own technique."""
        return self.text in (TODAYS, "")

    @property
    def order(self) -> tuple[bool, bool, int, bool, bool]:
        """Smaller ones stand first: evidence before what lacks it."""
        return (
            bool(self.gone),
            bool(self.withheld),
            -self.level,
            not self.todays,
            bool(self.beside),
        )

    @property
    def words(self) -> str:
        """`3 launches, 2 runs, one card; before (2026-11-23); bound by device`."""
        cards = {0: "", 1: "one card"}.get(self.cards, f"{self.cards} cards")
        runs = "one run" if self.runs == 1 else f"{self.runs} runs"
        launches = counted(self.launches, "launch", "launches")
        gone = self.gone and f"{self.gone} is gone"
        bound = self.bound and f"bound by {self.bound}"
        rests_on = ", ".join(filter(None, (launches, runs, cards)))
        parts = (rests_on, self.text, bound, self.beside, gone, self.withheld)
        return "; ".join(filter(None, parts))


def grade_of(row: Worth, doubts: Doubts = NO_DOUBTS) -> Grade:
    """Of a comparison; launches of further runs of its text count where `with_models` knows
    them."""
    known, text_key = row.of_model.records if row.of_model else (), doubts.today.text_key
    text = text_key(row.case.first)
    records = [one for one in known if text_key(one) == text] or row.case.measured
    graded = grade_of_arms(records, (row.arm, row.baseline), doubts)
    gone = doubts.today.gone(row.case.first, (row.arm,), row.baseline)
    return replace(graded, gone=gone, bound=row.bound)


def grade_of_arms(
    records: Sequence[Record], arms: Sequence[str], doubts: Doubts = NO_DOUBTS
) -> Grade:
    """Of what records of one case and text say of these arms together, whichever of them the others
    are held against; at least one record measured them all."""
    measured = [one for one in records if all(measured_arms([one], arm) for arm in arms)]
    found = evidence_of(measured)
    newest = max(measured, key=lambda one: one.began_at)
    return Grade(
        launches=found.launches,
        cards=found.cards,
        runs=len({one.file.parent for one in measured}),
        text=doubts.today.text(newest),
        gone=doubts.today.gone(newest, arms),
        withheld=doubts.withheld(measured, arms),
        beside=doubts.beside_of(measured),
        thrice=found.thrice,
    )
