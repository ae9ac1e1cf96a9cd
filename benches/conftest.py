"""Runs an arm of a script on several ranks, as the engine does, up to its check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "python" / "testing"))

import rank_group

Hello = dict[str, Any]
Hellos = Callable[[Path, str, Mapping[str, "int | str"]], list[Hello]]


@pytest.fixture(name="hellos_of_ranks")
def ranks_of_an_arm() -> Hellos:
    """hellos_of_ranks(script, arm, point): what two ranks say after the arm's check."""

    def hellos(script: Path, arm: str, point: Mapping[str, int | str]) -> list[Hello]:
        with rank_group.RankGroup(script) as group:
            return group.hello(arm, point)

    return hellos


@pytest.fixture(name="altered")
def altered_script(tmp_path: Path) -> Callable[[Path, str], Path]:
    """altered(script, code): a script that runs the code over the module `technique` first."""
    return lambda script, code: rank_group.altered(tmp_path, script, code)
