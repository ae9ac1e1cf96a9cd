"""What is otherwise where a wheel was installed: nothing is written where its files lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.engine import doctor, machine, techniques
from gpulift.gate import commands
from gpulift.gate.asked import Asked
from gpulift.ground import place
from gpulift.ground.errors import GpuliftError
from tests.conftest import CHECKOUT


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder of who has installed one."""
    monkeypatch.setattr(place, "INSTALLED", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_checkout_keeps_its_runs(root: Path) -> None:
    assert place.FILES == CHECKOUT
    assert not place.INSTALLED
    assert machine.own_results() == machine.results_folder() == root / "results"
    assert machine.searched() == [root / "results"]
    assert machine.own_folder() == root


def test_runs_go_below_the_current_folder(root: Path, installed: Path) -> None:
    assert machine.own_results().absolute() == installed / "gpulift-results"
    assert machine.own_folder().absolute() == installed
    assert machine.searched() == [root / "results"]
    machine.own_results().mkdir()
    assert machine.searched() == [root / "results", place.RESULTS]


def test_what_needs_all_records_asks_for_them(installed: Path) -> None:
    with pytest.raises(GpuliftError, match="in a checkout of gpulift: name RESULTS"):
        machine.all_records()


def test_techniques_of_ones_own_go_to_the_cache(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(installed / "cache"))
    modules = techniques.modules_of(Path("/build"), installed)
    assert modules.parent == installed / "cache" / "gpulift" / "techniques"


def test_what_needs_a_compiler_needs_a_checkout(root: Path, installed: Path) -> None:
    (installed / "mine.cu").touch()
    with pytest.raises(GpuliftError, match=r"mine\.cu: C\+\+ and CUDA need a checkout"):
        techniques.prepare([installed], print)


def test_doctor_asks_for_no_compiler(installed: Path, root: Path) -> None:
    bench = machine.find_bench()
    found = {one.what: one for one in doctor.examine(machine.describe(bench), [])}
    assert "CUDA compiler" not in found
    assert "torch" in found
    assert found["results"].found == str(installed)


def test_a_gate_of_a_script_calls_the_same_program(installed: Path) -> None:
    job = commands._with_tool(Asked(0.0, script="my_step.py"), 1.0, "python")
    assert job.command[2:4] == ("bench", "my_step.py")
