"""A short Markdown page for the step summary of a GitHub workflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.analysis import conditions
from gpulift.analysis.analyse import Analysis, JudgedRun
from gpulift.analysis.doubts import Doubts
from gpulift.analysis.gains import headline, ordered
from gpulift.analysis.machine.checks import basis, coverage
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, CheckResult
from gpulift.analysis.machine.verdict import overall
from gpulift.analysis.summary import Roof, Worth
from gpulift.exchange.rows import known_errors
from gpulift.ground import text
from gpulift.ground.markup import code, table

MOST_LINES = 10
MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "skipped": "➖"}


def github_text(analysis: Analysis) -> str:
    """Verdict, what failed or is open, the best and worst of each technique, the roofs."""
    return "\n".join(line for run in analysis.runs for line in _run(run, analysis.doubts)) + "\n"


def _run(run: JudgedRun, doubts: Doubts) -> Iterator[str]:
    summary, checks = run.summary, run.checks
    verdict = overall(checks)
    context = summary.run.records[0].context
    yield f"## gpulift: {MARKS[verdict]} {verdict} on {code(summary.run.machine)}"
    yield ""
    yield f"{coverage(checks)}; {basis(summary)}."
    yield f"Run {code(summary.run.name)}, commit {code(conditions.commit(context.build))}."
    for mark in summary.marks:
        yield f"**Mind: {mark}.**"
    yield ""
    yield from _checks(checks)
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


def _checks(checks: Sequence[CheckResult]) -> Iterator[str]:
    for word in (FAIL, INCONCLUSIVE):
        found = [check for check in checks if check.verdict == word]
        for check in found[:MOST_LINES]:
            why = "; ".join(part for part in (check.reason, check.remedy) if part)
            yield f"- {MARKS[word]} {word} {code(check.id)} {code(why)}"
        if len(found) > MOST_LINES:
            yield f"- {MARKS[word]} and {len(found) - MOST_LINES} more that are {word}"
        if found:
            yield ""


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
