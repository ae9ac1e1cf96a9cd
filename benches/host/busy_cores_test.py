"""host/busy_cores: processes are busy in windows alone, and none outlives the arm."""

from __future__ import annotations

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

from technique_script import load, manifest

SCRIPT = Path(__file__).with_name("busy_cores.py")

TIMEOUT_S = 20.0


busy_cores = load(__file__)
MANIFEST = manifest(__file__)


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


@pytest.fixture(name="neighbours")
def two_neighbours() -> Iterator[Any]:
    """Two, ended behind the test."""
    neighbours = busy_cores.Neighbours(2, 0)
    yield neighbours
    end(neighbours)


def end(neighbours: Any) -> None:
    """All of them, waited for."""
    for process in neighbours._processes:
        process.kill()
        process.wait()


def test_they_are_busy_only_when_told_to(neighbours: Any) -> None:
    pids = neighbours.pids()
    for _ in range(2):
        assert [state_of(pid) for pid in pids] == ["T", "T"]
        before = sum(map(ticks_of, pids))
        neighbours.resume()
        neighbours.resume()
        await_true(lambda least=before + 2: sum(map(ticks_of, pids)) >= least)  # type: ignore[misc]
        neighbours.pause()
        neighbours.pause()


def test_one_that_ended_is_found(neighbours: Any) -> None:
    neighbours.resume()
    os.kill(neighbours.pids()[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match="a process that keeps a core busy ended"):
        neighbours.pause()


def test_they_die_with_their_parent_even_while_stopped() -> None:
    script = (
        "import busy_cores, os, sys\n"
        "print(*busy_cores.Neighbours(2, 0).pids(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = os.pathsep.join([str(SCRIPT.parent), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.communicate()
    await_true(lambda: all(state_of(pid) in ("", "Z") for pid in pids))


def test_the_niced_are_nice() -> None:
    neighbours = busy_cores.Neighbours(1, busy_cores.NICE["niced_100"])
    found = os.getpriority(os.PRIO_PROCESS, neighbours.pids()[0])
    end(neighbours)
    assert found == 19


def test_arms_have_the_same_loss_and_their_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(busy_cores, "cores", lambda: 3)
    made: list[Any] = []

    class Kept(busy_cores.Neighbours):  # type: ignore[misc, name-defined]
        def __init__(self, count: int, nice: int) -> None:
            super().__init__(count, nice)
            made.append(self)

    monkeypatch.setattr(busy_cores, "Neighbours", Kept)
    losses, counts = [], []
    for name in MANIFEST["arms"]:
        arm = busy_cores.make(name, {"bound": "launches"}, 7, None)
        arm.step()
        arm.rest()
        assert [state_of(pid) for pid in made[-1].pids()] == ["T"] * len(made[-1].pids())
        losses.append(arm.value())
        counts.append(arm.notes["busy_processes"])
        end(made[-1])
    assert counts == ["0", "1", "2", "3", "3"]
    assert losses == pytest.approx([losses[0]] * 5, rel=MANIFEST["check"]["tolerance"])
    assert losses[0] > 0


def test_every_arm_and_case_is_known() -> None:
    assert list(busy_cores.SHARES) == MANIFEST["arms"]
    assert [case["point"]["bound"] for case in MANIFEST["cases"]] == list(busy_cores.MODELS)
