"""Verdicts on changes: gates and comparisons of two runs, in one shape for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpulift.gate.answer import as_usual, family
from gpulift.gate.judge import Control, GateResult, RowResult
from gpulift.ground import errors
from gpulift.ground.estimate import Estimate
from gpulift.verdicts import decision
from gpulift.verdicts.comparison import UNITS, ArmPair, Comparison
from gpulift.verdicts.decision import EQUIVALENT, SKIPPED, WORST_FIRST, Verdict, percent

GLYPHS = {
    decision.REGRESSED: "▼",
    decision.IMPROVED: "▲",
    decision.EQUIVALENT: "≈",
    decision.INCONCLUSIVE: "?",
    decision.ERROR: "✗",
    decision.SKIPPED: "–",
}
STYLES = {decision.REGRESSED: "slower", decision.IMPROVED: "faster", decision.ERROR: "bad"}
OUTCOMES = {
    errors.OK: "no regression was found",
    errors.FAILED: "a regression or an error was found",
    errors.INSTRUMENT_BROKEN: "the instrument is broken: no verdict counts",
    errors.INCONCLUSIVE: "too much is inconclusive",
    errors.NOTHING_RAN: "nothing could be compared here",
}


@dataclass(frozen=True)
class ChangeRow:
    """An arm of a case, head against base; `ratio` is head time / base time."""

    technique: str
    case_id: str
    arm: str
    verdict: str
    ratio: Estimate | None
    smallest_effect: float | None
    reason: str

    @property
    def glyph(self) -> str:
        """A sign for the verdict, for those who do not see its colour."""
        return GLYPHS[self.verdict]

    @property
    def style(self) -> str:
        """The page's class for the verdict."""
        return STYLES.get(self.verdict, "")


@dataclass(frozen=True)
class Change:
    """Head against base: every verdict, and what they rest on."""

    kind: str
    base: str
    head: str
    machine: str
    exit_code: int
    counts: Mapping[str, int]
    basis: tuple[str, ...]
    controls: tuple[Control, ...]
    rows: tuple[ChangeRow, ...]

    @property
    def outcome(self) -> str:
        """What the exit code means."""
        return OUTCOMES.get(self.exit_code, f"exit code {self.exit_code}")

    @property
    def counted(self) -> str:
        """How many rows got each verdict."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return f"{len(self.rows)} comparisons: {counts}"

    @property
    def unclean(self) -> list[ChangeRow]:
        """What is neither equivalent nor skipped, worst first."""
        found = [row for row in self.rows if row.verdict not in (EQUIVALENT, SKIPPED)]
        return sorted(found, key=lambda row: WORST_FIRST.index(row.verdict))

    def of(self, verdict: str) -> list[ChangeRow]:
        """The rows with that verdict."""
        return [row for row in self.rows if row.verdict == verdict]


def from_gate(result: GateResult) -> Change:
    """A gate's verdicts, and its controls."""
    setup = result.setup
    known = f"when it was measured: {setup.certificate}" if setup.certificate else ""
    return Change(
        kind="Gate",
        base=setup.base,
        head=setup.head,
        machine=setup.machine,
        exit_code=result.exit_code,
        counts={word: result.counts[word] for word in WORST_FIRST},
        basis=tuple(
            part for part in (family(result.plan), as_usual(result), known, result.note) if part
        ),
        controls=result.controls,
        rows=tuple(_gate_row(one) for one in result.rows),
    )


def from_comparison(found: Comparison, machine: str) -> Change:
    """The verdicts of a comparison of two sets of runs."""
    declared = tuple(f"declared difference: {one}" for one in found.common.declared)
    question = (f"question: {found.question.rstrip('?')}",) if found.question else ()
    budget = (
        f"family of {found.family}: planned chance of a false regression in the whole comparison"
        f" {percent(decision.FAMILY_ALPHA)}"
    )
    told = (*found.unfinished, *found.notes)
    return Change(
        kind="Comparison of two runs",
        base=", ".join(Path(run).name for run in found.base),
        head=", ".join(Path(run).name for run in found.head),
        machine=machine,
        exit_code=found.exit_code,
        counts=found.counts,
        basis=(budget, f"counted over {UNITS[found.unit]}", *declared, *question, *told),
        controls=(),
        rows=tuple(_compared_row(row) for row in found.rows),
    )


def _gate_row(one: RowResult) -> ChangeRow:
    return _row(one.row.technique, one.row.case_id, one.row.arm, one.verdict)


def _compared_row(row: ArmPair) -> ChangeRow:
    made = _row(row.technique, row.case_id, row.arm, row.verdict)
    reason = "; ".join(part for part in (row.measure, made.reason) if part)
    return replace(made, reason=reason)


def _row(technique: str, case_id: str, arm: str, verdict: Verdict) -> ChangeRow:
    effect = verdict.smallest_effect
    return ChangeRow(
        technique,
        case_id,
        arm,
        verdict.verdict,
        verdict.difference.ratio if verdict.difference is not None else None,
        effect if effect is not None and math.isfinite(effect) else None,
        verdict.reason,
    )
