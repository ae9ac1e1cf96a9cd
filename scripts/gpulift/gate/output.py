"""What a gate says: lines for people, JSON, workflow commands of GitHub, JUnit XML."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from gpulift.gate.evidence import ALTERNATING, BASE, COMMANDS, HEAD, TWO_IN_ONE, Launch, Row, Setup
from gpulift.gate.judge import WORST_FIRST, Control, GateResult, RowResult, describe
from gpulift.gate.launches import CONFIRMATION, SCREEN, GateRecords, Place, turn_data, turn_line
from gpulift.ground import steps
from gpulift.ground.steps import step
from gpulift.ground.text import visible
from gpulift.ground.whole import write_whole
from gpulift.verdicts.decision import (
    ERROR,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    SKIPPED,
    GatePlan,
    percent,
)
from gpulift.verdicts.explain import Attribution, path_to
from gpulift.verdicts.matching import matching

# How a launch's windows become its log ratio: not by the medians that stand beside it in a duet.
LOG_RATIO = {
    TWO_IN_ONE: "the log ratio of a launch is the median of its blocks, and that of a block the"
    " mean log step time of the head's windows in it less the base's",
    ALTERNATING: "the log ratio of a launch is the mean log of its head processes' median steps"
    " less that of its base processes",
    COMMANDS: "the log ratio of a launch is that of the numbers of a run of the head and one of the"
    " base, and above 0 where the head is worse",
}
SHOWN = (ERROR, REGRESSED, INCONCLUSIVE, IMPROVED)
NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


Beside = Mapping[Row, str]  # base and head of a row, in words


def in_words(base: str, head: str) -> str:
    """Base and head, as all forms of the answer have them."""
    return f"{base} -> {head}"


def line(one: RowResult, note: str, beside: Beside) -> str:
    """A row on one line: the verdict first, then name, both sides, ratio, interval, smallest
    effect."""
    word, _, rest = describe(one.verdict).partition("; ")
    said = "; ".join(part for part in (beside.get(one.row, ""), rest, note) if part)
    return f"{word:<13}{one.row.id}: {said}" if said else f"{word:<13}{one.row.id}"


def lines(result: GateResult, beside: Beside) -> Iterator[str]:
    """All rows that are not clean, worst first, then the summary, which counts those that are
    inconclusive as usual."""
    usual = result.open_as_usual
    for word in SHOWN:
        for one in result.rows:
            if one.verdict.verdict == word and one not in usual:
                yield line(one, result.note, beside)
    yield from summary(result)


def summary(result: GateResult) -> Iterator[str]:
    """Counts, controls, and what the verdicts rest on."""
    setup, counts = result.setup, result.counts
    yield f"base {setup.base}, head {setup.head}, on {setup.machine}" + (
        f" ({result.note})" if result.note else ""
    )
    counted = ", ".join(f"{counts[word]} {word}" for word in WORST_FIRST)
    yield f"{len(result.rows)} comparisons: {counted}"
    skips = Counter(one.verdict.reason for one in result.rows if one.verdict.verdict == SKIPPED)
    for reason, count in skips.items():
        yield f"{count} skipped: {reason}"
    if said := as_usual(result):
        yield said
    for control in result.controls:
        yield f"control {control.name}: {control.state}: {control.said}"
    yield "; ".join(part for part in (family(result.plan), setup.certificate) if part)


def as_usual(result: GateResult) -> str:
    """The rows that are inconclusive as in the certificate's trials, by technique; or nothing."""
    counts = Counter(one.row.technique for one in result.open_as_usual)
    if not counts:
        return ""
    named = ", ".join(f"{technique} ({count})" for technique, count in counts.items())
    return (
        f"{sum(counts.values())} inconclusive as in most of their trials on"
        f" {result.setup.machine}, looked at once and not counted: {named}; a filter that names"
        " them looks longer"
    )


def family(plan: GatePlan) -> str:
    """How many comparisons share the error budget, and what it is."""
    if not plan.cases:
        return "nothing was compared"
    return (
        f"family of {plan.cases}: planned chance of a false regression in the whole gate"
        f" {percent(plan.suite_alpha)}"
    )


def comparability(setup: Setup) -> list[str]:
    """What holds base and head comparable, of all that a gate looks at."""
    return [
        f"base {setup.base}, head {setup.head}: nothing is measured where their builds differ in"
        " more than the commit",
        f"nothing is judged where card, driver or host change between records: all are of one"
        f" machine ({setup.machine})",
        "a launch has no log ratio where base and head were not timed alike: clock and hold",
    ]


