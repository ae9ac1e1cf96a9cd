"""host/omp_threads: how many threads a training takes beside a loader's worker processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from gpulift_work.feeding import (
    PIXELS,
    Normalising,
    arm_of,
    keep_to,
    largest_difference,
    note_of,
    step_behind,
    stored,
    tensor_cut,
)
from gpulift_work.loaders import (
    PREFETCH,
    Key,
    Load,
    Order,
    ProcessLoader,
    Rounds,
    Samples,
    require_shared_memory,
)
from gpulift_work.training import TWINS, require_gpu_for
from gpulift_worker import Arm, Failed, Skip, scratch

TECHNIQUE = {
    "question": "How many OpenMP threads should a training take, and each worker of its loader?",
    "expectation": """
        JPEGs of mixed sizes, which DataLoader's workers decode and cut in 1.8 ms of a processor.
        all_cores, what torch takes if nobody says: a thread a core in the training, and one in each
        worker, which DataLoader sets. one, the training's threads as torchrun sets OMP_NUM_THREADS;
        cores_left, those that no worker has. On two cores without a GPU ResNet-18 takes 110 ms for
        32 images on one of them and loading 58 on the other: 120 ms by one, for two busy cores are
        slower. all_cores would share 168 ms of work in 84, but each of its operations ends when the
        later of two threads does, which a worker has put off its core: 100 to 160. one: 0.85 to
        1.3. On an H100 the training's threads have nothing to do but its launches: ResNet-50 takes
        74 ms for 256 images, loading 256 x 1.8 ms x 1.4 / 16 cores = 40: one and cores_left 1.0.
        ResNet-18 has some 500 launches of 10 to 40 us, 5 to 20 ms, and loading 5: 1.0.
        workers_too, the control, is what workers do where a library has threads that DataLoader
        does not know: as many as cores in each worker, 256 on 16 cores, of which each part of an
        image waits for the last: 0.2 to 0.8, and with 4 on two cores 0.5 to 0.95.
    """,
    "predict": [
        # On two cores.
        "model:resnet18/workers:half @cpu: one 0.85-1.3, workers_too 0.5-0.95",
        "model:resnet18/workers:all @cpu: one 0.85-1.3, workers_too 0.5-0.95",
        "workers:half @h100: one 0.95-1.05, cores_left 0.95-1.05",
        "workers:all @h100: one 0.95-1.05, workers_too 0.2-0.8",
    ],
    "arms": ["all_cores", "one", "cores_left", "workers_too"],
    "controls": ["workers_too"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["resnet18", "resnet50_256"], "workers": ["half", "all"]},
    "check": {
        "meaning": "largest mean difference of an image from the bytes, of 255",
        "tolerance": 0.01,
    },
}
FILES = 512
SETTINGS = ("GOMP_", "KMP_", "OMP_")  # of the threads, beside their number
NUMBER = "OMP_NUM_THREADS"  # which torch.set_num_threads replaces


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step that feeds on a loader, with threads for each of both."""
    require_unset()
    model = str(point["model"])
    require_gpu_for(model, gpu)
    cores = keep_to("all")
    workers = cores if point["workers"] == "all" else max(1, cores // 2)
    training, of_worker = threads_of(arm, cores, workers)
    batch = TWINS[model].batch
    require_shared_memory((PREFETCH * workers + 1) * batch * 3 * PIXELS**2)
    load = tensor_cut(stored(scratch(), FILES, seed))
    order = Order(FILES, batch, seed)
    # Forked before this process has threads of OpenMP's, beside which a fork cannot have any.
    loader = ProcessLoader(Samples(threaded(load, of_worker)), order, workers)
    step = step_behind(model, seed, gpu)
    torch.set_num_threads(training)
    normalise = Normalising(step.device)
    seen: list[torch.Tensor] = []

    def train(images: torch.Tensor) -> None:
        seen[:] = [normalise(images.to(step.device))]
        step.train(seen[0])

    rounds = Rounds(loader, order, train, workers)

    def error() -> float:
        if torch.get_num_threads() != training:
            raise Failed(f"asked for {training} threads, and torch has {torch.get_num_threads()}")
        return largest_difference(seen[0], list(map(load, rounds.last[0])))

    return arm_of(
        rounds,
        step.synchronize,
        error=error,
        items=workers * batch,
        metrics=lambda: {
            "training_threads_count": float(training),
            "worker_threads_count": float(of_worker),
        },
        notes={"step": step.said, "workers": str(workers), "cores": str(cores), **note_of(FILES)},
    )


def threads_of(arm: str, cores: int, workers: int) -> tuple[int, int]:
    """Of the training, and of each worker."""
    left = cores - workers
    if arm == "cores_left" and left <= 1:
        raise Skip(f"not applicable: {workers} workers leave {left} of {cores} cores, as in `one`")
    return {
        "all_cores": (cores, 1),
        "one": (1, 1),
        "cores_left": (left, 1),
        "workers_too": (cores, cores),
    }[arm]


def threaded(load: Load, threads: int) -> Load:
    """The same in a worker with so many threads: DataLoader has set one."""

    def load_with(key: Key) -> torch.Tensor:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        image: torch.Tensor = load(key)
        return image

    return load_with


def require_unset() -> None:
    """Raises Skip where the threads have other settings, such as how they wait."""
    for name in sorted(os.environ):
        if name.startswith(SETTINGS) and name != NUMBER:
            raise Skip(f"{name} is set, which all arms are to be measured without", f"unset {name}")
