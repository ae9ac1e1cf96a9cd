"""input/pipeline: a training loop that is fed naively, and what each rung of the ladder brings."""

from __future__ import annotations

import functools
import importlib
import io
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as nnf
from gpulift_work.images import synthetic_jpegs
from gpulift_work.loaders import (
    PREFETCH,
    Collate,
    Key,
    Keys,
    Order,
    ProcessLoader,
    Rounds,
    Samples,
    require_shared_memory,
    stacked,
)
from gpulift_work.steps import alone_s, emulated_step
from gpulift_work.training import IMAGE_SIZES, TWINS, Training, device_of, leave_a_core_free, set_up
from gpulift_worker import Arm, Skip, cores, scratch, usable_cores
from PIL import Image

TECHNIQUE = {
    "question": "How many images a second can this host feed to a training step, and which way of "
    "loading brings most?",
    "expectation": (
        "CPU per image of 112 kB for ResNet-50: decoding by Pillow 1.0 ms, resizing its crop 0.45, "
        "to FP32 and normalised 0.3, stacking into fresh pages 0.3: 2.0 ms. A step takes 0.31 ms "
        "an image, emulated as on an H200: 3,200 images/s. Naive 2.3 ms, 430 images/s, the "
        "accelerator busy for 14 %. Workers: 500 images/s and core until the step is the bound: "
        "2.3 times as fast on 2 cores, 4.6 on 4, 7.4 from 7 on. libjpeg-turbo and a SIMD resize: "
        "0.85 + 0.1 in place of 1.45: 1.5 ms, 1.33 more. uint8 to the trainer: 0.3 + 0.3 become "
        "0.05, 1.0 ms, 1.5 more. One file in place of 64, warm: 10 us of 1,000, 1.01. From 7 cores "
        "on no rung but the workers pays, the whole ladder 7.4; on 4 cores 7.4, too, on 2 4.7. On "
        "the GPU: nvJPEG decodes 64 at 14,000 images/s, 4.6 ms, and 64 crops resized one by one "
        "are 64 x 4 launches, 3 ms, in turn with the step: 0.72 of a step that is never short of "
        "data, 2,300 images/s with one core. ResNet-18: 3 kB of 64 x 64 pixels are 0.1 ms of "
        "Python each, by any decoder, against 32 in 5.6 ms, 0.18 ms each: workers 1.6, and all "
        "later rungs 1.0."
    ),
    "predict": [
        {
            "case": {"model": "resnet50", "cores": 4},
            "speedup": {
                "workers": [4.14, 5.06],
                "libjpeg_turbo": [5.49, 6.71],
                "uint8": [6.66, 8.14],
                "packed": [6.66, 8.14],
                "gpu_decode": [4.815, 5.885],
            },
        },
        # On two cores.
        {
            "case": {"model": "resnet50", "cores": "all"},
            "on": "cpu",
            "speedup": {
                "workers": [2.07, 2.53],
                "libjpeg_turbo": [2.754, 3.366],
                "uint8": [4.14, 5.06],
                "packed": [4.23, 5.17],
            },
        },
        {
            "case": {"model": "resnet18"},
            "speedup": {
                "workers": [1.44, 1.76],
                "libjpeg_turbo": [1.44, 1.76],
                "uint8": [1.44, 1.76],
                "packed": [1.44, 1.76],
            },
        },
    ],
    "found": (
        "On two cores 1.5, 1.9, 2.3 and 2.4: loading is the bound, as predicted, but with both "
        "cores at work an image costs 2.9, 2.1, 1.7 and 1.5 ms of processor where 2.0, 1.5, 1.0 "
        "and 1.0 were estimated; naive takes 2.3. Fresh shared memory, three times as dear in "
        "input/transport as estimated, is part of it: inferred, not traced."
    ),
    "arms": ["naive", "workers", "libjpeg_turbo", "uint8", "packed", "gpu_decode"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["resnet50", "resnet18"], "cores": [4, "all"]},
    "quick": [{"model": "resnet50", "cores": "all"}],
    "check": {
        "meaning": "largest mean difference of an image from Pillow's, of 255",
        "tolerance": 0,
    },
}


