"""The first look at a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Sandbox

import build
import environment
import first_look
import packages

ROWS = {
    "benchmarks": [
        {"name": "ceiling/host_memory/size:4xLLC/read/iterations:1/manual_time", "bytes_per_second": 41.26e9},
        {"name": "ceiling/host_memory/size:4xLLC/copy/iterations:1/manual_time", "bytes_per_second": 38e9},
    ]
}


@pytest.fixture
def machine(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """One with a CMake and ninja, and a gpulift-bench that prints the rows."""
    sandbox.fake("cmake", '[[ $1 != --version ]] || { echo "cmake version 4.0"; exit; }; echo "cmake $*" >> "$LOG"')
    sandbox.fake("ninja", 'echo "ninja ${*: -1}" >> "$LOG"')
    (sandbox.root / "build" / "modules").mkdir(parents=True)
    sandbox.script(sandbox.root / "build" / "gpulift-bench", f"echo '{json.dumps(ROWS)}'")
    monkeypatch.setenv("PATH", str(sandbox.bin))
    return sandbox


def look(machine: Sandbox) -> int:
    """A first look in this checkout."""
    return first_look.main(machine.root, machine.root / "build")


def test_it_says_what_was_measured(machine: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(machine) == 0
    assert "one launch: memory of all cores: read 41.3 GB/s, copy 38.0 GB/s\n" in capsys.readouterr().err
    configured, built = machine.lines()
    assert "-DGPULIFT_CUDA=OFF" in configured
    assert built == "ninja manifest.ceiling.host_memory"
    assert not (machine.root / "build" / "modules").exists(), "the build with CUDA makes its own"


def test_a_build_or_a_program_that_fails_is_a_line(machine: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    machine.script(machine.root / "build" / "gpulift-bench", "echo broken >&2; exit 70")
    assert look(machine) == 1
    assert capsys.readouterr().err.endswith("gpulift: gpulift-bench ended with code 70: broken\n")
    machine.fake("ninja", "echo 'a.cpp: error: x'; exit 1")
    assert look(machine) == 1
    assert "a.cpp: error: x" in capsys.readouterr().err


def interrupted(*_: object) -> Path:
    """What Ctrl-C does to Python."""
    raise KeyboardInterrupt


def test_an_interrupted_look_is_a_line_and_no_failure(
    machine: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.fake("ninja", "kill -INT $PPID; sleep 60")
    assert look(machine) == build.INTERRUPTED
    assert capsys.readouterr().err.endswith("the build was interrupted; the next call goes on where it ended\n")
    monkeypatch.setattr(first_look, "tools", interrupted)
    assert look(machine) == build.INTERRUPTED
    assert capsys.readouterr().err.endswith("gpulift: the first look was interrupted\n")


def test_tools_that_are_missing_come_from_the_lock(machine: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.bin / "ninja").unlink()
    installed: list[str] = []
    monkeypatch.setattr(environment, "make_venv", lambda folder: None)
    monkeypatch.setattr(packages, "install", lambda python, lock, scratch: installed.append(lock))
    venv = Path(machine.root, "first")
    assert first_look.tools(venv) == venv / "bin"
    assert [name for name, _ in packages.locked_blocks(installed[0])] == ["cmake", "ninja"]
