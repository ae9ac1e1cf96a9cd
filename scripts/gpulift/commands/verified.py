"""What `show --again` found, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from gpulift.analysis import conditions
from gpulift.analysis.prediction import INCONCLUSIVE, INSIDE, NOT_MEASURED, OUTSIDE, Answer
from gpulift.ground import errors, terminal, text
from gpulift.ground.text import visible
from gpulift.records.model import Record
from gpulift.verdicts.comparability import FactDifference

DIGITS = 4


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


def lines(found: Verification) -> list[str]:
    """A title, then what stands below the table; nothing in it is obeyed by a terminal."""
    record = found.record
    case = f", {text.case_label(record.case_id)}" if record.case_id else ""
    said = [f"{record.citation}: {record.technique}{case}, {record.pace} regime"]
    said += [f"{one.arm}: {one.verdict}, {one.reason}" for one in found.answers if one.reason]
    said += [f"launch {one.launch + 1}: {one.outcome}, {one.reason}" for one in found.broken]
    if found.differs:
        said.append(f"differs: {', '.join(_shown(one) for one in found.differs)}")
    said += [_widest(found)] if any(one.verdict == INSIDE for one in found.answers) else []
    return [visible(line) for line in [*said, summary_line(found)]]


def table(found: Verification) -> Table:
    """A row for each arm: then, where the new mean was expected, now, and the answer."""
    made = terminal.titled("")
    then, now = _launches("then", found.then), _launches("now", found.measured)
    for name in ("arm", "quantity", then, "95 % prediction", now, "answer"):
        made.add_column(Text(visible(name)))
    for one in found.answers:
        made.add_row(*(Text(visible(cell)) for cell in _cells(one)))
    return made


def _cells(one: Answer) -> tuple[str, ...]:
    known = [value for value in (one.low, one.high) if value is not None]
    interval = f"[{', '.join(_figure(one, value) for value in known)}]" if known else ""
    then, now = (_figure(one, value) if value else "" for value in (one.then, one.now))
    return one.arm, one.quantity.name, then, interval, now, answer_text(one)


def answer_text(one: Answer) -> str:
    """`inside`, or `outside, 1.2 % below the interval`."""
    if one.verdict != OUTSIDE:
        return one.verdict
    side = "above" if one.beyond > 0 else "below"
    return f"{one.verdict}, {text.digits(100 * abs(one.beyond), 2)} % {side} the interval"


def summary_line(found: Verification) -> str:
    """How many arms came out as predicted, and what that is worth."""
    counts = {
        verdict: sum(one.verdict == verdict for one in found.answers)
        for verdict in (INSIDE, OUTSIDE, INCONCLUSIVE, NOT_MEASURED)
    }
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return (
        f"{said}; of arms that are as they were, 1 in 20 falls outside, and more where days or runs"
        " differ by more than the launches of one run do"
    )


def _widest(found: Verification) -> str:
    """Inside a wide interval is no proof that nothing changed."""
    name, change = max(
        ((one.arm, one.unseen) for one in found.answers if one.verdict == INSIDE),
        key=lambda each: each[1],
    )
    return f"inside is no proof of equality: a change of {text.percent(change)} in {name} may fit"


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
            {**asdict(one), "beyond": one.beyond, "answer": answer_text(one)}
            for one in found.answers
        ],
        "differs": [{"fact": one.fact, "then": one.base, "now": one.head} for one in found.differs],
        "records_then": [one.citation for one in found.then],
        "records_now": [one.citation for one in found.now],
        "folder": str(found.folder),
    }


def _launches(when: str, records: Sequence[Record]) -> str:
    launches = text.counted(len(records), "launch", "launches")
    return f"{when} ({launches}, {conditions.commit(records[0].context.build)})"


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