def explain(
    result: GateResult,
    rows: Sequence[RowResult],
    attributions: Mapping[Row, Attribution],
    records: GateRecords,
) -> Iterator[str]:
    """Every step from windows to the verdict and its cause, for these rows."""
    common = [step(steps.COMPARABILITY, fact) for fact in comparability(result.setup)]
    note = [step(steps.PAIRED, result.note)] if result.note else []
    for one in rows:
        yield f"{one.row.id}: {one.verdict.verdict}"
        launches = _launch_lines(one, result.setup.mode, records)
        lines = [*common, *launches, *note, *_rules(one, result)]
        for line in path_to(one.verdict, lines, attributions.get(one.row)):
            yield f"  {line}"


def _launch_lines(one: RowResult, mode: str, records: GateRecords) -> Iterator[str]:
    """Of each launch what its sides stand on, and then its value; at the end how that is made."""
    for where, launch in _launches(one):
        for turn in records.of(one.row, where):
            yield turn_line(where, turn)
        stage, number = where
        yield step(steps.LAUNCH_VALUE, f"{stage} launch {number}: {_launch_text(launch)}")
    if any(launch.value is not None for _, launch in _launches(one)):
        yield step(steps.LAUNCH_VALUE, LOG_RATIO[mode])


def _rules(one: RowResult, result: GateResult) -> Iterator[str]:
    """The error budget and the margins, where figures were held against them."""
    if one.verdict.difference is None:
        return
    yield step(steps.FAMILY, family(result.plan))
    least, floor = percent(one.margins.least), result.setup.floors.get(one.row.id)
    asked = result.setup.least_changes.get(one.row.id)
    by = "" if floor is None else f" (its floor in the certificate is {percent(floor)})"
    by += "" if asked is None else f" (--thresholds: {percent(asked)})"
    yield step(steps.SCREEN, f"least change that is called one: {least}{by}")
    if one.row in result.setup.unsteady:
        yield step(steps.SCREEN, "unsteady in the certificate: looked at once")
    yield step(steps.EQUIVALENCE, f"counts as no change: +-{percent(one.margins.equivalent)}")


def rows_of(result: GateResult, case: str) -> list[RowResult]:
    """The rows of which the case is a part of technique/case/arm; an error when there is none."""
    return matching(result.rows, lambda one: one.row.id, case)


def as_json(
    result: GateResult, attributions: Mapping[Row, Attribution], records: GateRecords
) -> dict[str, Any]:
    """Everything that was found, for programs; files of records are named from the gate's folder,
    so that the folder can be moved."""
    setup, plan = result.setup, result.plan
    return {
        "method": setup.method,
        "mode": setup.mode,
        "base": setup.base,
        "head": setup.head,
        "machine": setup.machine,
        "certificate": setup.certificate,
        "comparability": comparability(setup),
        "launch_value": LOG_RATIO[setup.mode],
        "unsteady": [row.id for row in setup.unsteady],
        "family": plan.cases,
        "suite_alpha": plan.suite_alpha,
        "counts": {word: result.counts[word] for word in WORST_FIRST},
        "controls": [vars(control) for control in result.controls],
        "rows": [
            _row_json(one, result, attributions.get(one.row)) | _sides_json(one, records)
            for one in result.rows
        ],
        "exit_code": result.exit_code,
    }


def github(result: GateResult, beside: Beside) -> Iterator[str]:
    """Workflow commands of GitHub: errors for what fails the gate, warnings for what is open."""
    for control in result.controls:
        if not control.passed:
            kind = "error" if control.broken else "warning"
            yield _command(kind, f"gpulift control {control.name}", control.said)
    usual = result.open_as_usual
    for one in result.rows:
        if one.verdict.verdict in (ERROR, REGRESSED):
            said = line(one, result.note, beside)
            yield _command("error", f"gpulift {one.verdict.verdict}", said)
        elif one.verdict.verdict == INCONCLUSIVE and one not in usual:
            said = line(one, result.note, beside)
            yield _command("warning", "gpulift inconclusive", said)


JUNIT_SUITE = "gpulift gate"
JUNIT_BEGINNING = (
    f"<?xml version='1.0' encoding='utf-8'?>\n<testsuite name=\"{JUNIT_SUITE}\"".encode()
)


