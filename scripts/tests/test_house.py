"""Who may import whom: the gate is a product of its own behind a wall, and nothing runs back up."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.conftest import CHECKOUT

PACKAGE = CHECKOUT / "scripts" / "gpulift"
GROUND = {  # what the gate may stand on, beside itself and compare
    *("analysis", "arguments", "certificate", "commands", "compare", "decision", "entry", "errors"),
    *(
        "gate",
        "machine",
        "programs",
        "records",
        "registers",
        "runs",
        "stats",
        "steps",
        "terminal",
        "text",
    ),
    "citing.again",  # how the filter of an older gpulift-bench is written
}
DOORS = {  # what may use the gate
    *("checking.py", "cli.py", "techniques.py"),
    *("report/changes.py", "report/command.py", "report/error_rates.py"),
}
COMMANDS = {"__main__.py", "bench.py", "cli.py", "qualify/command.py"}


def imports() -> Iterator[tuple[str, str]]:
    """Each file of the package, and a module of the package that it imports."""
    for file in sorted(PACKAGE.rglob("*.py")):
        name = str(file.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "gpulift":
                yield from ((name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpulift."):
                yield name, (node.module or "").removeprefix("gpulift.")


def test_the_gate_stands_on_the_ground_and_compare_alone() -> None:
    for file, module in imports():
        if file.startswith("gate/"):
            assert {module, module.partition(".")[0]} & GROUND, f"{file} imports {module}"


def test_nothing_else_leans_on_the_gate() -> None:
    users = {file for file, module in imports() if module.partition(".")[0] == "gate"}
    assert {file for file in users if not file.startswith("gate/")} == DOORS


def test_reports_are_made_of_everything_and_nothing_is_made_of_them() -> None:
    users = {file for file, module in imports() if module.partition(".")[0] == "report"}
    assert {file for file in users if not file.startswith("report/")} <= COMMANDS
