"""host/omp_threads: each process has the threads of its arm, and one that ends is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Failed, Skip  # noqa: E402
from technique_script import load  # noqa: E402


@pytest.fixture(name="omp")
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The script, on a machine of four cores; its processes end with the test."""
    module: Any = load(__file__)
    workers: list[Any] = []
    made = module.Worker

    def make_worker(*arguments: Any) -> Any:
        workers.append(made(*arguments))
        return workers[-1]

    for name in [one for one in os.environ if one.startswith(module.SETTINGS)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(module, "Worker", make_worker)
    monkeypatch.setattr(module, "cores", lambda: 4)
    module.workers = workers
    yield module
    for one in workers:
        one.end()


def make(omp: Any, arm: str, processes: int) -> Any:
    """An arm of the toy."""
    return omp.make(arm, {"processes": processes, "model": "gpt_toy"}, 7, None)


@pytest.mark.parametrize(
    ("arm", "threads"),
    [
        ("one", [1, 1, 1]),
        ("all_cores", [4, 4, 4]),
        ("cores_per_process", [4, 2, 1]),
    ],
)
def test_threads_of_one_two_and_four_processes(omp: Any, arm: str, threads: list[int]) -> None:
    assert [omp.threads_of(arm, processes) for processes in (1, 2, 4)] == threads


def test_all_processes_train_alike_and_a_step_is_one_of_each(omp: Any) -> None:
    arm = make(omp, "one", 2)  # torch's threads of this process do not live through a fork
    alone = make(omp, "one", 1)
    arm.step()
    alone.step()
    assert arm.metrics() == {"threads_count": 2}
    assert (arm.items, alone.items) == (16, 8)
    assert arm.value() == pytest.approx(alone.value(), rel=1e-3)


def test_a_process_that_ends_is_said(omp: Any) -> None:
    arm = make(omp, "one", 2)
    omp.workers[1].end()
    with pytest.raises((Failed, OSError)):
        arm.step()


def test_more_processes_than_cores_are_skipped(omp: Any) -> None:
    with pytest.raises(Skip, match="8 processes would share 4 cores"):
        make(omp, "one", 8)
    assert omp.workers == []


def test_settings_of_the_threads_are_a_reason_but_not_their_number(
    omp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    omp.require_unset()
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    with pytest.raises(Skip, match="OMP_WAIT_POLICY is set") as skipped:
        omp.require_unset()
    assert skipped.value.remedy == "unset OMP_WAIT_POLICY"


def test_a_process_that_cannot_train_says_why(omp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise Skip("no such model here", "install it")

    monkeypatch.setattr(omp, "Training", refuse)
    with pytest.raises(Skip, match="no such model here") as skipped:
        make(omp, "one", 1)
    assert skipped.value.remedy == "install it"
