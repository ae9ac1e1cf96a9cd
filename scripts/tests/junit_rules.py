"""What JUnit XML may hold, by the schema with which the xUnit plugin of Jenkins reads it
(junit-10.xsd of jenkinsci/xunit-plugin); other CI servers read the same elements."""

from __future__ import annotations

import xml.etree.ElementTree as ET

COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
OUTCOME = {"message", "type"}
# By element: attributes that must be there, attributes that may be there, and what it may hold.
RULES: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {
            "skipped",
            "time",
            "timestamp",
            "hostname",
            "id",
            "package",
            "file",
            "log",
            "url",
            "group",
        },
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": (
        {"name"},
        {"classname", "time", "group"},
        {"failure", "error", "skipped", "system-out", "system-err"},
    ),
    "failure": (set(), OUTCOME, set()),
    "error": (set(), OUTCOME, set()),
    "skipped": (set(), OUTCOME, set()),
    "system-out": (set(), set(), set()),
    "system-err": (set(), set(), set()),
}


def complaints(document: bytes) -> list[str]:
    """What a CI server would refuse, or count otherwise than it is said; nothing when all is well.

    Reading it shows that every character is one that XML can hold.
    """
    root = ET.fromstring(document)
    found = [] if root.tag in ("testsuites", "testsuite") else [f"the root is a {root.tag}"]
    for element in root.iter():
        must, may, inside = RULES.get(element.tag, (set(), set(), set()))
        given = set(element.attrib)
        found += [f"{element.tag} lacks {name}" for name in sorted(must - given)]
        found += [f"{element.tag} has {name}" for name in sorted(given - must - may)]
        found += [f"{element.tag} holds {one.tag}" for one in element if one.tag not in inside]
        if element.tag in ("testsuites", "testsuite"):
            found += _miscounts(element)
    return found


def _miscounts(suite: ET.Element) -> list[str]:
    cases = list(suite.iter("testcase"))
    counted = {
        name: sum(one.find(tag) is not None for one in cases) for name, tag in COUNTS.items()
    }
    names = [(one.get("classname"), one.get("name")) for one in cases]
    twice = len(names) - len(set(names)) if suite.tag == "testsuite" else 0
    found = [f"{twice} cases have the name of another"] if twice else []
    return found + [
        f"{suite.tag} says {name}={suite.get(name)}, which are {count}"
        for name, count in {"tests": len(cases), **counted}.items()
        if suite.get(name) not in (None, str(count))
    ]
