"""The checks of runs as JUnit XML, for CI servers: a suite per run, a test case per check."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from gpulift.analysis import conditions
from gpulift.analysis.analyse import JudgedRun
from gpulift.analysis.machine.checks import basis
from gpulift.analysis.machine.explain import explanation
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, SKIPPED, CheckResult
from gpulift.analysis.summary import Summary
from gpulift.ground.text import visible

# JUnit has no word for what could not be told: as in the file of a gate, that is skipped.
ELEMENTS = {FAIL: "failure", INCONCLUSIVE: "skipped", SKIPPED: "skipped"}


def junit_bytes(runs: Sequence[JudgedRun]) -> bytes:
    """The document, UTF-8. Whatever XML cannot hold is written as its escape."""
    root = ET.Element("testsuites", name="gpulift qualify")
    totals = dict.fromkeys(("tests", "failures", "errors"), 0)  # all that the schema has here
    for run in runs:
        suite = _suite(root, run)
        for name in totals:
            totals[name] += int(suite.attrib[name])
    root.attrib.update({name: str(count) for name, count in totals.items()})
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _suite(root: ET.Element, run: JudgedRun) -> ET.Element:
    summary, checks = run.summary, run.checks
    said = [ELEMENTS.get(check.verdict) for check in checks]
    suite = ET.SubElement(
        root,
        "testsuite",
        name=visible(summary.run.name),
        tests=str(len(checks)),
        failures=str(said.count("failure")),
        errors="0",
        skipped=str(said.count("skipped")),
        timestamp=visible(min(record.began_at for record in summary.run.records)),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _conditions(summary).items():
        if not value:
            continue
        ET.SubElement(properties, "property", name=name, value=visible(value))
    for check in checks:
        _case(suite, check)
    return suite


def _conditions(summary: Summary) -> dict[str, str]:
    first = summary.run.records[0]
    return {
        "machine": summary.run.machine,
        "card": conditions.card(first.context),
        "software": conditions.software(first.context),
        "commit": conditions.commit(first.context.build),
        "method": first.method,
        "basis": basis(summary),
        **{f"mark {number}": mark for number, mark in enumerate(summary.marks, start=1)},
    }


def _case(suite: ET.Element, check: CheckResult) -> None:
    group, _, name = check.id.partition("/")
    case = ET.SubElement(
        suite, "testcase", classname=f"qualify.{visible(group)}", name=visible(name or group)
    )
    text = "\n".join(visible(line) for line in explanation(check).splitlines())
    kind = ELEMENTS.get(check.verdict)
    if kind is None:
        ET.SubElement(case, "system-out").text = text
        return
    why = "; ".join(part for part in (check.reason, check.remedy) if part)
    message = visible(f"{check.verdict}: {why}")
    found = ET.SubElement(case, kind, type=check.verdict, message=message)
    found.text = text
