"""input/prefetch: how far ahead of the training loop samples are loaded."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gpulift_work.loaders import end_with_parent, in_one_line
from gpulift_work.steps import emulated_step
from gpulift_work.training import leave_a_core_free
from gpulift_worker import Arm
from torch.utils.data import DataLoader, Dataset

TECHNIQUE = {
    "question": "How many batches should be loaded ahead of the training loop?",
    "expectation": (
        "A window is an epoch of 32 batches, from nothing loaded to all trained on; loading takes "
        "4 ms and a step 4 ms, both asleep, so that no processor is short. Without prefetch 32 x 8 "
        "= 256 ms. One batch ahead 33 x 4 = 132 ms: 1.94, and more ahead brings nothing where all "
        "samples take the same time. With times of log-normal jitter (sigma 1, same sum) the epoch "
        "is the longest way through a queue of two stations and d places, which is computed and "
        "beside each arm as queueing_s: medians over seeds 1.44, 1.60 and 1.78 times as fast for "
        "d of 1, 2 and 8: stalls fall as about 1 / sqrt(d). A thread with a queue of one is as two "
        "ahead. New workers in each epoch are forked, import nothing and cost 20 ms of 150 with "
        "their end: 0.87 of workers that are kept."
    ),
    "predict": [
        {"step_time_s": {"none": [0.2304, 0.2816]}},
        {
            "case": {"times": "constant"},
            "speedup": {
                "depth_1": [1.746, 2.134],
                "depth_2": [1.746, 2.134],
                "depth_8": [1.746, 2.134],
                "background_thread": [1.746, 2.134],
                "new_workers": [1.521, 1.859],
            },
        },
        {
            "case": {"times": "jittered"},
            "speedup": {
                "depth_1": [1.296, 1.584],
                "depth_2": [1.44, 1.76],
                "depth_8": [1.602, 1.958],
                "background_thread": [1.44, 1.76],
                "new_workers": [1.251, 1.529],
            },
        },
    ],
    "arms": ["none", "depth_1", "depth_2", "depth_8", "background_thread", "new_workers"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"times": ["constant", "jittered"]},
    "check": {"meaning": "samples that are wrong or not in their turn", "tolerance": 0},
}
BATCHES = 32
LOAD_S = 4e-3  # in the mean
STEP_S = 4e-3
SIGMA = 1.0  # of the logarithm of a jittered time
DEPTHS = {"none": 0, "depth_1": 1, "depth_2": 2, "depth_8": 8, "background_thread": 2}
NEW_WORKERS_DEPTH = 2
NUMBERS = 1024  # in a sample
TIMES_SEED = 130  # of times whose epochs are about the medians over seeds; the same in every launch


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Whole epochs of an arm."""
    leave_a_core_free()
    loads_s = load_times_s(str(point["times"]))
    store = SlowStore(loads_s, seed)
    depth = DEPTHS.get(arm, NEW_WORKERS_DEPTH)
    if arm == "background_thread":
        epochs: Epochs = ThreadEpochs(store)
    else:
        epochs = ProcessEpochs(store, depth, kept=arm != "new_workers")
    train = emulated_step("sleeping", STEP_S)
    found: list[Any] = []

    def step() -> None:
        found.clear()
        for batch in epochs.epoch():
            train()
            found.append(batch)

    def error() -> float:
        return float(wrong(found, [store.sample(number) for number in range(BATCHES)]))

    return Arm(
        step=step,
        error=error,
        items=BATCHES,
        item="batch",
        notes={"step": str(train), "load": f"emulated: sleeps {1e3 * LOAD_S:g} ms in the mean"},
        metrics=lambda: {"queueing_s": queueing_s(loads_s, STEP_S, depth)},
    )


def load_times_s(times: str) -> list[float]:
    """Of the batches of an epoch; their sum is the same in all cases."""
    if times == "constant":
        return [LOAD_S] * BATCHES
    drawn = np.random.default_rng(TIMES_SEED).lognormal(sigma=SIGMA, size=BATCHES)
    return [float(one) for one in drawn * (BATCHES * LOAD_S / drawn.sum())]


def queueing_s(loads_s: Sequence[float], step_s: float, depth: int) -> float:
    """How long an epoch takes if nothing else takes time: a batch is loaded when the one before it
    is, and when the batch that lies `depth` before it was taken; without depth, when it is asked
    for."""
    if depth == 0:
        return sum(loads_s) + len(loads_s) * step_s
    taken_s: list[float] = []
    ready_s = trained_s = 0.0
    for number, load_s in enumerate(loads_s):
        room_s = taken_s[number - depth] if number >= depth else 0.0
        ready_s = max(ready_s, room_s) + load_s
        taken_s.append(max(ready_s, trained_s))
        trained_s = taken_s[-1] + step_s
    return trained_s


class SlowStore(Dataset[Any]):
    """A batch of random numbers after a time of its own, as from storage far away: emulated."""

    def __init__(self, loads_s: Sequence[float], seed: int) -> None:
        self._loads_s = loads_s
        self._seed = seed

    def __len__(self) -> int:
        return len(self._loads_s)

    def __getitem__(self, number: int) -> Any:
        batch = self.sample(number)
        time.sleep(self._loads_s[number])
        return batch

    def sample(self, number: int) -> Any:
        """The same without waiting."""
        generator = np.random.default_rng([self._seed, number])
        return torch.from_numpy(generator.integers(2**31, size=NUMBERS))


class ProcessEpochs:
    """torch's DataLoader with one worker or none; kept, it waits for the next epoch."""

    def __init__(self, store: SlowStore, depth: int, *, kept: bool) -> None:
        ahead: dict[str, Any] = {}
        if depth > 0:
            ahead = {
                "num_workers": 1,
                "prefetch_factor": depth,
                "persistent_workers": kept,
                "multiprocessing_context": multiprocessing.get_context("fork"),
                "worker_init_fn": end_with_parent(os.getpid()),
            }
        self._loader = DataLoader(store, batch_size=None, **ahead)

    def epoch(self) -> Iterator[Any]:
        """All batches in their order."""
        try:
            yield from self._loader
        except RuntimeError as error:
            raise RuntimeError(in_one_line(error)) from error


class ThreadEpochs:
    """A thread that loads into a queue of one, and holds the next."""

    def __init__(self, store: SlowStore) -> None:
        self._store = store

    def epoch(self) -> Iterator[Any]:
        """All batches in their order."""
        loaded: queue.Queue[Any] = queue.Queue(maxsize=1)

        def load() -> None:
            for number in range(len(self._store)):
                loaded.put(self._store[number])

        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        for _ in range(len(self._store)):
            yield loaded.get()
        thread.join()


Epochs = ProcessEpochs | ThreadEpochs


def wrong(found: Sequence[Any], wanted: Sequence[Any]) -> int:
    """Batches that are not what their turn wants, and those that are missing."""
    if len(found) != len(wanted):
        return max(len(found), len(wanted))
    return sum(not torch.equal(one, want) for one, want in zip(found, wanted, strict=True))
