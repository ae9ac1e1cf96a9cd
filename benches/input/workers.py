"""input/workers: who makes the batches: the training loop, processes, threads, or both."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gpulift_work.images import synthetic_jpegs
from gpulift_work.loaders import (
    PREFETCH,
    Key,
    Loader,
    Order,
    ProcessLoader,
    Rounds,
    Samples,
    ThreadLoader,
    require_shared_memory,
    wrong_samples,
)
from gpulift_work.steps import alone_s, emulated_step
from gpulift_work.training import leave_a_core_free
from gpulift_worker import Arm, Skip, cores

TECHNIQUE = {
    "question": "How much faster do worker processes and threads feed a training loop than the "
    "loop itself?",
    "expectation": (
        "A batch is 16 samples of 0.85 ms, 13.6 ms; a step takes 2 ms. The loop itself: 15.6 ms. n "
        "processes: the larger of 13.6 ms / n and 2 ms: 1.15, 2.3, 4.6 times as fast with 1, 2, 4, "
        "and 7.8 from 7 on, as long as the step and they have a core each: a launching step on 2 "
        "cores needs 15.6 ms of both, 2.0. Threads: the same where the work lets go of Python's "
        "lock and the step sleeps; where the work holds it 1.15 with any number of them. Beside a "
        "launching step such threads take turns of 5 ms with it, so that both halve: 15.6 ms of "
        "lock in one row, 1.0 with one thread, and each more adds turns, not speed. Threads in a "
        "subprocess: as processes where the lock is let go, 1.15 where not, whatever the step."
    ),
    "predict": [
        {"step_time_s": {"in_process": [0.02808, 0.03432]}},
        {"case": {"workers": 1}, "speedup": {"processes": [1.035, 1.265]}},
        {"case": {"step": "sleeping", "workers": 2}, "speedup": {"processes": [2.07, 2.53]}},
        {"case": {"step": "sleeping", "workers": 4}, "speedup": {"processes": [4.14, 5.06]}},
        {
            "case": {"work": "releases_lock", "step": "sleeping", "workers": 1},
            "speedup": {"threads": [1.035, 1.265], "threads_in_subprocess": [1.035, 1.265]},
        },
        {
            "case": {"work": "releases_lock", "step": "sleeping", "workers": 2},
            "speedup": {"threads": [2.07, 2.53], "threads_in_subprocess": [2.07, 2.53]},
        },
        {
            "case": {"work": "releases_lock", "step": "sleeping", "workers": 4},
            "speedup": {"threads": [4.14, 5.06], "threads_in_subprocess": [4.14, 5.06]},
        },
        {
            "case": {"work": "holds_lock", "step": "sleeping"},
            "speedup": {"threads": [1.035, 1.265]},
        },
        {
            "case": {"work": "holds_lock", "step": "launching", "workers": 1},
            "speedup": {"threads": [0.9, 1.1]},
        },
        {"case": {"work": "holds_lock"}, "speedup": {"threads_in_subprocess": [1.035, 1.265]}},
    ],
    "arms": ["in_process", "processes", "threads", "threads_in_subprocess"],
    "l2": "none",
    "page_cache": "none",
    "claims": ["workers-faster", "processes-faster-than-threads", "prefetch-thread-faster"],
    "sweep": {
        "work": ["releases_lock", "holds_lock"],
        "step": ["sleeping", "launching"],
        "workers": [1, 2, 4, "all_cores"],
    },
    "quick": [{"work": "releases_lock", "step": "launching", "workers": "all_cores"}],
    "check": {"meaning": "samples whose bytes are not what they must be", "tolerance": 0},
}
BATCH = 16
SAMPLES = 64
STEP_S = 2e-3
CROP = 224  # pixels
SAMPLE_BYTES = 3 * CROP * CROP  # of pixels; a text has fewer
IMAGES = 8  # different ones: sample i is image i modulo this
WIDTH, HEIGHT, IMAGE_BYTES = 500, 375, 112e3
WORDS = 6_000  # of a text, whose numbers take about as long to find as an image to decode
VOCABULARY = 30_000


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A loader of this kind, and a step that feeds on it."""
    workers = workers_of(point["workers"])
    threads = leave_a_core_free()
    if arm in ("processes", "threads_in_subprocess"):
        require_shared_memory((PREFETCH * workers + 1) * BATCH * SAMPLE_BYTES)
    load = LOADS[str(point["work"])](seed)
    order = Order(SAMPLES, BATCH, seed)
    train = emulated_step(str(point["step"]), STEP_S)
    step_s = alone_s(train)
    # Two batches of each worker, so that all have the same to do in a round.
    batches = 2 if arm == "in_process" else 2 * workers
    rounds = Rounds(make_loader(arm, load, order, workers), order, lambda _: train(), batches)

    def error() -> float:
        keys, found = rounds.last
        return float(wrong_samples(found, map(load, keys)))

    return Arm(
        step=rounds.step,
        error=error,
        synchronize=rounds.loader.wait,
        rest=rounds.rest,
        items=batches * BATCH,
        item="sample",
        notes={"step": str(train), "workers": str(workers), "torch_threads": str(threads)},
        metrics=lambda: {"step_alone_s": step_s},
    )


def workers_of(asked: int | str) -> int:
    """How many there are; no more than cores."""
    here = cores()
    if asked == "all_cores":
        return here
    if int(asked) > here:
        raise Skip(f"{asked} workers need as many cores, and there are {here}")
    return int(asked)


def make_loader(arm: str, load: Callable[[Key], Any], order: Order, workers: int) -> Loader:
    """The loader of an arm, with PREFETCH batches ahead of each worker."""
    if arm == "in_process":
        return ProcessLoader(Samples(load), order, 0)
    if arm == "processes":
        return ProcessLoader(Samples(load), order, workers)
    if arm == "threads":
        return ThreadLoader(Samples(load), order, workers)
    # All threads load samples of one batch: its process has as many batches ahead as the others.
    return ProcessLoader(Samples(load, threads=workers), order, 1, prefetch=PREFETCH * workers)


def decoding(seed: int) -> Callable[[Key], Any]:
    """A JPEG to the pixels of its middle: libjpeg-turbo lets go of Python's lock."""
    simplejpeg = importlib.import_module("simplejpeg")
    files = synthetic_jpegs(IMAGES, WIDTH, HEIGHT, IMAGE_BYTES, seed)
    top, left = (HEIGHT - CROP) // 2, (WIDTH - CROP) // 2

    def load(key: Key) -> Any:
        pixels = simplejpeg.decode_jpeg(files[key[1] % IMAGES], "RGB")
        return torch.from_numpy(pixels[top : top + CROP, left : left + CROP].copy())

    return load


def numbering(seed: int) -> Callable[[Key], Any]:
    """The words of a text to their numbers, one by one in Python, which holds its lock."""
    generator = np.random.default_rng(seed)
    numbers = {f"word{index}": index for index in range(VOCABULARY)}
    texts = [
        " ".join(f"word{index}" for index in generator.integers(2 * VOCABULARY, size=WORDS))
        for _ in range(IMAGES)
    ]

    def load(key: Key) -> Any:
        found = []
        for word in texts[key[1] % IMAGES].split():
            found.append(numbers.get(word, -1))
        return torch.tensor(found, dtype=torch.int32)

    return load


LOADS: Mapping[str, Callable[[int], Callable[[Key], Any]]] = {
    "releases_lock": decoding,
    "holds_lock": numbering,
}
