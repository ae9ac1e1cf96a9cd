"""Who may import whom: rooms stand on the ones before them, and some of them behind a wall."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from tests.conftest import CHECKOUT

PACKAGE = CHECKOUT / "scripts" / "gpulift"
ROOMS = (  # each may stand on those before it: what measures, records, analyses, shows
    *("ground", "records", "callbacks", "engine", "ranks", "verdicts", "gate", "judge", "analysis"),
    *("report", "exchange", "advise", "watch", "fleet", "commands", "cli", "__main__"),
)
WALLS = {  # products of their own: all that they may stand on
    "gate": {"ground", "records", "engine", "verdicts"},
    "judge": {"ground", "engine", "verdicts", "gate"},
    "watch": {"ground", "records", "engine"},
    "ranks": {"ground", "records", "engine"},
    "advise": {"ground", "records", "verdicts", "analysis"},
}
DOORS = {  # what may use them
    "gate": {"analysis", "commands", "judge", "report"},
    "judge": {"commands"},
    "watch": {"commands"},
    "fleet": {"commands"},
    "ranks": {"commands", "fleet"},
    "advise": {"commands"},
    "report": {"commands", "cli", "fleet"},
}


@cache
def imports() -> tuple[tuple[str, str, str], ...]:
    """Each file of the package, its room, and another room that it imports from."""
    return tuple(_imports())


def _imports() -> Iterator[tuple[str, str, str]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE)
        room = name.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpulift"):
                modules = [node.module] if node.module != "gpulift" else node.names
                for module in (getattr(alias, "name", alias) for alias in modules):
                    target = str(module).removeprefix("gpulift.").partition(".")[0]
                    if target != room:
                        yield str(name), room, target


def test_every_room_is_known() -> None:
    rooms = {file.relative_to(PACKAGE).parts[0] for file in PACKAGE.rglob("*.py")}
    assert {room.removesuffix(".py") for room in rooms} - {"__init__"} == set(ROOMS)


def test_nothing_runs_back_up() -> None:
    for file, room, target in imports():
        assert ROOMS.index(target) < ROOMS.index(room), f"{file} imports {target}"


@pytest.mark.parametrize("room", WALLS)
def test_what_stands_behind_a_wall(room: str) -> None:
    for file, importer, target in imports():
        assert importer != room or target in WALLS[room], f"{file} imports {target}"


@pytest.mark.parametrize("room", DOORS)
def test_who_uses_what_stands_behind_a_wall(room: str) -> None:
    users = {importer for _, importer, target in imports() if target == room}
    assert users <= DOORS[room]
