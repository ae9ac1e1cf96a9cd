"""input/workers: who makes the batches: the training loop, processes, threads, or both."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.feeding import (
    PIXELS,
    Normalising,
    arm_of,
    largest_difference,
    note_of,
    pillow_cut,
    step_alone_s,
    step_behind,
    stored,
    with_cores,
)
from gpulift_work.loaders import (
    PREFETCH,
    Loader,
    Order,
    ProcessLoader,
    Samples,
    ThreadLoader,
    require_shared_memory,
)
from gpulift_work.overlapping import Overlapping
from gpulift_worker import Arm, cores, scratch

TECHNIQUE = {
    "question": "How much faster do worker processes and threads feed a training step than the "
    "loop itself?",
    "expectation": """
        JPEGs of mixed sizes as ImageNet has them: Pillow decodes one in 1.55 ms, cuts and resizes
        it in 0.8, 2.4 ms with what lies around it. An H100 takes 74 ms for 256 of ResNet-50, and
        their bytes 5 to get there, while the loop itself goes on to the next batch: 610 ms, and 15
        to launch a step. n processes: the larger of 610 ms / n and 79 ms: 1.02, 2.05 and 4.1 for 1,
        2 and 4; 16 cores that are all at work take 1.4 times as long an image, 54 ms: the step's 79
        remain, 7.9. Threads: decoding and resizing let go of Python's lock, some 0.2 ms an image do
        not, 51 ms a batch in turn with a step that launches from Python, too: 0.95, 1.8 and 3.4,
        and no more than 625 / 100 = 6.3 on all cores. On two cores without a GPU ResNet-18 takes
        110 ms for 32 images of 32 pixels on one of them, and loading 77: one worker 187 / 125 =
        1.5, since two busy cores are slower; a second has no core of its own: 1.5. Threads 1.4.
    """,
    "predict": [
        "model:resnet50_256 @h100: in_process 450-850 ms",
        "model:resnet50_256/workers:1 @h100: processes 0.97-1.12, threads 0.87-1.06",
        "model:resnet50_256/workers:2 @h100: processes 1.75-2.25, threads 1.55-2.1",
        "model:resnet50_256/workers:4 @h100: processes 3.4-4.5, threads 2.7-4.1",
        "model:resnet50_256/workers:all_cores @h100: processes 6.8-9, threads 3.6-6.8",
        # On two cores.
        "model:resnet18 @cpu: processes 1.25-1.75, threads 1.15-1.7",
    ],
    "arms": ["in_process", "processes", "threads"],
    "l2": "by_size",
    "page_cache": "warm",
    "claims": [
        "workers-faster",
        "workers-as-many-as-cores",
        "processes-faster-than-threads",
        "prefetch-thread-faster",
    ],
    "sweep": {"model": ["resnet18", "resnet50_256"], "workers": [1, 2, 4, "all_cores"]},
    "check": {
        "meaning": "largest mean difference of an image from what it must be, of 255",
        "tolerance": 0.01,  # of normalising
    },
}
FILES = 512


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A loader of this kind, and a training step that feeds on it."""
    workers = workers_of(point["workers"])
    step = step_behind(str(point["model"]), seed, gpu)
    if arm == "processes":
        require_shared_memory((PREFETCH * workers + 1) * step.batch * 3 * PIXELS**2)
    load = pillow_cut(stored(scratch(), FILES, seed))
    order = Order(FILES, step.batch, seed)
    normalise = Normalising(step.device)
    seen: list[torch.Tensor] = []

    def train(batch: torch.Tensor) -> None:
        seen[:] = [normalise(batch.to(step.device))]
        step.train(seen[0])

    loader: Loader
    if arm == "threads":
        loader = ThreadLoader(Samples(load), order, workers)
    else:
        loader = ProcessLoader(Samples(load), order, workers if arm == "processes" else 0)
    parallel = 0 if arm == "in_process" else workers
    rounds = Overlapping(loader, order, train, max(1, parallel))

    return arm_of(
        rounds,
        step.synchronize,
        error=lambda: largest_difference(seen[0], list(map(load, rounds.trained))),
        items=rounds.batches * step.batch,
        metrics=lambda: {"step_alone_s": step_alone_s(step, seen[0])},
        notes={
            "step": step.said,
            "workers": str(workers),
            "torch_threads": str(torch.get_num_threads()),
            **note_of(FILES),
        },
    )


def workers_of(asked: int | str) -> int:
    """How many there are; no more than cores."""
    return cores() if asked == "all_cores" else with_cores(int(asked))
