"""input/batch_type: batches of images as FP32 or as bytes, from the samples to the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torchvision
from gpulift_work.images import synthetic_jpegs
from gpulift_work.training import device_of
from gpulift_worker import Arm
from torchvision.transforms.v2 import functional

TECHNIQUE = {
    "question": "What do batches of bytes save, which become FP32 only on the device?",
    "expectation": (
        "64 images of 224 x 224 are 9.6 MB of bytes and 38.5 MB of FP32, 16 are 2.4 and 9.6 MB. "
        "From pixels, on one thread: normalising an image takes 0.21 ms, and stacking 64 such 18.8 "
        "ms, for above 32 MiB malloc gives new pages in each step; bytes are stacked in 1.2 ms, "
        "below it. (64 x 0.21 + 18.8) / 1.2 = 27 times less on the host (of stacking alone 16), "
        "and 16 images, which fault on neither side, (3.4 + 1) / 0.2 = 22. A kept buffer saves "
        "nothing more below 32 MiB. From JPEGs of 500 x 375 pixels decoding and resizing come "
        "first, 1.0 ms an image: 1.54 against 1.05, 1.5 times as fast at 64 and 1.25 at 16. With a "
        "GPU the copy is a fourth: 38.5 MB of pageable memory at 10 GB/s take 3.9 ms, 9.6 MB 1.0 "
        "ms, 0.2 from a pinned buffer; normalising there takes 48 MB / 2 TB/s = 25 us and four "
        "launches. So from pixels (32 + 3.9) / (1.2 + 1.1) = 16 times as fast, and 25 from a "
        "pinned buffer that is kept. Without a GPU nothing becomes FP32 anywhere else."
    ),
    "predict": [
        {
            "case": {"given": "pixels", "images": 64},
            "on": "nvidia",
            "step_time_s": {"fp32_on_host": [0.0324, 0.0396]},
            "speedup": {"uint8": [14.4, 17.6], "uint8_kept_buffer": [22.5, 27.5]},
        },
        {
            "case": {"given": "pixels", "images": 64},
            "on": "cpu",
            "speedup": {"uint8": [24.3, 29.7], "uint8_kept_buffer": [24.3, 29.7]},
        },
        {
            "case": {"given": "pixels", "images": 16},
            "on": "cpu",
            "speedup": {"uint8": [19.8, 24.2], "uint8_kept_buffer": [19.8, 24.2]},
        },
        {
            "case": {"given": "jpegs", "images": 64},
            "speedup": {"uint8": [1.35, 1.65], "uint8_kept_buffer": [1.35, 1.65]},
        },
        {
            "case": {"given": "jpegs", "images": 16},
            "speedup": {"uint8": [1.125, 1.375], "uint8_kept_buffer": [1.125, 1.375]},
        },
    ],
    "found": (
        "64 images from pixels on a processor 212 and 218: their 9.6 MB of bytes are stacked in "
        "0.2 ms, not 1.2, since they stay in the cache from step to step (inferred, not traced), "
        "and FP32 takes 37 to 55 ms, not 32. On an H100 30 and 60: FP32 takes 98 ms, not 36, all "
        "of it on its own thread; why is not known. One launch, with others on 3.2 of 16 cores."
    ),
    "gpus": 1,
    "arms": ["fp32_on_host", "uint8", "uint8_kept_buffer"],
    "l2": "warm",
    "page_cache": "none",
    "sweep": {"given": ["pixels", "jpegs"], "images": [64, 16]},
    "check": {
        "meaning": "largest difference from normalising in FP64, over the largest value",
        "tolerance": 1e-6,
    },
}

SIDE = 224
WIDTH, HEIGHT, FILE_BYTES = 500, 375, 112e3
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet's colours

Tensors = Sequence[torch.Tensor]


class Batches:
    """Makes a batch of samples in each step: one that a model on the device could take."""

    def __init__(
        self,
        arm: str,
        samples: Tensors,
        load: Callable[[torch.Tensor], torch.Tensor],
        device: torch.device,
    ) -> None:
        self._samples = samples
        self._load = load
        self._device = device
        self._on_host = arm == "fp32_on_host"
        self._buffer: torch.Tensor | None = None
        if arm == "uint8_kept_buffer":
            shape = (len(samples), 3, SIDE, SIDE)
            pinned = device.type == "cuda"
            self._buffer = torch.zeros(shape, dtype=torch.uint8, pin_memory=pinned)
        self._batch: torch.Tensor | None = None

    def step(self) -> None:
        """What a loader does of a batch, and the device."""
        images = [self._sample(one) for one in self._samples]
        batch = torch.stack(images, out=self._buffer)
        batch = batch.to(self._device)  # returns when the buffer may be written again
        self._batch = batch if self._on_host else normalised(batch)

    def _sample(self, given: torch.Tensor) -> torch.Tensor:
        pixels = self._load(given)
        return normalised(pixels) if self._on_host else pixels

    def error(self) -> float:
        """Of the last batch."""
        if self._batch is None:
            raise RuntimeError("no batch was made")
        return largest_difference(self._batch, [self._load(one) for one in self._samples])


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Batches of samples that are in memory, as pixels or as files."""
    torch.set_num_threads(1)  # as in a worker process of a loader
    device = device_of(gpu)
    torch.manual_seed(seed)
    count = int(point["images"])
    if point["given"] == "pixels":
        samples = [torch.randint(256, (3, SIDE, SIDE), dtype=torch.uint8) for _ in range(count)]
        batches = Batches(arm, samples, lambda pixels: pixels, device)
    else:
        files = synthetic_jpegs(count, WIDTH, HEIGHT, FILE_BYTES, seed)
        samples = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
        batches = Batches(arm, samples, decoded, device)
    return Arm(
        step=batches.step,
        error=batches.error,
        synchronize=lambda: torch.cuda.synchronize(device) if device.type == "cuda" else None,
        items=count,
        item="image",
        versions={"torch": str(torch.__version__), "torchvision": torchvision.__version__},
        notes={"threads": "1", "device": device.type},
    )


def decoded(file: torch.Tensor) -> torch.Tensor:
    """A JPEG's pixels as bytes, made as small as a model takes them."""
    pixels = torchvision.io.decode_jpeg(file, mode=torchvision.io.ImageReadMode.RGB)
    return functional.resize(pixels, [SIDE, SIDE], antialias=True)


def normalised(images: torch.Tensor) -> torch.Tensor:
    """One or several, as torchvision's transforms do: to 0 to 1, then by the data set's colours."""
    values = functional.to_dtype(images, torch.float32, scale=True)
    return functional.normalize(values, MEAN, DEVIATION)


def largest_difference(found: torch.Tensor, pixels: Tensors) -> float:
    """From the same pixels normalised in FP64, over the largest of the wanted values."""
    if found.shape != (len(pixels), 3, SIDE, SIDE) or found.dtype != torch.float32:
        raise ValueError(f"the batch is {found.dtype}{tuple(found.shape)}")
    mean, deviation = (
        torch.tensor(one, dtype=torch.float64)[:, None, None] for one in (MEAN, DEVIATION)
    )
    largest = most = 0.0
    for image, one in zip(found.cpu(), pixels, strict=True):
        wanted = (one.double() / 255 - mean) / deviation
        largest = max(largest, (image - wanted).abs().max().item())
        most = max(most, wanted.abs().max().item())
    return largest / most
