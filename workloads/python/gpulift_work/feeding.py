"""What photographs go through on their way to a model, as torchvision has it, and steps behind.

Each sample is cut anew in each epoch, the same way in all arms, processes and launches: the draws
of its transforms come from its key.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpulift_worker import Arm, Skip, cores, nothing, usable_cores
from PIL import Image
from torch.nn.functional import avg_pool2d
from torchvision import io
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from gpulift_work.images import photographs
from gpulift_work.loaders import Key, Keys, Load, Rounds
from gpulift_work.steps import SleepingStep, alone_s
from gpulift_work.training import (
    IMAGE_SIZES,
    TWINS,
    Training,
    device_of,
    leave_a_core_free,
    require_gpu_for,
    set_up,
)

PIXELS = 224
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet's colours
EMULATED = "emulated"  # in place of a model
EMULATED_BATCH = 16  # so few that two cores load it in 25 ms
EMULATED_S = 4.6e-3  # an H100 takes 74 ms for 256 images of ResNet-50
MOST_CORES = 16  # about what machines have for each GPU
EPOCH_STRIDE = 1_000_003  # between the draws of two epochs
ONE_GENERATOR = threading.Lock()  # of torch's, which threads share

CROP = v2.RandomResizedCrop(PIXELS, antialias=True)
NORMALISED = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])


def keep_to(asked: int | str) -> int:
    """Lets this process and its workers have so many cores."""
    here = cores()
    if asked != "all" and here < int(asked):
        raise Skip(f"this machine has {here} cores, not {asked}")
    kept = min(here, MOST_CORES) if asked == "all" else int(asked)
    os.sched_setaffinity(0, usable_cores()[:kept])
    return kept


def with_cores(workers: int) -> int:
    """So many, of which each has a core of its own. Raises Skip where there are fewer."""
    if workers > cores():
        raise Skip(f"{workers} workers need as many cores, and there are {cores()}")
    return workers


def stored(folder: Path, files: int, seed: int, scale: float = 1.0) -> list[Path]:
    """One file a sample, of mixed sizes; the case's first arm writes them."""
    images = folder / "images"
    names = [f"{number:05d}.jpg" for number in range(files)]
    if not images.exists():
        jpegs = photographs(seed, scale)
        unfinished = folder / f"images-{os.getpid()}"
        unfinished.mkdir()
        for number, name in enumerate(names):
            (unfinished / name).write_bytes(jpegs[number % len(jpegs)])
        unfinished.rename(images)
    return [images / name for name in names]


@dataclass(frozen=True)
class Place:
    """What torchvision's RandomResizedCrop and RandomHorizontalFlip draw."""

    top: int
    left: int
    height: int
    width: int
    flipped: bool

    def cut(self, image: Any) -> Any:
        """The crop, resized and flipped or not: of an image of Pillow's, or of a tensor wherever it
        is."""
        box = (self.top, self.left, self.height, self.width)
        found = functional.resized_crop(image, *box, size=[PIXELS, PIXELS], antialias=True)
        return functional.horizontal_flip(found) if self.flipped else found


def place_of(key: Key, width: int, height: int) -> Place:
    """That of a sample whose image has this size."""
    with ONE_GENERATOR:
        torch.default_generator.manual_seed(key[0] * EPOCH_STRIDE + key[1])
        drawn = CROP.make_params([torch.empty(3, height, width, device="meta")])
        return Place(**drawn, flipped=bool(torch.rand(1) < 0.5))


def encoded(files: Sequence[Path]) -> Load:
    """The file itself, and where to cut its image."""

    def load(key: Key) -> tuple[bytes, Place]:
        with files[key[1]].open("rb") as file, Image.open(file) as image:
            place = place_of(key, *image.size)
            file.seek(0)
            return file.read(), place

    return load


Encoded = tuple[list[int], torch.Tensor, list[Place]]


def joined(samples: list[tuple[Key, tuple[bytes, Place]]]) -> tuple[Keys, Encoded]:
    """Files of a batch in one tensor, with their sizes: each tensor of its own would be a file of
    shared memory."""
    files = [file for _, (file, _) in samples]
    everything = torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8)
    return [key for key, _ in samples], (
        list(map(len, files)),
        everything,
        [place for _, (_, place) in samples],
    )


def pillow_cut(files: Sequence[Path]) -> Load:
    """By Pillow, which torchvision takes if not told otherwise: [channel, row, column]."""

    def load(key: Key) -> torch.Tensor:
        with Image.open(files[key[1]]) as image:
            part = place_of(key, *image.size).cut(image.convert("RGB"))
            found: torch.Tensor = functional.pil_to_tensor(part)
        return found

    return load


def tensor_cut(files: Sequence[Path]) -> Load:
    """By torchvision's own decoder, and its transforms of tensors."""
    return lambda key: decoded_cut(key, io.read_file(str(files[key[1]])))


