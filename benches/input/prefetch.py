"""input/prefetch: how far ahead of a training step its loader's workers are."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from gpulift_work.feeding import (
    PIXELS,
    Normalising,
    Step,
    keep_to,
    largest_difference,
    note_of,
    pillow_cut,
    step_behind,
    stored,
)
from gpulift_work.loaders import (
    Keys,
    Load,
    Order,
    Samples,
    end_with_parent,
    in_one_line,
    require_shared_memory,
    stacked,
)
from gpulift_worker import Arm, scratch
from torch.utils.data import DataLoader

TECHNIQUE = {
    "question": "How many batches should each worker load ahead of a training step, and what do "
    "workers cost that are made anew for each epoch?",
    "expectation": """
        A window is an epoch, from nothing loaded to all trained on. With 16 cores, at work all at
        once, a worker takes 3.4 ms an image, 0.86 s for 256, and 16 workers bring a batch in 54
        ms; an H100's step takes 79 with the copy: 48 batches 0.86 + 48 x 0.079 = 4.65 s. One
        batch ahead of each worker are 16: whoever was emptied is ready again after 0.86 s, 11
        steps, so that nobody waits, and more ahead brings nothing. New workers, torch's default,
        are 16 forks and ends of 25 ms: 5.05 s, 1.09 with kept ones. Where each sixteenth image is
        three times as long, 9 times the work, a batch takes 1.5 times as long, 81 ms with a
        deviation of 7 %: 1.1 for all depths. On two cores, after a trial, a step of ResNet-18 takes
        115 ms for 32 images and loading them 77, both 1.4 times as much beside the other: 8 x 0.16
        = 1.3 s, all depths within 3 %, and new workers cost 60 ms: 1.05.
    """,
    "predict": [
        "model:resnet50_256/images:alike @h100: new_workers 4-6.2 s",
        "model:resnet50_256 @h100: depth_1 1.02-1.2, depth_2 1.02-1.2, depth_8 1.02-1.2",
        "model:resnet18/images:alike @cpu: new_workers 1-1.7 s",
        "model:resnet18 @cpu: depth_1 1.0-1.1, depth_2 1.0-1.1, depth_8 1.0-1.1",
    ],
    "claims": ["prefetch-factor-2-is-enough"],
    "arms": ["new_workers", "depth_1", "depth_2", "depth_8"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["resnet18", "resnet50_256"], "images": ["alike", "some_large"]},
    "check": {
        "meaning": "largest mean difference of an image from what it must be, of 255",
        "tolerance": 0.01,  # of normalising
    },
}
DEPTHS = {"new_workers": 2, "depth_1": 1, "depth_2": 2, "depth_8": 8}  # 2: if not told otherwise
FILES = 512
BATCHES = {"resnet18": 8, "resnet50_256": 48}  # of an epoch
LARGE_EVERY, LARGE = 16, 3.0


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Whole epochs, the same in each window, with a worker on each core."""
    workers = keep_to("all")
    step = step_behind(str(point["model"]), seed, gpu)
    require_shared_memory((workers * DEPTHS[arm] + 1) * step.batch * 3 * PIXELS**2)
    files = stored(scratch(), FILES, seed)
    large = {}
    if point["images"] == "some_large":
        files = with_large(files, seed)
        large = {"large": f"each {LARGE_EVERY}th has sides {LARGE:g} times as long"}
    load = pillow_cut(files)
    batches = BATCHES[str(point["model"])]
    order = list(itertools.islice(Order(FILES, step.batch, seed), batches))
    epochs = Epochs(arm, load, order, workers, step)
    return Arm(
        step=epochs.step,
        error=lambda: epochs.error(load),
        synchronize=step.synchronize,
        items=batches * step.batch,
        item="image",
        notes={
            "step": step.said,
            "workers": str(workers),
            **note_of(FILES),
            **large,
        },
    )


def with_large(files: Sequence[Path], seed: int) -> list[Path]:
    """Some of them exchanged."""
    folder = files[0].parent.parent / "large"
    folder.mkdir(exist_ok=True)
    large = stored(folder, len(files) // LARGE_EVERY, seed, LARGE)
    return [
        file if number % LARGE_EVERY else large[number // LARGE_EVERY]
        for number, file in enumerate(files)
    ]


class Epochs:
    """torch's DataLoader, whose workers are kept or made anew, and a step with each batch."""

    def __init__(
        self, arm: str, load: Load, order: Sequence[Keys], workers: int, step: Step
    ) -> None:
        self._order = order
        self._step = step
        self._normalise = Normalising(step.device)
        self._loader: DataLoader[Any] = DataLoader(
            Samples(load),
            batch_sampler=order,
            num_workers=workers,
            collate_fn=stacked,
            prefetch_factor=DEPTHS[arm],
            persistent_workers=arm != "new_workers",
            multiprocessing_context=multiprocessing.get_context("fork"),
            worker_init_fn=end_with_parent(os.getpid()),
        )
        self._taken: list[Keys] = []
        self._seen: list[torch.Tensor] = []

    def step(self) -> None:
        """An epoch. Raises RuntimeError, in one line, where a worker cannot."""
        self._taken.clear()
        try:
            for keys, batch in self._loader:
                self._taken.append(keys)
                self._seen[:] = [self._normalise(batch.to(self._step.device))]
                self._step.train(self._seen[0])
        except RuntimeError as error:
            raise RuntimeError(in_one_line(error)) from error

    def error(self, load: Load) -> float:
        """Of the last batch's images. Raises RuntimeError where an epoch had other batches."""
        if self._taken != list(self._order):
            raise RuntimeError(f"the loader gave {len(self._taken)} batches, or not in their turn")
        return largest_difference(self._seen[0], list(map(load, self._taken[-1])))