@dataclass(frozen=True)
class Source:
    """The images that a model learns from, and the step where there is no GPU."""

    files: int
    images: int  # different ones: file i has image i modulo this
    width: int
    height: int
    mean_bytes: float
    kind: str  # of the emulated step
    batch: int  # of it: smaller than on a GPU, so that two cores load it in a tenth of a second
    step_s: float  # of it


SOURCES = {
    # Eager PyTorch takes 19.7 ms for 64 on an H200 (compile/torch_compile): 3,200 images/s.
    "resnet50": Source(64, 16, 500, 375, 112e3, "sleeping", 16, 5e-3),
    # Launches set the pace there: 5.6 ms whatever the batch (transfer/training_prefetch).
    "resnet18": Source(64, 64, 64, 64, 3e3, "launching", 32, 5.6e-3),
}
RESIZED_TOLERANCE = 1.0  # of 255: crops resized by torch are rounded otherwise than by Pillow
GPU_TOLERANCE = 2.0  # nvJPEG has another inverse transform and other chroma
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SMALLEST_AREA = 0.08  # of a crop, over the image's: those of torchvision's RandomResizedCrop
MOST_ASPECT = 4 / 3
MOST_WORKERS = 32  # four times what a step of ResNet-50 needs; each has 150 MB ahead
LOADING_ROUNDS = 3
PACKED_PREFETCH = 4  # batches ahead of each worker


@dataclass(frozen=True)
class Crop:
    """What augmentation does to a sample in an epoch."""

    left: int
    top: int
    width: int
    height: int
    flipped: bool


@dataclass(frozen=True)
class Rung:
    """How an arm loads; each has more than the arm before it. One that is packed also has more
    batches ahead, which on a GPU are pinned and copied without waiting."""

    workers: bool = True
    turbo: bool = True
    uint8: bool = True
    packed: bool = True
    on_gpu: bool = False
    tolerance: float = 0.0


TOP = Rung(tolerance=RESIZED_TOLERANCE)
RUNGS = {
    "naive": Rung(workers=False, turbo=False, uint8=False, packed=False),
    "workers": Rung(turbo=False, uint8=False, packed=False),
    "libjpeg_turbo": replace(TOP, uint8=False, packed=False),
    "uint8": replace(TOP, packed=False),
    "packed": TOP,
    "gpu_decode": replace(TOP, on_gpu=True, tolerance=GPU_TOLERANCE),
}


