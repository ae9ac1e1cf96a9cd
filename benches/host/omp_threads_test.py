"""host/omp_threads: the training and each worker have the threads of their arm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.loaders import Order, ProcessLoader  # noqa: E402
from gpulift_worker import Failed, Skip  # noqa: E402
from technique_script import error_of, load, made, manifest  # noqa: E402

omp = load(__file__)
MANIFEST = manifest(__file__)
POINT = {"model": "resnet18", "workers": "half"}


@pytest.fixture(autouse=True)
def few_files(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As few as a batch has, on what passes for a disk, and no settings of threads."""
    monkeypatch.setattr(omp, "FILES", 32)
    for name in [one for one in os.environ if one.startswith(omp.SETTINGS)]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("arm", "threads"),
    [("all_cores", (8, 1)), ("one", (1, 1)), ("cores_left", (5, 1)), ("workers_too", (8, 8))],
)
def test_threads_beside_three_workers_on_eight_cores(arm: str, threads: tuple[int, int]) -> None:
    assert omp.threads_of(arm, 8, 3) == threads


def test_one_core_that_is_left_or_none_is_what_another_arm_has() -> None:
    for workers in (7, 8):
        with pytest.raises(Skip, match="not applicable"):
            omp.threads_of("cores_left", 8, workers)


@pytest.mark.parametrize("name", ["one", "workers_too"])
def test_training_has_the_threads_that_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fork of a process that had threads of OpenMP hangs where it asks for more than one.
    monkeypatch.setattr(omp, "threaded", lambda load_one, _: load_one)
    arm = made(omp, name, POINT)
    assert error_of(arm) <= MANIFEST["check"]["tolerance"]
    assert torch.get_num_threads() == arm.metrics()["training_threads_count"]
    torch.set_num_threads(torch.get_num_threads() + 1)
    with pytest.raises(Failed, match="threads, and torch has"):
        error_of(arm)
    arm.rest()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_worker_has_the_threads_that_it_is_told(threads: int) -> None:
    looked = omp.threaded(lambda _: torch.tensor(torch.get_num_threads()), threads)
    loader = ProcessLoader(omp.Samples(looked), Order(2, 2, 7), 1)
    _, counts = loader.take()
    assert counts.tolist() == [threads, threads]


def test_settings_of_the_threads_are_a_reason_but_not_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    omp.require_unset()
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    with pytest.raises(Skip, match="OMP_WAIT_POLICY is set") as skipped:
        omp.require_unset()
    assert skipped.value.remedy == "unset OMP_WAIT_POLICY"