def write_junit(result: GateResult, file: Path, beside: Beside) -> None:
    """JUnit XML: a test case per row and control. What could not be told is a failure, which a
    skipped test would hide, but for rows that are left open as usual."""
    tests = len(result.rows) + len(result.controls)
    suite = ET.Element("testsuite", name=JUNIT_SUITE, tests=str(tests))
    for control in result.controls:
        _junit_control(suite, control)
    usual = result.open_as_usual
    for one in result.rows:
        _junit_row(suite, one, line(one, result.note, beside), one in usual)
    for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(list(suite.iter(kind)))))
    tree = ET.ElementTree(suite)
    ET.indent(tree)
    content = BytesIO()
    tree.write(content, encoding="utf-8", xml_declaration=True)
    write_whole(content.getvalue(), file)


def _junit_control(suite: ET.Element, control: Control) -> None:
    case = ET.SubElement(suite, "testcase", classname="gate.controls", name=control.name)
    if not control.passed:
        kind = "error" if control.broken else "failure"
        ET.SubElement(case, kind, type=control.state, message=_xml(control.said))


def _junit_row(suite: ET.Element, one: RowResult, told: str, usual: bool) -> None:
    name = one.row.id.removeprefix(f"{one.row.technique}/")
    classname = one.row.technique.replace("/", ".")
    case = ET.SubElement(suite, "testcase", classname=_xml(classname), name=_xml(name))
    element = {
        REGRESSED: "failure",
        ERROR: "error",
        SKIPPED: "skipped",
        INCONCLUSIVE: "skipped" if usual else "failure",
    }.get(one.verdict.verdict)
    said = _xml(told)
    if element is None:
        ET.SubElement(case, "system-out").text = said
    else:
        found = ET.SubElement(case, element, type=one.verdict.verdict, message=said)
        found.text = _xml("\n".join(one.verdict.path))


def _sides_json(one: RowResult, records: GateRecords) -> dict[str, Any]:
    """What either side of each launch stands on."""
    return {
        side: [
            turn_data(records.folder, where, turn)
            for where, _ in _launches(one)
            for turn in records.of(one.row, where)
            if turn.side == side
        ]
        for side in (BASE, HEAD)
    }


def _row_json(one: RowResult, result: GateResult, attributed: Attribution | None) -> dict[str, Any]:
    verdict = one.verdict
    made: dict[str, Any] = {
        "technique": one.row.technique,
        "case": one.row.case_id,
        "arm": one.row.arm,
        "verdict": verdict.verdict,
        "margins": {"least": one.margins.least, "equivalent": one.margins.equivalent},
        "launch_log_ratios": {
            SCREEN: [launch.value for launch in one.first],
            CONFIRMATION: [launch.value for launch in one.second],
        },
        "path": list(verdict.path),
    }
    # Of the launches without a log ratio.
    not_measured = [
        {"stage": stage, "launch": number, "outcome": launch.outcome, "reason": launch.reason}
        for (stage, number), launch in _launches(one)
        if launch.value is None
    ]
    if not_measured:
        made["not_measured"] = not_measured
    if verdict.difference is not None:
        ratio = verdict.difference.ratio
        made["ratio"] = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
        made["launches"] = ratio.launches
    # Without bound where there were too few launches: absent, since JSON has no infinity.
    if verdict.smallest_effect is not None and math.isfinite(verdict.smallest_effect):
        made["smallest_effect"] = verdict.smallest_effect
    if verdict.reason:
        made["reason"] = verdict.reason
    floor = result.setup.floors.get(one.row.id)
    if floor is not None:
        made["floor"] = floor
    if result.note:
        made["note"] = result.note
    if attributed is not None:
        made["attribution"] = attributed.data
    return made


def _launches(one: RowResult) -> Iterator[tuple[Place, Launch]]:
    """Of both stages, with the stage's name and their numbers in it, from 1."""
    for stage, launches in ((SCREEN, one.first), (CONFIRMATION, one.second)):
        for number, launch in enumerate(launches, start=1):
            yield (stage, number), launch


def _launch_text(launch: Launch) -> str:
    if launch.value is None:
        return f"{launch.outcome}: {launch.reason}"
    return f"head/base {math.exp(launch.value):.6f} (log ratio {launch.value:+.6f})"


def _command(level: str, title: str, text: str) -> str:
    title = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escape(text)}"


def _escape(text: str) -> str:
    return "%0A".join(visible(line).replace("%", "%25") for line in text.split("\n"))


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return NOT_IN_XML.sub("?", text)