class Trainer(Protocol):
    """Takes batches as a loader gives them."""

    def step(self, batch: Any) -> None:
        """Trains on it."""

    def synchronize(self) -> None:
        """Waits for all steps."""

    def images(self, batch: Any) -> Any:
        """The batch as the model sees it, on the host: [image, channel, row, column]."""


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Rounds of an arm: a batch of each worker, and a step with each."""
    rung = RUNGS[arm]
    if rung.on_gpu and gpu is None:
        raise Skip("there is no GPU to decode on")
    here = keep_to(point["cores"])
    model = str(point["model"])
    source = SOURCES[model]
    pixels = IMAGE_SIZES[model][0]
    batch = source.batch if gpu is None else TWINS[model].batch
    files = stored_files(scratch(), source, seed)
    read = packed(files) if rung.packed else one_by_one(files)
    crop = Cropping(source.width, source.height)
    order = Order(source.files, batch, seed)
    load, collate = loading(rung, read, crop, pixels)
    workers = here if rung.workers else 0
    prefetch = PACKED_PREFETCH if rung.packed else PREFETCH
    sample_bytes = 3 * pixels**2 * (1 if rung.uint8 else 4)
    if rung.workers:
        require_shared_memory((workers * prefetch + 1) * batch * sample_bytes)
    trainer = make_trainer(model, seed, gpu, Preparation(rung, crop, pixels))
    loader = ProcessLoader(
        Samples(load),
        order,
        workers,
        prefetch=prefetch,
        collate=collate,
        pin_memory=rung.packed and gpu is not None,
    )
    rounds = Rounds(loader, order, trainer.step, max(1, workers))

    def wait() -> None:
        trainer.synchronize()
        loader.wait()

    def rest() -> None:
        trainer.synchronize()
        rounds.rest()

    def error() -> float:
        keys, found = rounds.last
        wanted = reference(read, crop, pixels)
        return largest_difference(trainer.images(found), [wanted(key) for key in keys])

    return Arm(
        step=rounds.step,
        error=error,
        synchronize=wait,
        rest=rest,
        tolerance=rung.tolerance,
        items=rounds.batches * batch,
        item="image",
        metrics=lambda: metrics_of(rounds, trainer, batch),
        notes={
            "step": str(trainer),
            "cores": str(here),
            "batch": str(batch),
            "files": f"{source.files} with {source.images} different synthetic JPEGs of "
            f"{source.width} x {source.height} pixels and {source.mean_bytes / 1e3:.0f} kB",
        },
    )


def keep_to(asked: int | str) -> int:
    """Lets this process and its workers have so many cores."""
    here = cores()
    if asked != "all" and here < int(asked):
        raise Skip(f"this machine has {here} cores, not {asked}")
    kept = min(here, MOST_WORKERS) if asked == "all" else int(asked)
    os.sched_setaffinity(0, usable_cores()[:kept])
    return kept


def metrics_of(rounds: Rounds, trainer: Trainer, batch: int) -> dict[str, float]:
    """Where the time of a round goes, and what the loader gives when nothing trains."""
    trainer.synchronize()
    spent = rounds.spent(trainer.synchronize)
    loading = rounds.loading(LOADING_ROUNDS)
    _, data = rounds.last

    def train() -> None:
        trainer.step(data)
        trainer.synchronize()

    step_s = alone_s(train)
    images = rounds.batches * batch
    return {
        "data_wait_share": spent.wait_s / spent.round_s,
        "accelerator_busy_share": min(1.0, rounds.batches * step_s / spent.round_s),
        "step_alone_s": step_s,
        "loader_images_per_s": LOADING_ROUNDS * images / loading.rounds_s,
        "loader_images_per_cpu_s": LOADING_ROUNDS * images / loading.cpu_s,
    }


# --- Samples ---


def stored_files(folder: Path, source: Source, seed: int) -> list[Path]:
    """One file a sample; the case's first arm writes them."""
    images = folder / "images"
    files = [images / f"{number:05d}.jpg" for number in range(source.files)]
    if not images.exists():
        jpegs = synthetic_jpegs(source.images, source.width, source.height, source.mean_bytes, seed)
        unfinished = folder / f"images-{os.getpid()}"
        unfinished.mkdir()
        for number, file in enumerate(files):
            (unfinished / file.name).write_bytes(jpegs[number % source.images])
        unfinished.rename(images)
    return files


def one_by_one(files: Sequence[Path]) -> Callable[[int], bytes]:
    """Opens a file for each sample."""
    return lambda number: files[number].read_bytes()


def packed(files: Sequence[Path]) -> Callable[[int], bytes]:
    """All samples in one file, which is open, by their places in it."""
    pack = files[0].parent.with_name(f"pack-{os.getpid()}")
    places: list[tuple[int, int]] = []
    with pack.open("wb") as file:
        for sample in files:
            start = file.tell()
            places.append((start, file.write(sample.read_bytes())))
    descriptor = os.open(pack, os.O_RDONLY | os.O_CLOEXEC)
    pack.unlink()  # it lives as long as this process and its workers

    def read(number: int) -> bytes:
        start, size = places[number]
        return os.pread(descriptor, size, start)

    return read


