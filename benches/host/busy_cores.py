"""host/busy_cores: training steps on a GPU while loaders keep the host's cores busy."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import torch
from gpulift_work.feeding import normalised, note_of, pillow_cut, stored
from gpulift_work.loaders import Order, ProcessLoader, Samples
from gpulift_work.neighbours import Neighbours, Work
from gpulift_work.resting import Resting
from gpulift_work.training import device_of, set_up
from gpulift_worker import Arm, cores, scratch

TECHNIQUE = {
    "question": "What do loaders on all cores of the host cost a training step, and what gives it "
    "its pace back?",
    "expectation": """
        A loader is a process that decodes JPEGs, crops them by Pillow, normalises and stacks them,
        as a worker of DataLoader's does; none of it feeds this training. all_cores, the baseline,
        has one a core. A toy GPT's step is 113 launches of 44 us on this host, 5 ms of one thread,
        which sets its pace. Beside a loader on each core it gets half of one until the scheduler
        moves it: idle has 1.25 to 2.0. niced, loaders of nice 19 that weigh 15 of its 1,024, give
        it 98 % of a core; caches, clock and the other thread of its core stay shared: 1.2 to 1.9,
        for the loaders' own loss of 7 %, a core of sixteen. one_free leaves it a core while
        autograd's thread, which works in turn with it, needs no second: 1.1 to 1.8, at 6 % fewer
        images. half has 1.2 to 1.9 with half of the images. ResNet-50 with 256 images takes 74 ms
        of an H100 and some 600 launches, 26 ms at that pace, which run ahead even with half a core:
        1.0 for all. half and idle load less or nothing, and are controls.
    """,
    "predict": [
        "bound:launches: niced 1.2-1.9, one_free 1.1-1.8, half 1.2-1.9, idle 1.25-2.0",
        "bound:gpu: niced 0.97-1.05, one_free 0.97-1.05, half 0.97-1.05, idle 0.97-1.05",
    ],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["all_cores", "niced", "one_free", "half", "idle"],
    "controls": ["half", "idle"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"bound": ["launches", "gpu"]},
    "check": {
        "meaning": "loss after five steps, relative to the baseline's",
        "tolerance": 0.01,
    },
}
MODELS = {"launches": "gpt_toy", "gpu": "resnet50_256"}
LOADERS: Mapping[str, Callable[[int], int]] = {  # of so many cores
    "all_cores": lambda count: count,
    "niced": lambda count: count,
    "one_free": lambda count: count - 1,
    "half": lambda count: count // 2,
    "idle": lambda _: 0,
}
NICE = {"niced": 19}
FILES, BATCH = 256, 16
CHECKED_STEPS = 5
LOOKED_S = 2.0


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training, and the loaders beside its steps."""
    model = MODELS[str(point["bound"])]
    count = LOADERS[arm](cores())
    files = stored(scratch(), FILES, seed)
    images: Any = multiprocessing.RawArray("L", max(1, count))  # each loader its own

    def loader(number: int) -> Work:
        torch.set_num_threads(1)  # as DataLoader does
        batches = ProcessLoader(
            Samples(normalised(pillow_cut(files))), Order(FILES, BATCH, seed + number), workers=0
        )

        def load() -> None:
            batches.take()
            images[number] += BATCH

        return load

    neighbours = Neighbours(count, loader, nice=NICE.get(arm, 0))
    device = device_of(gpu)
    set_up(device)
    resting = Resting(model, device, seed)
    training = resting.training

    def step() -> None:
        neighbours.resume()
        training.step()

    def loss() -> float:
        resting.wake()
        neighbours.resume()
        training.train_until(CHECKED_STEPS)
        rest()
        return training.losses[-1]

    def rest() -> None:
        training.synchronize()
        neighbours.pause()
        resting.rest()

    def metrics() -> dict[str, float]:
        """How fast the loaders are beside steps, which a training of their own would live on."""
        resting.wake()
        before, start_s = sum(images), monotonic()
        while monotonic() - start_s < LOOKED_S:
            step()
            training.synchronize()
        loaded_per_s = (sum(images) - before) / (monotonic() - start_s)
        rest()
        return {"loader_images_per_s": loaded_per_s}

    return Arm(
        step=step,
        value=loss,
        synchronize=training.synchronize,
        mark=training.mark if gpu is not None else None,
        rest=rest,
        wake=resting.wake,
        metrics=metrics,
        notes={"cores": str(cores()), "device": device.type, **note_of(FILES)},
        items=len(training.input),
        item="sample",
    )
