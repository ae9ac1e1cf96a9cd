"""What `show --again` found, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpulift.analysis import conditions
from gpulift.analysis.prediction import INCONCLUSIVE, INSIDE, NOT_MEASURED, OUTSIDE, Answer
from gpulift.ground import errors, text
from gpulift.records.model import Record
from gpulift.verdicts.comparability import FactDifference
from gpulift.verdicts.row import FAILED, LEFT_OUT, OPEN, PASSED, Row, Table

DIGITS = 4
KINDS = {INSIDE: PASSED, OUTSIDE: FAILED, INCONCLUSIVE: OPEN, NOT_MEASURED: LEFT_OUT}
CHANCE = (
    "of arms that are as they were, 1 in 20 falls outside, and more where days or runs differ by"
    " more than the launches of one run do"
)


@dataclass(frozen=True)
class Verification:
    """A record's launches, the new ones, and what became of each arm."""

    record: Record
    then: tuple[Record, ...]
    now: tuple[Record, ...]
    answers: tuple[Answer, ...]
    differs: tuple[FactDifference, ...]
    folder: Path

    @property
    def measured(self) -> tuple[Record, ...]:
        """The new launches that have figures."""
        return tuple(one for one in self.now if one.outcome == "ok")

    @property
    def broken(self) -> tuple[Record, ...]:
        """The new launches that failed."""
        return tuple(one for one in self.now if one.outcome in ("failed", "error"))

    @property
    def exit_code(self) -> int:
        """Outside before inconclusive; an arm that this machine skipped decides nothing."""
        verdicts = {one.verdict for one in self.answers}
        if OUTSIDE in verdicts or self.broken:
            return errors.FAILED
        if INCONCLUSIVE in verdicts:
            return errors.INCONCLUSIVE
        return errors.OK if INSIDE in verdicts else errors.NOTHING_RAN


def table(found: Verification) -> Table:
    """A row for each arm: then and where the new mean was expected, now, and the answer."""
    record, counts = found.record, (found.then, found.measured)
    case = [text.case_label(record.case_id)] if record.case_id else []
    notes = [f"launch {one.launch + 1}: {one.outcome}, {one.reason}" for one in found.broken]
    if found.differs:
        notes.append(f"differs: {', '.join(_shown(one) for one in found.differs)}")
    inside = [(one.unseen, one.arm) for one in found.answers if one.verdict == INSIDE]
    for change, arm in [max(inside)] if inside else []:
        may = f"a change of {text.percent(change)} in {arm} may fit"
        notes.append(f"inside is no proof of equality: {may}")
    return Table(
        name="gpulift verify",
        title=f"{record.citation}: {', '.join((record.technique, *case, record.pace))} regime",
        rows=tuple(map(_row, found.answers)),
        exit_code=found.exit_code,
        notes=(*notes, CHANCE),
        conditions=tuple(map(_launches, ("then", "now"), counts)),
        folder=str(found.folder),
    )


def _row(one: Answer) -> Row:
    ends = [_figure(one, end) for end in (one.low, one.high) if end is not None]
    expected = f" (95 % prediction {' to '.join(ends)})" if ends else ""
    return Row(
        question="now/then",
        subject=one.arm,
        verdict=one.verdict,
        kind=KINDS[one.verdict],
        base=f"{_figure(one, one.then)}{expected}" if one.then else "",
        head=_figure(one, one.now) if one.now else "",
        reason=one.reason or _beyond(one),
        note=one.quantity.name,
    )


def _beyond(one: Answer) -> str:
    """`1.2 % below the interval`; empty where it is not outside."""
    if one.verdict != OUTSIDE:
        return ""
    side = "above" if one.beyond > 0 else "below"
    return f"{text.digits(100 * abs(one.beyond), 2)} % {side} the interval"


def as_dict(found: Verification) -> Mapping[str, Any]:
    """All of it as JSON."""
    record = found.record
    return {
        "record": record.citation,
        "technique": record.technique,
        "case": record.case_id,
        "regime": record.regime,
        "exit_code": found.exit_code,
        "arms": [
            {
                **asdict(one),
                "beyond": one.beyond,
                "answer": ", ".join(filter(None, (one.verdict, _beyond(one)))),
            }
            for one in found.answers
        ],
        "differs": [{"fact": one.fact, "then": one.base, "now": one.head} for one in found.differs],
        "records_then": [one.citation for one in found.then],
        "records_now": [one.citation for one in found.now],
        "folder": str(found.folder),
    }


def _launches(when: str, records: Sequence[Record]) -> str:
    launches = text.counted(len(records), "launch", "launches")
    return f"{when}: {launches} of {conditions.commit(records[0].context.build)}"


def _figure(one: Answer, value: float) -> str:
    """In the unit that fits what was measured then, so that the figures of a row compare."""
    if not one.quantity.unit:
        return f"{text.digits(value, DIGITS)}×"
    units = text.SMALL if one.quantity.unit == "s" else text.PREFIXES
    factor, prefix = next((u for u in units if (one.then or value) >= u[0]), units[-1])
    unit = prefix if one.quantity.unit == "s" else f"{prefix}{one.quantity.unit}"
    return f"{text.digits(value / factor, DIGITS)} {unit}"


def _shown(one: FactDifference) -> str:
    return f"{one.fact} ({one.base} then, {one.head} now)"