@dataclass(frozen=True)
class Cropping:
    """Draws the crop of a sample anew in each epoch, the same in all arms, processes and launches:
    a larger one is more work."""

    width: int
    height: int

    def __call__(self, key: Key) -> Crop:
        generator = random.Random(f"{key[0]} {key[1]}")
        area = generator.uniform(SMALLEST_AREA, 1.0) * self.width * self.height
        aspect = math.exp(generator.uniform(-1, 1) * math.log(MOST_ASPECT))
        width = min(self.width, max(1, round(math.sqrt(area * aspect))))
        height = min(self.height, max(1, round(math.sqrt(area / aspect))))
        return Crop(
            left=generator.randint(0, self.width - width),
            top=generator.randint(0, self.height - height),
            width=width,
            height=height,
            flipped=generator.random() < 0.5,
        )


def loading(
    rung: Rung, read: Callable[[int], bytes], crop: Cropping, pixels: int
) -> tuple[Callable[[Key], Any], Collate]:
    """What a worker makes of a sample, and of the samples of a batch."""
    if rung.on_gpu:
        return lambda key: read(key[1]), joined
    cut = turbo_cut(read, crop, pixels) if rung.turbo else pillow_cut(read, crop, pixels)
    if rung.uint8:
        return cut, stacked
    return lambda key: normalised(cut(key)), stacked


def pillow_cut(
    read: Callable[[int], bytes], crop: Cropping, pixels: int
) -> Callable[[Key], torch.Tensor]:
    """Decoded, cropped and resized by Pillow: [row, column, channel]."""

    def cut(key: Key) -> torch.Tensor:
        place = crop(key)
        box = (place.left, place.top, place.left + place.width, place.top + place.height)
        image = Image.open(io.BytesIO(read(key[1]))).convert("RGB").crop(box)
        image = image.resize((pixels, pixels), Image.Resampling.BILINEAR)
        if place.flipped:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image))

    return cut


def turbo_cut(
    read: Callable[[int], bytes], crop: Cropping, pixels: int
) -> Callable[[Key], torch.Tensor]:
    """Decoded by libjpeg-turbo as simplejpeg brings it; torch resizes 8 bits by SIMD where the
    channels lie together."""
    simplejpeg = importlib.import_module("simplejpeg")

    def cut(key: Key) -> torch.Tensor:
        image = torch.from_numpy(simplejpeg.decode_jpeg(read(key[1]), "RGB"))
        return resized(image.permute(2, 0, 1), crop(key), pixels).permute(1, 2, 0)

    return cut


def resized(image: torch.Tensor, place: Crop, pixels: int) -> torch.Tensor:
    """The crop of an image [channel, row, column]."""
    cropped = image[:, place.top : place.top + place.height, place.left : place.left + place.width]
    found = nnf.interpolate(
        cropped[None], (pixels, pixels), mode="bilinear", antialias=True, align_corners=False
    )[0]
    return found.flip(2) if place.flipped else found


def normalised(image: torch.Tensor) -> torch.Tensor:
    """FP32 of [row, column, channel], as [channel, row, column]."""
    values = image.permute(2, 0, 1).contiguous().float().div_(255)
    return values.sub_(torch.tensor(MEAN)[:, None, None]).div_(torch.tensor(STD)[:, None, None])


def joined(samples: list[tuple[Key, Any]]) -> tuple[Keys, Any]:
    """Files of a batch in one tensor: each tensor of its own would be a file of shared memory."""
    keys = [key for key, _ in samples]
    everything = torch.frombuffer(
        bytearray(b"".join(data for _, data in samples)), dtype=torch.uint8
    )
    return keys, (keys, [len(data) for _, data in samples], everything.share_memory_())


# --- Training ---


