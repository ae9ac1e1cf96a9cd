"""input/prefetch: what a queue of two stations takes, and whole epochs of every arm."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from technique_script import load

torch = pytest.importorskip("torch")

ARMS = ("none", "depth_1", "depth_2", "depth_8", "background_thread", "new_workers")


@pytest.fixture(name="prefetch")
def prefetch_script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with short times."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "LOAD_S", 1e-4)
    monkeypatch.setattr(module, "STEP_S", 1e-4)
    return module


@pytest.mark.parametrize("arm", ARMS)
def test_every_epoch_has_all_batches_in_their_order(prefetch: Any, arm: str) -> None:
    found = prefetch.make(arm, {"times": "jittered"}, 7, None)
    for _ in range(2):
        found.step()
        assert found.error() == 0
    assert found.items == 32
    assert found.metrics()["queueing_s"] > 32 * 1e-4


def test_kept_workers_are_the_same_in_the_next_epoch_and_new_ones_are_not(prefetch: Any) -> None:
    class Telling(prefetch.SlowStore):  # type: ignore[misc]
        def __getitem__(self, number: int) -> Any:
            return torch.tensor(os.getpid())

    for kept, processes in ((True, 1), (False, 2)):
        epochs = prefetch.ProcessEpochs(Telling([0, 0], 7), 2, kept=kept)
        found = {int(one) for _ in range(2) for one in epochs.epoch()}
        assert len(found - {os.getpid()}) == processes


def test_without_prefetch_times_add_up_and_with_it_the_longer_counts(prefetch: Any) -> None:
    assert prefetch.queueing_s([4.0] * 32, 4.0, 0) == 256
    for depth in (1, 2, 8):
        assert prefetch.queueing_s([4.0] * 32, 4.0, depth) == 132
        assert prefetch.queueing_s([1.0] * 10, 4.0, depth) == 41
        assert prefetch.queueing_s([4.0] * 10, 1.0, depth) == 41


def test_only_depth_hides_a_slow_sample(prefetch: Any) -> None:
    loads_s = [1.0, 1.0, 1.0, 4.0]
    # One ahead: the slow one begins when the third is taken, at 5.
    assert prefetch.queueing_s(loads_s, 2.0, 1) == 11
    assert prefetch.queueing_s(loads_s, 2.0, 2) == 9
    assert prefetch.queueing_s(loads_s, 2.0, 8) == 9


def test_jittered_times_have_the_sum_of_constant_ones_and_are_usual_ones(prefetch: Any) -> None:
    jittered = prefetch.load_times_s("jittered")
    assert sum(jittered) == pytest.approx(sum(prefetch.load_times_s("constant")))
    assert max(jittered) > 2 * prefetch.LOAD_S
    none, *ahead = (prefetch.queueing_s(jittered, prefetch.STEP_S, depth) for depth in (0, 1, 2, 8))
    medians = [1.44, 1.60, 1.78]  # over seeds
    assert [none / one for one in ahead] == pytest.approx(medians, rel=0.01)


def test_batches_that_are_wrong_swapped_or_missing_are_counted(prefetch: Any) -> None:
    store = prefetch.SlowStore([0.0] * 3, 7)
    wanted = [store.sample(number) for number in range(3)]
    assert prefetch.wrong(wanted, wanted) == 0
    assert prefetch.wrong([wanted[1], wanted[0], wanted[2]], wanted) == 2
    assert prefetch.wrong(wanted[:2], wanted) == 3


def test_a_killed_worker_fails_the_epoch_in_one_line(prefetch: Any) -> None:
    class Stuck(prefetch.SlowStore):  # type: ignore[misc]
        def __getitem__(self, number: int) -> Any:
            threading.Event().wait()

    epochs = prefetch.ProcessEpochs(Stuck([0, 0], 7), 1, kept=True)
    batches = epochs.epoch()
    of_other_tests = {process.pid for process in torch.multiprocessing.active_children()}

    def kill() -> None:
        for process in torch.multiprocessing.active_children():
            if process.pid not in of_other_tests:
                os.kill(process.pid, signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    with pytest.raises(RuntimeError, match=r"^a worker process of the loader was killed"):
        next(batches)


def test_every_arm_but_new_workers_has_a_depth(prefetch: Any) -> None:
    assert [*prefetch.DEPTHS, "new_workers"] == prefetch.TECHNIQUE["arms"] == list(ARMS)
