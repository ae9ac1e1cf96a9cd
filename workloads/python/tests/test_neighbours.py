"""Neighbours are busy when told to alone, and none outlives whoever made them."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

TIMEOUT_S = 20.0
IN_A_PROCESS = """
import sys
from gpulift_work.neighbours import Neighbours
print(*Neighbours(2, lambda _: lambda: None).pids, flush=True)
sys.stdin.read()
"""


def state_of(pid: int) -> str:
    """R where it runs or could, T where it is stopped; empty where there is none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[0]


def ticks_of(pid: int) -> int:
    """Of the processor, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def await_true(holds: Callable[[], bool]) -> None:
    """Fails where it does not come true."""
    until_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def spinning(_: int) -> Callable[[], object]:
    """Work that takes next to no time."""
    return lambda: None


@pytest.fixture(name="module")
def neighbours_module() -> Any:
    """The module that arms import."""
    return importlib.import_module("gpulift_work.neighbours")


@pytest.fixture(name="neighbours")
def two_neighbours(module: Any) -> Iterator[Any]:
    """Nice ones, ended behind the test."""
    made = module.Neighbours(2, spinning, nice=7)
    yield made
    made.end()


def test_they_are_busy_only_when_told_to(neighbours: Any) -> None:
    pids = neighbours.pids
    for _ in range(2):
        assert [state_of(pid) for pid in pids] == ["T", "T"]
        before = sum(map(ticks_of, pids))
        neighbours.resume()
        neighbours.resume()
        await_true(lambda least=before + 2: sum(map(ticks_of, pids)) >= least)  # type: ignore[misc]
        neighbours.pause()
        neighbours.pause()
    nicer = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [nicer, nicer]


def test_one_that_ended_is_found(neighbours: Any) -> None:
    neighbours.resume()
    os.kill(neighbours.pids[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a process that keeps a core busy ended"):
        neighbours.pause()


def test_work_that_cannot_be_made_is_found(module: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def refuse(number: int) -> Any:
        raise ValueError(f"no work {number}")

    with pytest.raises(RuntimeError, match="a process that keeps a core busy ended"):
        module.Neighbours(1, refuse)
    assert "no work 0" in capfd.readouterr().err


@pytest.mark.parametrize("killed", [True, False])
def test_they_end_with_their_parent_even_while_stopped(killed: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    if killed:
        parent.kill()
    parent.communicate(timeout=TIMEOUT_S)
    await_true(lambda: all(state_of(pid) in ("", "Z") for pid in pids))
