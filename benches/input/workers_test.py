"""input/workers: all kinds of workers give the same samples in the same order."""

from __future__ import annotations

from typing import Any

import pytest
from technique_script import load

pytest.importorskip("torch")

ARMS = ("in_process", "processes", "threads", "threads_in_subprocess")


@pytest.fixture(name="workers")
def workers_script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with few samples and three cores."""
    module: Any = load(__file__)
    for name, value in {"BATCH": 2, "SAMPLES": 4, "IMAGES": 2, "WORDS": 50}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "STEP_S", 1e-4)
    monkeypatch.setattr(module, "cores", lambda: 3)
    return module


def point(work: str, step: str, workers: int | str) -> dict[str, int | str]:
    """A case."""
    return {"work": work, "step": step, "workers": workers}


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("work", ["releases_lock", "holds_lock"])
def test_many_workers_keep_the_order(workers: Any, arm: str, work: str) -> None:
    if work == "releases_lock":
        pytest.importorskip("simplejpeg")
    found = workers.make(arm, point(work, "launching", "all_cores"), 7, None)
    for _ in range(2):
        found.step()
        found.synchronize()
        found.rest()
    assert found.error() == 0
    assert found.items == 2 * (2 if arm == "in_process" else 6)
    assert found.metrics()["step_alone_s"] > 0


def test_an_arm_that_loads_another_sample_does_not_pass(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = workers.numbering(7)
    loaded: list[Any] = []

    def load(key: tuple[int, int]) -> Any:
        loaded.append(key)
        return right((0, key[1] + (len(loaded) == 4)))  # the last of two batches is its neighbour

    monkeypatch.setitem(workers.LOADS, "holds_lock", lambda _: load)
    found = workers.make("in_process", point("holds_lock", "sleeping", 1), 7, None)
    found.step()
    assert found.error() == 1


def test_words_get_their_numbers_and_those_that_are_not_known_none(workers: Any) -> None:
    numbers = workers.numbering(7)((0, 1))
    assert numbers.shape == (50,)
    assert -1 in numbers.tolist()
    assert 0 <= max(numbers.tolist()) < workers.VOCABULARY


def test_more_workers_than_cores_are_a_skip(workers: Any) -> None:
    assert workers.workers_of("all_cores") == 3
    assert workers.workers_of(2) == 2
    with pytest.raises(workers.Skip, match="4 workers need as many cores, and there are 3"):
        workers.make("threads", point("holds_lock", "sleeping", 4), 7, None)