def decoded_cut(key: Key, file: torch.Tensor) -> torch.Tensor:
    """The same of a file that is in memory."""
    image = io.decode_jpeg(file, mode=io.ImageReadMode.RGB)
    found: torch.Tensor = place_of(key, image.shape[2], image.shape[1]).cut(image)
    return found


def normalised(load: Load) -> Load:
    """The same in FP32."""
    return lambda key: NORMALISED(load(key))


class Normalising:
    """Bytes on a device to what NORMALISED gives. Its constants are there once: torchvision's
    transform brings them anew for each batch, and waits for all that the device has to do."""

    def __init__(self, device: torch.device) -> None:
        self._mean, self._deviation = (
            255 * torch.tensor(one, device=device)[:, None, None] for one in (MEAN, DEVIATION)
        )

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.float().sub_(self._mean).div_(self._deviation)


@dataclass(frozen=True)
class Step:
    """What feeds on the batches."""

    batch: int
    device: torch.device
    train: Callable[[torch.Tensor], object]
    synchronize: Callable[[], object]
    said: str


def step_behind(model: str, seed: int, gpu: int | None) -> Step:
    """A training step of the model, or one that takes the time of one."""
    leave_a_core_free()
    if model == EMULATED:
        sleeping = SleepingStep(EMULATED_S)
        host = torch.device("cpu")
        return Step(EMULATED_BATCH, host, lambda _: sleeping(), nothing, str(sleeping))
    require_gpu_for(model, gpu)
    device = device_of(gpu)
    set_up(device)
    training = Training(model, device, seed)
    twin = TWINS[model]
    layout = torch.channels_last if twin.channels_last else torch.contiguous_format

    where = "the processor" if gpu is None else "the GPU"
    shrink = PIXELS // IMAGE_SIZES[twin.model or model][0]

    def train(images: torch.Tensor) -> None:
        if shrink > 1:
            images = avg_pool2d(images, shrink)
        training.input = images.contiguous(memory_format=layout)
        training.step()

    return Step(twin.batch, device, train, training.synchronize, f"training on {where}")


def arm_of(
    rounds: Rounds,
    synchronize: Callable[[], object],
    item: str = "image",
    rest_too: Callable[[], object] = nothing,
    **said: Any,
) -> Arm:
    """An arm whose windows are rounds of a loading that goes on."""

    def settle() -> None:
        rounds.settle()
        synchronize()

    def rest() -> None:
        synchronize()
        rounds.rest()
        rest_too()

    return Arm(
        step=rounds.step,
        before=settle,
        synchronize=synchronize,
        rest=rest,
        item=item,
        **said,
    )


def step_alone_s(step: Step, images: torch.Tensor) -> float:
    """What a step takes that nothing feeds."""

    def train() -> None:
        step.train(images)
        step.synchronize()

    train()
    return alone_s(train)


def shares(
    rounds: Rounds, step: Step, step_s: float, least_items: int, item: str = "image"
) -> dict[str, float]:
    """How near the step comes to its own rate, and what the loader takes when nothing trains, over
    rounds of so many items."""
    count = max(1, least_items // step.batch // rounds.batches)
    looked = count * rounds.batches
    fed = rounds.look(count, rounds.train, step.synchronize)
    loading = rounds.look(count, lambda _: None, nothing)
    return {
        "step_rate_share": looked * step_s / fed.seconds,
        "data_wait_share": fed.wait_s / fed.seconds,
        f"loader_{item}s_per_s": looked * step.batch / loading.seconds,
        f"loader_cpu_s_per_{item}": loading.cpu_s / (looked * step.batch),
    }


def largest_difference(found: torch.Tensor, wanted: Sequence[torch.Tensor]) -> float:
    """Of normalised images from bytes: the largest mean over an image, in steps of 8 bits."""
    if found.dtype != torch.float32 or found.shape != (len(wanted), 3, PIXELS, PIXELS):
        raise ValueError(f"the batch is {found.dtype}{tuple(found.shape)}, not of {len(wanted)}")
    mean, deviation = (torch.tensor(one)[:, None, None] for one in (MEAN, DEVIATION))
    levels = 255 * (found.cpu() * deviation + mean)
    # The worst of all images: one that is wrong is not hidden by hundreds that are right.
    return max(
        float((one - want.float()).abs().mean()) for one, want in zip(levels, wanted, strict=True)
    )


def note_of(files: int, scale: float = 1.0) -> Mapping[str, str]:
    """What the samples are."""
    of = "as ImageNet's" if scale == 1 else f"{scale:g} times as long as ImageNet's"
    return {"files": f"{files} synthetic JPEGs of mixed sizes, sides {of}, 12 of them different"}
