"""A short Markdown page for the step summary of a GitHub workflow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpulift.analysis import conditions
from gpulift.analysis.analyse import Analysis, JudgedRun
from gpulift.analysis.doubts import Doubts
from gpulift.analysis.gains import headline, ordered
from gpulift.analysis.machine import rows
from gpulift.analysis.machine.verdict import INFORMING, overall
from gpulift.analysis.summary import Roof, Worth
from gpulift.exchange.rows import known_errors
from gpulift.ground import text
from gpulift.ground.markup import code, table
from gpulift.verdicts.row import FAILED, OPEN, Row
from gpulift.verdicts.table import MARKS, markdown


def github_text(analysis: Analysis) -> str:
    """Verdict, what failed or is open, the best and worst of each technique, the roofs."""
    return "\n".join(line for run in analysis.runs for line in _run(run, analysis.doubts)) + "\n"


def _run(run: JudgedRun, doubts: Doubts) -> Iterator[str]:
    summary, checks = run.summary, run.checks
    verdict = overall(checks)
    context = summary.run.records[0].context
    yield f"## gpulift: {MARKS[rows.KINDS[verdict]]} {verdict} on {code(summary.run.machine)}"
    yield ""
    yield f"Run {code(summary.run.name)}, commit {code(conditions.commit(context.build))}."
    for mark in summary.marks:
        yield f"**Mind: {mark}.**"
    yield ""
    made = rows.table_of(summary, checks)
    shown = (replace(row, notable=_leads(row)) for row in made.rows)
    yield from markdown(replace(made, name="checks", rows=tuple(shown)))
    yield from table(
        ("technique", "case", "arm", "speedup", "fraction of the roof", "known errors"),
        [_worth(row) for row in ordered(headline(summary, doubts), doubts)],
    )
    yield from table(
        ("roof", "regime", "rate", "of the datasheet"), [_roof(one) for one in summary.roofs]
    )
    if not summary.worths and not summary.roofs:
        yield "Nothing was measured in this run."
        yield ""


def _leads(row: Row) -> bool:
    """Whether it failed, or is open and decides: the others are folded."""
    return row.kind == FAILED or (row.kind == OPEN and not row.subject.startswith(INFORMING))


def _worth(row: Worth) -> tuple[str, ...]:
    glyph, word = text.verdict(row.speedup)
    gain = (f"{glyph} {word}", text.speedup(row.speedup), text.saved(row.saved_s))
    remarks = map(code, row.remarks)
    return (
        code(row.technique),
        code(text.case_label(row.case.case_id)),
        f"{code(row.arm)}{' (control)' if row.of_control else ''}",
        ", ".join(filter(None, (*gain, *remarks))),
        text.percent(row.roof_fraction),
        _errors(row),
    )


def _errors(row: Worth) -> str:
    found = dict.fromkeys(map(known_errors, row.case.measured))
    return code("; ".join(filter(None, found))) if any(found) else "–"


def _roof(one: Roof) -> tuple[str, ...]:
    return (
        code(one.name),
        code(one.regime),
        text.rate(one.rate.value, one.unit),
        text.percent(one.fraction),
    )
