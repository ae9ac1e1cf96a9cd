"""Rows in every form: lines, JSON, Markdown, GitHub's commands, JUnit, Bencher's format, steps."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import typer

from gpulift.ground import markup, text
from gpulift.ground.arguments import named, require_free
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.ground.whole import write_whole
from gpulift.verdicts.decision import at_least
from gpulift.verdicts.matching import matching, require_part
from gpulift.verdicts.row import BROKEN, FAILED, LEFT_OUT, OPEN, PASSED, Row, Table

NONE = "–"
MARKS = {BROKEN: "❌", FAILED: "❌", OPEN: "❔", PASSED: "✅", LEFT_OUT: "➖"}
MOST_ROWS = 100  # of a table: a comment of GitHub holds 65,536 characters
SHORT = 10  # rows, which are all shown
MOST_REASONS = 5  # for which rows are left out
JUNIT_KINDS = {BROKEN: "error", FAILED: "failure", OPEN: "failure", LEFT_OUT: "skipped"}
JUNIT_BEGINNING = b"<?xml version='1.0' encoding='utf-8'?>\n<testsuite name=\"gpulift "
LATENCY, MEASURE = "latency", "value"  # in Bencher's format: in nanoseconds, and without a unit


def counted(table: Table) -> str:
    """`3 rows: 1 regressed, 2 equivalent (within 2 %)`."""
    counts = Counter(row.verdict for row in table.rows)
    words = [f"{count} {word}{table.words.get(word, '')}" for word, count in counts.items()]
    rows = text.counted(len(table.rows), "row")
    return f"{rows}: {', '.join(words)}" if words else rows


def line(row: Row) -> str:
    """The verdict first, then subject, both sides, estimate, reason, and what would have been
    seen."""
    beside = " -> ".join(filter(None, (row.base, row.head)))
    words = "; ".join(filter(None, (beside, figures(row), why(row), row.note)))
    return f"{row.verdict:<13}{row.subject}{': ' if words else ''}{words}"


def why(row: Row) -> str:
    """Its reason, what helps, and what would have been seen."""
    return "; ".join(filter(None, (row.reason, row.remedy, _seen(row))))


def figures(row: Row) -> str:
    """The estimate with its interval; empty where there is none."""
    ratio = row.estimate
    if ratio is None:
        return ""
    parts = [f"{row.question} {ratio.value:.5f}"]
    if ratio.low is not None and ratio.high is not None:
        parts.append(f"95 % interval {ratio.low:.5f} to {ratio.high:.5f}")
    parts += [text.counted(ratio.launches, "launch", "launches")] if ratio.launches else []
    return ", ".join(parts)


def lines(table: Table, every: bool = False) -> Iterator[str]:
    """Counts, the rows that are notable, or all of a short table, what else is said of them."""
    every = every or len(table.rows) <= SHORT
    yield f"{table.title}: {counted(table)}"
    yield from (line(row) for row in table.rows if every or row.notable)
    yield from () if every else left_out(table.rows)
    yield from table.notes
    yield from (
        f"control {ratio.subject}: {ratio.verdict}: {ratio.reason}" for ratio in table.controls
    )
    yield from table.conditions
    yield from [f"evidence: {table.folder}"] if table.folder else []


def left_out(rows: Iterable[Row]) -> Iterator[str]:
    """How many rows are left out for each reason, and by name the one of a reason of its own."""
    by_reason: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.kind == LEFT_OUT:
            by_reason.setdefault((row.verdict, row.reason, row.remedy), []).append(row)
    reasons = sorted(by_reason.values(), key=len, reverse=True)
    for first, *others in reasons[:MOST_REASONS]:
        yield f"{len(others) + 1} {first.verdict}: {why(first)}" if others else line(first)
    if more := reasons[MOST_REASONS:]:
        rest = sum(map(len, more))
        yield f"{rest} {more[0][0].verdict} for {text.counted(len(more), 'other reason')}"


def explained(rows: Iterable[Row]) -> Iterator[str]:
    """Every step from what was measured to the verdict."""
    for row in rows:
        yield f"{row.subject}: {row.verdict}"
        yield from (f"  {step}" for step in row.steps())


def rows_named(table: Table, part: str) -> list[Row]:
    """The rows of which this is a part of group/subject; an error where there is none."""
    return matching(table.rows, name_of, part)


def name_of(row: Row) -> str:
    """Its group/subject."""
    own = row.subject.startswith(f"{row.group}/") or not row.group
    return row.subject if own else f"{row.group}/{row.subject}"


def as_json(table: Table) -> dict[str, Any]:
    """Everything, for programs; what is unknown is null."""
    return {
        **table.data,
        **({"evidence": table.folder} if table.folder else {}),
        "controls": [
            {"name": one.subject, "state": one.verdict, "said": one.reason, **one.data()}
            for one in table.controls
        ],
        "rows": [_row_data(row) for row in table.rows],
        "exit_code": table.exit_code,
    }


def _row_data(row: Row) -> dict[str, Any]:
    """Its own keys before those of its question."""
    ratio, effect = row.estimate, row.smallest_effect
    return {
        "question": row.question,
        "subject": row.subject,
        "kind": row.kind,
        "estimate": ratio and {"value": ratio.value, "low": ratio.low, "high": ratio.high},
        "limit": row.limit,
        "shown": {"base": row.base, "head": row.head},
        "verdict": row.verdict,
        "reason": row.reason,
        "remedy": row.remedy,
        "smallest_effect": effect if effect is not None and math.isfinite(effect) else None,
        **row.data(),
    }


def markdown(table: Table) -> Iterator[str]:
    """A comment for a pull request: the worst mark and counts, notes, the notable rows; the others
    and the conditions are folded."""
    worst = next((kind for kind in MARKS if any(row.kind == kind for row in table.rows)), LEFT_OUT)
    yield f"**{table.name}: {MARKS[worst]} {counted(table)}** ({markup.code(table.title)})"
    yield from ("", *_markdown_rows([row for row in table.rows if row.notable]))
    rest = [row for row in table.rows if not row.notable]
    bad = [
        f"control {control.subject} {control.verdict}: {control.reason}"
        for control in table.controls
        if control.kind != PASSED
    ]
    if notes := [*left_out(rest), *table.notes, *bad]:
        yield from (*(f"- {markup.code(note)}" for note in notes), "")
    if rest:
        rows = text.counted(len(rest), "row")
        yield from (f"<details><summary>{rows} more</summary>", "", *_markdown_rows(rest))
        yield from ("</details>", "")
    if table.conditions:
        yield from ("<details><summary>Thresholds and conditions</summary>", "")
        yield from (
            *(f"- {markup.code(condition)}" for condition in table.conditions),
            "",
            "</details>",
        )


def _markdown_rows(rows: Sequence[Row]) -> Iterator[str]:
    head = ("", "row", "base", "head", "estimate", "reason")
    cells = [
        (
            f"{MARKS[row.kind]} {row.verdict}",
            markup.code(row.subject),
            row.base or NONE,
            row.head or NONE,
            figures(row) or NONE,
            markup.code(why(row)) if why(row) else "",
        )
        for row in rows[:MOST_ROWS]
    ]
    yield from markup.table(head, cells)
    if len(rows) > MOST_ROWS:
        yield from (f"And {len(rows) - MOST_ROWS} more.", "")


def _seen(row: Row) -> str:
    """The smallest effect that would have been seen."""
    effect = row.smallest_effect
    if effect is None or not math.isfinite(effect):
        return ""
    only = "only " if row.kind == OPEN else ""
    return f"{only}changes of {at_least(effect)} would have been seen"


def github(table: Table) -> Iterator[str]:
    """Workflow commands: errors for what fails, warnings for what is open and notable."""
    for control in table.controls:
        if control.kind != PASSED:
            yield _command(control, f"control {control.subject}", control.reason)
    for row in table.rows:
        if row.kind in (BROKEN, FAILED) or (row.kind == OPEN and row.notable):
            yield _command(row, row.verdict, line(row))


def _command(row: Row, title: str, words: str) -> str:
    level = "warning" if row.kind == OPEN else "error"
    title = _escaped(f"gpulift {title}").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_escaped(words)}"


def _escaped(words: str) -> str:
    return "%0A".join(visible(part).replace("%", "%25") for part in words.split("\n"))


def junit(*tables: Table) -> str:
    """A suite for each: several stand in one element."""
    suites = list(map(_suite, tables))
    root = suites[0]
    if len(suites) > 1:
        (root := ET.Element("testsuites")).extend(suites)
    ET.indent(tree := ET.ElementTree(root))
    content = BytesIO()
    tree.write(content, encoding="utf-8", xml_declaration=True)
    return content.getvalue().decode()


def _suite(table: Table) -> ET.Element:
    """Texts among the further keys are properties, then a test case per row and control. What is
    open is a failure, which a skipped test would hide, but for rows that are not notable, and where
    it is so little that the exit code says nothing of it."""
    suite = ET.Element("testsuite", name=_xml(table.name))
    properties = ET.SubElement(suite, "properties")
    for key, value in table.data.items():
        if value and isinstance(value, str):
            ET.SubElement(properties, "property", name=key, value=_xml(value))
    controls = f"{table.name.removeprefix('gpulift ')}.controls"
    for control in table.controls:
        kind = {PASSED: "", FAILED: "error"}.get(control.kind, "failure")
        _junit_case(suite, (controls, control.subject), control, kind, control.reason)
    for row in table.rows:
        name = (row.group.replace("/", "."), row.subject.removeprefix(f"{row.group}/"))
        kind = JUNIT_KINDS.get(row.kind, "")
        usual = row.kind == OPEN and not (row.notable and table.exit_code)
        _junit_case(suite, name, row, "skipped" if usual else kind, line(row))
    suite.set("tests", str(len(suite) - 1))
    for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(list(suite.iter(kind)))))
    return suite


def _junit_case(suite: ET.Element, name: tuple[str, str], row: Row, kind: str, words: str) -> None:
    case = ET.SubElement(suite, "testcase", classname=_xml(name[0]), name=_xml(name[1]))
    if not kind:
        ET.SubElement(case, "system-out").text = _xml(words)
        return
    element = ET.SubElement(case, kind, type=row.verdict, message=_xml(words))
    element.text = _xml("\n".join(row.steps()))


def _xml(words: str) -> str:
    """What XML 1.0 cannot hold, and what a terminal would obey, as its escape."""
    return "\n".join(map(visible, words.split("\n")))


def bencher(table: Table) -> str:
    """Bencher's metric format, bencher.dev/docs/reference/bencher-metric-format: of each row that
    is measured in a unit a value with its interval; seconds in nanoseconds, as it wants."""
    made: dict[str, dict[str, dict[str, float]]] = {}
    for row in table.rows:
        if (measured := row.measured) is None:
            continue
        ratio = measured.estimate.scaled(1e9 if measured.unit == "s" else 1.0)
        ends = {"value": ratio.value, "lower_value": ratio.low, "upper_value": ratio.high}
        known = {name: end for name, end in ends.items() if end is not None}
        made[row.subject] = {LATENCY if measured.unit == "s" else measured.unit or MEASURE: known}
    return json.dumps(made, indent=2, allow_nan=False)


def _joined(form: Callable[[Table], Iterable[str]], table: Table) -> str:
    return "\n".join(map(visible, form(table)))


FORMS: Mapping[str, Callable[[Table], str]] = {
    "lines": partial(_joined, lines),
    "json": lambda table: json.dumps(as_json(table), indent=2, allow_nan=False),
    "markdown": partial(_joined, markdown),
    "github": partial(_joined, github),
    "junit": junit,
    "bmf": bencher,
}


@dataclass(frozen=True)
class Output:
    """A form, and the file that it is written to instead of stdout."""

    form: str
    file: Path | None = None


def outputs(given: Sequence[str], explained: str | None = None) -> list[Output]:
    """What `--format FORM[=FILE]` asks for. Lines stand on stdout unless another form does, beside
    which GitHub's commands may stand. Refuses a file of another's, and what cannot be explained."""
    made = []
    for word in given:
        form, equals, file = word.partition("=")
        if form not in FORMS:
            raise GpuliftError(f"--format knows {', '.join(FORMS)}, not {form!r}")
        if equals and not file:
            raise GpuliftError(f"--format {word}: names no file")
        made.append(Output(form, named(file) if equals else None))
        if equals and made[-1].file in (output.file for output in made[:-1]):
            raise GpuliftError(f"--format {word}: another form goes to this file, too")
        if form == "junit" and made[-1].file is not None:
            require_free(made[-1].file, None, JUNIT_BEGINNING)
    shown = [output.form for output in made if output.file is None]
    alone = [form for form in shown if form != "github"] or ["lines"]
    if len(alone) > 1 or (alone[0] not in ("lines", "markdown") and len(shown) > 1):
        raise GpuliftError(f"--format {alone[0]} stands alone: give the others a file each, =FILE")
    if explained is not None:
        require_part(explained)
        if alone[0] != "lines":
            raise GpuliftError("--explain is for lines: JSON has every step of every verdict")
    return made if alone[0] in shown else [Output("lines"), *made]


def show(table: Table, asked: Sequence[Output], every: bool = False) -> None:
    """In the forms that are asked for; of lines `every` row."""
    for output in asked:
        made = partial(_joined, partial(lines, every=every))
        content = (made if output.form == "lines" else FORMS[output.form])(table)
        if output.file is not None:
            write_whole(content + "\n", output.file)
        elif content:
            typer.echo(content)
