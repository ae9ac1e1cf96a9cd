"""Prints which tests took longest, of the steps that are named, from files of a build folder."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

SHOWN = 10


def tests(build: Path, step: str) -> Iterator[tuple[float, str]]:
    """Seconds and name of each test of a step, of which pytest or ctest wrote a JUnit file."""
    file = build / f"tests_{step}.xml"
    if not file.exists():
        return
    for case in ET.parse(file).iter("testcase"):
        names = dict.fromkeys((case.get("classname", ""), case.get("name", "")))
        yield float(case.get("time", 0)), f"{step} {'.'.join(filter(None, names))}"


def main(build: str, *steps: str) -> None:
    """The list, longest first."""
    every = sorted(
        (test for step in steps for test in tests(Path(build), step)), reverse=True
    )
    print(f"\nlongest of {len(every)} tests:")
    for seconds, name in every[:SHOWN]:
        print(f"  {seconds:.1f} s  {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
