"""A comparison as the comment of a pull request: the verdict, what changed, the rest folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.commands import compare_cells as cells
from gpulift.exchange.github import code
from gpulift.ground.text import counted
from gpulift.report.escaping import markdown as markdown_text
from gpulift.verdicts import decision
from gpulift.verdicts.decision import TWO_RUNS, percent
from gpulift.verdicts.two_sets import UNITS, Comparison, Row

MARKS = {
    decision.REGRESSED: "❌",
    decision.ERROR: "❌",
    decision.IMPROVED: "✅",
    decision.EQUIVALENT: "✅",
    decision.INCONCLUSIVE: "❔",
    decision.SKIPPED: "➖",
}
MOST_ROWS = 100  # of a table: a comment of GitHub holds 65,536 characters


def markdown(found: Comparison) -> str:
    """One line of verdict, the rows that changed, what was not told and why, the other rows folded,
    the conditions."""
    changed = [row for row in found.rows if row.verdict.verdict in cells.CHANGED]
    rest = [row for row in found.rows if row.verdict.verdict not in cells.CHANGED]
    lines = [_verdict(found), *(f"**Mind: {markdown_text(one)}.**" for one in found.unfinished)]
    lines += ["", *_table(changed, found)]
    if untold := [f"- {markdown_text(line)}" for line in cells.untold(found)]:
        lines += [*untold, ""]
    if rest:
        rows = counted(len(rest), "row")
        lines += [f"<details><summary>{rows} without a known change</summary>", ""]
        lines += [*_table(rest, found), "</details>", ""]
    lines += ["<details><summary>Thresholds and conditions</summary>", ""]
    lines += [*(f"- {line}" for line in _conditions(found)), "", "</details>"]
    return "\n".join(lines) + "\n"


def _verdict(found: Comparison) -> str:
    worst = next(verdict for verdict, count in found.counts.items() if count)
    return f"**gpulift: {MARKS[worst]} {cells.counted(found)}** (time of head against base)"


def _table(rows: Sequence[Row], found: Comparison) -> Iterator[str]:
    if not rows:
        return
    unit, family = found.unit, found.family
    reasons = any(cells.reason(row, family) for row in rows)
    head = ("", "row", "base", "head", "change", "95 % interval", UNITS[unit])
    yield f"| {' | '.join((*head, 'reason') if reasons else head)} |"
    yield f"|{' --- |' * (len(head) + reasons)}"
    for row in rows[:MOST_ROWS]:
        told = [
            f"{MARKS[row.verdict.verdict]} {row.verdict.verdict}",
            code(row.name),
            *cells.sides(row, unit),
            cells.change(row),
            cells.interval(row),
            cells.units(row, unit),
        ]
        why = cells.reason(row, family)
        told += [code(why) if why else ""] if reasons else []
        yield f"| {' | '.join(told)} |"
    if len(rows) > MOST_ROWS:
        yield ""
        yield f"And {len(rows) - MOST_ROWS} more: `./gpulift compare --all` shows them."
    yield ""


def _conditions(found: Comparison) -> Iterator[str]:
    """What the verdicts hang on."""
    for side, runs in (("base", found.base), ("head", found.head)):
        yield f"{side}: {', '.join(map(code, runs))}"
    if found.question:
        yield f"question: {found.question}"
    for one in found.common.declared:
        yield f"declared difference: {code(str(one))}"
    yield (
        f"a change is more than {percent(TWO_RUNS.least)}, equivalent is within"
        f" ±{percent(TWO_RUNS.equivalent)}, where nothing else is asked; {found.family} comparisons"
        f" share a chance of {percent(decision.FAMILY_ALPHA)} of any false regression"
    )
    yield from (f"{name}: {code(told)}" for name, told in found.asked)
    yield f"{len(found.common.equal)} facts of machine and build are equal on both sides"
    yield from (f"mind: {code(note)}" for note in found.notes)
    yield from (code(line) for line in found.work_lines)
    yield f"decision method {decision.DECISION_METHOD}"
