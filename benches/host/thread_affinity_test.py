"""host/thread_affinity: threads run where they were bound, one on each core."""

from __future__ import annotations

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
from technique_script import load, manifest  # noqa: E402

SCRIPT = Path(__file__).with_name("thread_affinity.py")

affinity = load(__file__)
MANIFEST = manifest(__file__)
IN_A_PROCESS = """
import json, os, sys
import thread_affinity
arm = thread_affinity.make(sys.argv[1], {"model": "gpt_toy", "neighbour": sys.argv[2]}, 7, None)
arm.step()
arm.value()
arm.rest()
allowed = [sorted(os.sched_getaffinity(one)) for one in thread_affinity.all_threads()]
print(json.dumps({**arm.metrics(), "allowed": allowed, **arm.notes}))
"""


def answer(arm: str, neighbour: str = "none") -> dict[str, Any]:
    """Of the arm in a new process, with what the engine sets."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core")
    path = os.pathsep.join([str(SCRIPT.parent), *filter(None, sys.path)])
    own = {"PYTHONPATH": path, "GPULIFT_CORES": str(len(cores))}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, arm, neighbour],
        env={**os.environ, **own, **MANIFEST["environment"].get(arm, {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_each_core_has_one_thread_of_as_many_as_there_are() -> None:
    said = answer("one_each")
    cores = sorted(os.sched_getaffinity(0))
    assert said["torch_threads"] == str(len(cores))
    assert said["working_threads_count"] == len(cores)
    assert sorted(one for one in said["allowed"] if len(one) == 1) == [[core] for core in cores]


def test_openmp_binds_its_threads_as_launch_scripts_ask() -> None:
    said = answer("omp_places")
    cores = os.sched_getaffinity(0)
    assert said["torch_threads"] == str(len(cores))
    assert said["cores_of_first_thread_count"] < len(cores)


def test_the_first_core_is_left_to_the_neighbour() -> None:
    said = answer("physcpubind", "on_first_core")
    cores = sorted(os.sched_getaffinity(0))
    assert all(one == cores[1:] for one in said["allowed"])
    with pytest.raises(Skip, match="not applicable: without a neighbour"):
        affinity.bind_all_away([0, 1], beside=False)


def test_a_complex_of_all_cores_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(affinity, "bind_as_torchrun", lambda *given: asked.append(given))
    monkeypatch.setattr(affinity, "cores_of_engine", lambda: [0, 1])
    monkeypatch.setattr(affinity.os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(Skip, match="not applicable: all cores are of one complex"):
        affinity.make("torchrun_core_complex", {"model": "gpt_toy", "neighbour": "none"}, 7, None)
    assert asked == [(None, "core-complex")]


def test_threads_that_are_bound_already_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    affinity.require_settings("omp_places")
    with pytest.raises(Skip, match="OMP_PROC_BIND is set"):
        affinity.require_settings("unbound")


@pytest.mark.parametrize(
    ("arm", "places"),
    [
        ("unbound", {}),
        ("omp_places", {}),
        ("one_each", {11: 2, 12: 5}),
        ("one_core", {11: 2, 12: 2}),
    ],
)
def test_places_of_two_threads_on_three_cores(arm: str, places: dict[int, int]) -> None:
    assert affinity.places_of(arm, [11, 12], [2, 5, 6]) == places


def test_more_threads_than_cores_have_not_one_each() -> None:
    with pytest.raises(Skip, match="3 threads work in a step, on 2 cores"):
        affinity.places_of("one_each", [11, 12, 13], [2, 5])


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
    monkeypatch.setattr(affinity, "cores_of_engine", lambda: [0])
    with pytest.raises(Skip, match="there is one core"):
        affinity.make("one_each", {"model": "gpt_toy", "neighbour": "none"}, 7, None)
