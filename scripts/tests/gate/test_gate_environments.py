"""`gate --base-python ENV --head-python ENV`: real interpreters, and a fake gpulift-bench."""

from __future__ import annotations

import json
import math
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpulift.engine import machine
from gpulift.gate.asked import pythons_of
from gpulift.gate.environments import find_environment
from gpulift.ground.errors import GpuliftError
from tests.fake_gate import FakeBench, Json, make_build, technique
from tests.gate.test_gate_command import run

pytestmark = pytest.mark.world

WORKER = Path(__file__).parents[3] / "core" / "python" / "gpulift_worker.py"
OPTIMIZER = "optimizer/foreach"


def not_quick(name: str, arms: Sequence[str], python: Sequence[str]) -> Json:
    """A manifest with Python arms."""
    case = {"id": "tensors:few", "quick": False, "regime": "burst"}
    return {**technique(name, arms), "python": python, "cases": [case]}


TECHNIQUES = (
    not_quick(OPTIMIZER, ["loop", "fused"], ["loop", "fused"]),
    not_quick("mixed/arms", ["native", "eager"], ["eager"]),
    technique("allocator/host_malloc"),
)


@dataclass
class FakePythons(FakeBench):
    """A gpulift-bench whose Python arms are as slow as their environment; notes the sides."""

    slowness: dict[str, float] = field(default_factory=dict)  # log of the time, by folder
    sides: list[tuple[str, str]] = field(default_factory=list)  # base and head of each call

    def measure(self, bench: Path, flags: Sequence[str], limit_s: float = math.inf) -> int:
        """Notes the interpreters of a duet and gives the head its slowness."""
        named = dict(flag.split("=", 1) for flag in flags if "python=" in flag)
        base, head = (Path(named[option]).parts[-3] for option in ("--base-python", "--python"))
        self.sides.append((base, head))
        self.bias = self.slowness.get(head, 0.0) - self.slowness.get(base, 0.0)
        return super().measure(bench, flags, limit_s)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePythons:
    made = FakePythons()
    made.install_in(tmp_path, monkeypatch)
    modules = make_build(tmp_path / "build", TECHNIQUES) / "modules"
    for file in WORKER.parent.glob("*.py"):
        shutil.copy(file, modules)
    (modules / "optimizer.foreach.py").write_text("import made_up\n")
    (modules / "mixed.arms.py").write_text("")
    environment("old", "2.10.0")
    environment("new", "2.11.0")
    return made


def environment(name: str, version: str) -> Path:
    """A folder with bin/python in which the package made_up has this version."""
    python = script(
        Path(name) / "bin" / "python", f'PYTHONPATH="{name}" exec {sys.executable} "$@"'
    )
    (Path(name) / "made_up.py").write_text(f"__version__ = {version!r}\n")
    return python