@dataclass(frozen=True)
class Preparation:
    """What is left to do on the accelerator: batches as the model sees them."""

    rung: Rung
    crop: Cropping
    pixels: int

    def __call__(self, batch: Any, device: torch.device) -> torch.Tensor:
        if self.rung.on_gpu:
            batch = self._decoded(batch, device)
        else:
            batch = batch.to(device, non_blocking=self.rung.packed)
        if not self.rung.uint8:
            found: torch.Tensor = batch
            return found
        mean, std = colours_on(device)
        return batch.permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)

    def _decoded(self, batch: tuple[Keys, list[int], Any], device: torch.device) -> torch.Tensor:
        """By nvJPEG, and resized one by one, since no crop is as large as another."""
        vision = importlib.import_module("torchvision.io")
        keys, sizes, everything = batch
        images = vision.decode_jpeg(
            list(everything.split(sizes)), mode=vision.ImageReadMode.RGB, device=device
        )
        found = [
            resized(image.float(), self.crop(key), self.pixels)
            for key, image in zip(keys, images, strict=True)
        ]
        return torch.stack(found).round_().clamp_(0, 255).permute(0, 2, 3, 1)


@functools.cache
def colours_on(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation, once: to bring them there in each step would wait for the device."""
    mean, std = (torch.tensor(one, device=device)[:, None, None] for one in (MEAN, STD))
    return mean, std


class EmulatedTrainer:
    """Takes the time of a step; what it would do with the batch is no work of this host."""

    def __init__(self, source: Source, prepare: Preparation) -> None:
        self._step = emulated_step(source.kind, source.step_s)
        self._prepare = prepare

    def step(self, batch: Any) -> None:
        """Takes the step's time."""
        self._step()

    def synchronize(self) -> None:
        """A step is done when it returns."""

    def images(self, batch: Any) -> Any:
        """What the accelerator would have made of it."""
        return self._prepare(batch, torch.device("cpu"))

    def __str__(self) -> str:
        return str(self._step)


class ModelTrainer:
    """Trains on a GPU."""

    def __init__(self, model: str, device: torch.device, seed: int, prepare: Preparation) -> None:
        set_up(device)
        self._training = Training(model, device, seed)
        self._prepare = prepare
        self._memory_format = (
            torch.channels_last if TWINS[model].channels_last else torch.contiguous_format
        )

    def step(self, batch: Any) -> None:
        """Brings the batch there, prepares it and trains."""
        found = self._prepare(batch, self._training.device)
        self._training.input = found.contiguous(memory_format=self._memory_format)
        self._training.step()

    def synchronize(self) -> None:
        """Waits for the device."""
        self._training.synchronize()

    def images(self, batch: Any) -> Any:
        """As the model saw it."""
        return self._prepare(batch, self._training.device).cpu()

    def __str__(self) -> str:
        return "training on the GPU"


def make_trainer(model: str, seed: int, gpu: int | None, prepare: Preparation) -> Trainer:
    """On the GPU where there is one."""
    leave_a_core_free()
    if gpu is None:
        return EmulatedTrainer(SOURCES[model], prepare)
    if prepare.rung.on_gpu:
        importlib.import_module("torchvision")
    return ModelTrainer(model, device_of(gpu), seed, prepare)


# --- Check ---


def reference(
    read: Callable[[int], bytes], crop: Cropping, pixels: int
) -> Callable[[Key], torch.Tensor]:
    """What the naive arm makes of a sample."""
    cut = pillow_cut(read, crop, pixels)
    return lambda key: normalised(cut(key))


def largest_difference(found: torch.Tensor, wanted: Sequence[torch.Tensor]) -> float:
    """The largest mean over an image, in steps of 8 bits."""
    if len(found) != len(wanted):
        raise ValueError(f"a batch of {len(found)} images, not {len(wanted)}")
    scale = 255 * torch.tensor(STD)[:, None, None]
    return max(
        float(((one - want) * scale).abs().mean()) for one, want in zip(found, wanted, strict=True)
    )
