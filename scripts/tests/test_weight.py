"""The weight of the project, which may only fall: `weight.toml` has the ceilings.

Lines of code and of tests by room, in files that git tracks; code that is longer than a file or a
function should be is listed by name.
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest

from gpulift.ground import toml
from tests.conftest import CHECKOUT, DATA

LONG_FILE, LONG_FUNCTION = 400, 60  # lines; functions of Python
SOURCES = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py", ".sh"}
TEMPLATES = {".cmake", ".css", ".html", ".in", ".j2", ".js", ".toml", ".tsv"}
SHARED = ("core", "benches", "workloads")  # rooms with one ceiling together
CEILINGS = toml.parsed(DATA / "weight.toml")


def is_test(file: PurePosixPath) -> bool:
    beside = file.name.startswith("test_") or "_test." in file.name or file.name == "conftest.py"
    return beside or "tests" in file.parts[:-1]


def room_of(file: PurePosixPath) -> str:
    """The top folder; in scripts, which hold the package, the one two below."""
    if file.parts[0] in SHARED:
        return " + ".join(SHARED)
    return "/".join(file.parts[: 3 if file.parts[0] == "scripts" else 1][: len(file.parts) - 1])


@cache
def sources() -> dict[PurePosixPath, str]:
    """The text of each file that is code or a test; records are none."""
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, check=True)
    files = (PurePosixPath(name) for name in listed.stdout.decode().splitlines())
    return {
        file: (CHECKOUT / file).read_text(encoding="utf-8")
        for file in files
        if file.parts[0] != "results" and (file.suffix in SOURCES | TEMPLATES or _is_script(file))
    }


def _is_script(file: PurePosixPath) -> bool:
    path = CHECKOUT / file
    return not file.suffix and path.is_file() and path.read_bytes().startswith(b"#!")


def weights(*, tests: bool) -> dict[str, int]:
    lines: Counter[str] = Counter()
    for file, text in sources().items():
        if is_test(file) == tests:
            lines[room_of(file) or "."] += text.count("\n")
    return dict(lines)


@pytest.mark.parametrize("kind", ["code", "tests"])
def test_no_room_grows(kind: str) -> None:
    """A ceiling falls with its room, by the commit that lets it; where one must rise, the table
    says why."""
    ceilings = CEILINGS[kind]
    found = weights(tests=kind == "tests")
    above = {room: lines for room, lines in found.items() if lines > ceilings.get(room, 0)}
    assert not above, f"more {kind} than weight.toml allows, by room"
    assert ceilings.keys() == found.keys()


def long_functions() -> Iterator[str]:
    for file, text in sources().items():
        nodes = ast.walk(ast.parse(text)) if file.suffix == ".py" and not is_test(file) else ()
        for node in nodes:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if (node.end_lineno or 0) - node.lineno >= LONG_FUNCTION:
                yield f"{file}:{node.name}"


def test_long_files_and_functions_are_those_that_are_listed() -> None:
    """Who shortens one takes it off the list."""
    code = {file: text for file, text in sources().items() if not is_test(file)}
    long = (file for file, text in code.items() if text.count("\n") > LONG_FILE)
    assert sorted(str(one) for one in long if one.suffix != ".toml") == CEILINGS["long"]["files"]
    assert sorted(long_functions()) == CEILINGS["long"]["functions"]