def script(file: Path, body: str) -> Path:
    """A program of the shell."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return file


def gate(*more: str) -> int:
    return run("--base-python", "old", "--head-python", "new", "--out", "evidence", *more)


def test_equal_environments_are_green_and_all_cases_with_python_arms_are_compared(
    bench: FakePythons, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate("--json") == 0
    said = capsys.readouterr()
    rows = {row["technique"] + "/" + row["arm"] for row in json.loads(said.out)["rows"]}
    assert rows == {f"{OPTIMIZER}/loop", f"{OPTIMIZER}/fused", "mixed/arms/eager"}
    assert "techniques without Python arms, left out: 1" in said.err


def test_a_slower_environment_is_a_regression_and_both_are_named(
    bench: FakePythons, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.slowness["new"] = 0.02
    assert gate(OPTIMIZER) == 1
    said = capsys.readouterr().out
    assert said.count("regressed    optimizer/foreach/tensors:few") == 2
    python = f"Python {platform.python_version()}"
    assert f"base {python}, made_up 2.10.0" in said
    assert f"head {python}, made_up 2.11.0" in said


def test_the_controls_stay_within_one_environment(bench: FakePythons) -> None:
    bench.slowness["new"] = 0.02
    assert gate(OPTIMIZER) == 1
    assert ("old", "new") in bench.sides
    assert {("old", "old"), ("new", "new")} <= set(bench.sides)
    assert ("new", "old") not in bench.sides


def test_evidence_holds_no_path(bench: FakePythons, tmp_path: Path) -> None:
    assert gate(OPTIMIZER) == 0
    assert str(tmp_path) not in Path("evidence/gate.json").read_text()


def test_evidence_is_replayed(bench: FakePythons, capsys: pytest.CaptureFixture[str]) -> None:
    bench.slowness["new"] = 0.02
    assert gate(OPTIMIZER) == 1
    calls = len(bench.calls)
    assert run("--replay", "evidence") == 1
    assert len(bench.calls) == calls


def test_the_folder_of_evidence_is_named_by_both(bench: FakePythons) -> None:
    assert run("--base-python", "old", "--head-python", "new", "mixed") == 0
    (folder,) = Path(".gate/runs").iterdir()
    stem = f"python-{platform.python_version()}"
    assert folder.name.count(f"-{stem}") == 2


def test_a_package_that_is_missing_is_exit_2_before_anything_runs(
    bench: FakePythons, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new/made_up.py").unlink()
    assert gate() == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "--head-python new: optimizer/foreach cannot run: the Python package made_up is not"
        " installed; install what it needs, or leave the technique out with --filter"
        ' "-optimizer/foreach"'
    )
    assert bench.calls == []


def test_what_is_left_out_needs_no_package(bench: FakePythons) -> None:
    Path("new/made_up.py").unlink()
    assert gate("--", "-optimizer/foreach") == 0


def test_a_build_without_python_arms_is_exit_2(
    bench: FakePythons, capsys: pytest.CaptureFixture[str]
) -> None:
    make_build(Path("build"), (technique("allocator/host_malloc"),))
    assert gate() == 2
    assert "no technique of this build has Python arms" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--base-python", "old"), "name both environments"),
        (("--head-python", "new"), "name both environments"),
        (("--base", "x", "--base-python", "old", "--head-python", "new"), "on one build"),
        (("--head", "x", "--base-python", "old", "--head-python", "new"), "on one build"),
        (("--replay", "x", "--base-python", "old", "--head-python", "new"), "--base-python"),
    ],
)
def test_options_that_do_not_fit_are_exit_2(
    bench: FakePythons,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    assert run(*arguments) == 2
    assert expected in capsys.readouterr().err


def test_without_environments_there_is_nothing_to_ask() -> None:
    assert pythons_of("main", None, None, None) is None


@pytest.mark.parametrize("named", ["none", "empty", "plain.txt"])
def test_what_is_no_interpreter_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("plain.txt").write_text("")
    with pytest.raises(GpuliftError, match=f"--base-python {named}: is neither an interpreter"):
        machine.find_interpreter("--base-python", named)


def test_a_link_to_an_interpreter_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert machine.find_interpreter("--base-python", str(link)) == link


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo 'no such library' >&2; exit 3", "is no Python: no such library"),
        ("exit 3", "is no Python: exit code 3"),
        ("echo hello", "is no Python: exit code 0"),
        ("echo Python 2 7", "is Python 2.7: name one of 3.10 or later"),
        ("echo Python 3 8", "is Python 3.8: name one of 3.10 or later"),
        ('[ "$1" = -c ] && echo Python 3 11 || exit 3', "exit code 3"),
        ('[ "$1" = -c ] && echo Python 3 11 || echo x', "not a line of JSON"),
    ],
)
def test_what_does_not_start_as_python_says_why(tmp_path: Path, body: str, expected: str) -> None:
    python = script(tmp_path / "python", body)
    with pytest.raises(GpuliftError, match=f"--head-python {python}: {expected}") as caught:
        find_environment("--head-python", str(python), WORKER, [])
    assert caught.value.exit_code == 2


def test_a_file_that_the_system_cannot_run_says_why(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_bytes(b"\x7fELF nonsense")
    python.chmod(0o755)
    with pytest.raises(GpuliftError, match="cannot be started"):
        find_environment("--head-python", str(python), WORKER, [])
