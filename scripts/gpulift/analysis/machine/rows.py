"""Checks of a machine as rows: what was measured, its share of what judges it, and its limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from gpulift.analysis import conditions
from gpulift.analysis.machine import verdict
from gpulift.analysis.machine.checks import basis
from gpulift.analysis.machine.explain import steps_of
from gpulift.analysis.machine.results import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    WORST_FIRST,
    CheckResult,
    Position,
)
from gpulift.analysis.machine.tables import quantity
from gpulift.analysis.summary import Summary, highest
from gpulift.ground import text
from gpulift.records.throttle import throttle_of
from gpulift.verdicts.row import FAILED, LEFT_OUT, OPEN, PASSED, Quantity, Row, Table

JUDGES = {"measured": "what was reached before", "pairs": "the median of all pairs"}
KINDS = {FAIL: FAILED, INCONCLUSIVE: OPEN, PASS: PASSED, SKIPPED: LEFT_OUT}


def table_of(summary: Summary, results: Iterable[CheckResult], folder: str = "") -> Table:
    """All checks of a machine."""
    card = summary.run.records[0].context.card
    title = f"{' '.join(filter(None, (summary.run.machine, card)))}, {basis(summary)}"
    return table(summary.run.name, title, results, folder, _facts(summary))


def table(
    name: str,
    title: str,
    results: Iterable[CheckResult],
    folder: str = "",
    facts: Mapping[str, str] | None = None,
) -> Table:
    """Checks, worst first."""
    ordered = sorted(results, key=lambda one: WORST_FIRST.index(one.verdict))
    code = verdict.exit_code_of(ordered)
    return Table(name, title, tuple(map(row, ordered)), code, folder=folder, data=facts or {})


def row(result: CheckResult) -> Row:
    """Step times are many: those that pass are counted, but for one that asks for a better
    reference."""
    passed, estimate = result.verdict == PASS and not result.remedy, result.estimate
    worst = min(result.positions, key=lambda one: (not one.named, one.deviation), default=None)
    return Row(
        question="measured",
        subject=result.id,
        verdict=result.verdict,
        kind=KINDS[result.verdict],
        group=result.id.partition("/")[0],
        limit=result.limit,
        smallest_effect=result.smallest_effect if result.verdict == INCONCLUSIVE else None,
        head=", ".join(_among(worst) if worst else _measured(result)),
        reason=result.reason,
        remedy=result.remedy,
        note=_state(worst) if worst else "",
        notable=result.verdict != SKIPPED
        and not (passed and result.id.startswith(verdict.INFORMING)),
        measured=Quantity(estimate, result.unit, result.unit != "s") if estimate else None,
        steps=partial(steps_of, result),
    )


def _measured(result: CheckResult) -> Iterator[str]:
    """`3.29 TB/s, 100.2 % of what 5 cards reached, limit 3.26 TB/s`."""
    if result.value is not None:
        yield quantity(result.value, result.unit)
    judge = JUDGES.get(result.kind, f"the {result.kind}")
    if result.cards:
        judge = f"what {text.counted(result.cards, 'card')} reached"
    if result.fraction is not None:
        yield f"{text.percent(result.fraction)} of {judge}"
    if result.limit is not None:
        yield f"limit {quantity(result.limit, result.unit)}"


def _among(slowest: Position) -> Iterator[str]:
    yield quantity(slowest.rate.value, slowest.rate.unit)
    yield f"{text.percent(1 + slowest.deviation)} of the median"


def _state(slowest: Position) -> str:
    """How hot the card was in the check in which it is slowest, and what held its clock down."""
    records = slowest.rate.measured.records if slowest.rate.measured else ()
    heat = highest(records, "temperature_c")
    parts = [] if heat is None else [f"at most {heat:.0f} °C"]
    if watched := [record for record in records if record.telemetry]:
        parts.append(f"clock held down: {throttle_of(watched).words}")
    return ", ".join(parts)


def _facts(summary: Summary) -> dict[str, str]:
    first = summary.run.records[0]
    return {
        "timestamp": min(record.began_at for record in summary.run.records),
        "machine": summary.run.machine,
        "card": conditions.card(first.context),
        "software": conditions.software(first.context),
        "commit": conditions.commit(first.context.build),
        "method": first.method,
        "basis": basis(summary),
        "marks": "; ".join(summary.marks),
    }
