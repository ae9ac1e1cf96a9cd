"""host/thread_affinity: threads run where they were bound, and a neighbour is busy in windows
alone."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Failed, Skip  # noqa: E402
from technique_script import load  # noqa: E402

SCRIPT = Path(__file__).with_name("thread_affinity.py")

affinity = load(__file__)
IN_A_PROCESS = """
import json, os
import thread_affinity
arm = thread_affinity.make("one_each", {"model": "gpt_toy", "neighbour": "none"}, 7, None)
arm.step()
arm.value()
threads = thread_affinity.all_threads()
print(json.dumps([arm.metrics(), [list(os.sched_getaffinity(one)) for one in threads]]))
"""


def test_in_a_new_process_each_core_has_a_thread_of_its_own() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core")
    path = os.pathsep.join([str(SCRIPT.parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "GPULIFT_CORES": str(len(cores))}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    metrics, found = json.loads(done.stdout)
    assert metrics["threads_count"] == len(cores)
    assert all([core] in found for core in cores)


@pytest.mark.parametrize(
    ("arm", "places"),
    [
        ("unbound", {}),
        ("one_each", {11: 2, 12: 5, 13: 2}),
        ("one_core", {11: 2, 12: 2, 13: 2}),
    ],
)
def test_places_of_three_threads_on_two_cores(arm: str, places: dict[int, int]) -> None:
    assert affinity.places_of(arm, [11, 12, 13], [2, 5]) == places


def test_a_thread_that_may_run_elsewhere_fails() -> None:
    own = threading.get_native_id()
    cores = os.sched_getaffinity(own)
    if len(cores) < 2:
        pytest.skip("one core")
    core = min(cores)
    with pytest.raises(Failed, match=f"bound to core {core} may run on {len(cores)} cores"):
        affinity.require_places({own: core})
    affinity.bind({own: core})
    try:
        affinity.require_places({own: core})
    finally:
        os.sched_setaffinity(own, cores)


def test_a_thread_that_ran_elsewhere_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    monkeypatch.setattr(affinity, "last_core", lambda _: 4)
    with pytest.raises(Failed, match="bound to core 3 ran on 4"):
        affinity.require_places({threading.get_native_id(): 3})


def test_one_core_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "usable_cores", lambda: [0])
    with pytest.raises(Skip, match="there is one core"):
        affinity.make("one_each", {"model": "gpt_toy", "neighbour": "none"}, 7, None)


def state_of(pid: int) -> str:
    """R where it runs or could, T where it is stopped."""
    status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return status.rpartition(")")[2].split()[0]


@pytest.fixture(name="busy")
def neighbour() -> Any:
    """A neighbour on the first core, which ends with the test."""
    found = affinity.Neighbour(min(os.sched_getaffinity(0)))
    yield found
    with contextlib.suppress(ProcessLookupError, ChildProcessError):  # a test may have ended it
        os.kill(found.pid, 9)
        os.waitpid(found.pid, 0)


def test_the_neighbour_is_busy_on_its_core_between_resume_and_pause(busy: Any) -> None:
    assert state_of(busy.pid) == "T"
    busy.resume()
    busy.resume()  # a second step of the window
    assert os.sched_getaffinity(busy.pid) == {min(os.sched_getaffinity(0))}
    busy.pause()
    assert state_of(busy.pid) == "T"
    busy.pause()


def test_a_neighbour_that_ended_is_said(busy: Any) -> None:
    busy.resume()
    os.kill(busy.pid, 9)
    with pytest.raises(RuntimeError, match="keeps a core busy ended"):
        busy.pause()
