"""input/batch_type: images that a loader's workers send as FP32, or as bytes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.feeding import (
    PIXELS,
    Normalising,
    arm_of,
    keep_to,
    largest_difference,
    normalised,
    note_of,
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
from gpulift_work.training import device_of, leave_a_core_free
from gpulift_worker import Arm, scratch

TECHNIQUE = {
    "question": "What do batches of bytes save, which become FP32 only on the device?",
    "expectation": """
        Both arms end as normalised FP32 on the GPU, which a model under autocast takes, and come
        there from DataLoader's workers, one a core, by its pinned memory. An image is 602 kB of
        FP32 or 151 kB of bytes. Per image and core FP32 and normalising take 0.1 ms, and stacking
        into fresh shared memory 0.35 ms of FP32 and 0.09 of bytes. From pixels 16 cores make 35,000
        images a second of FP32, but one thread copies all of them from shared into pinned memory,
        and faults their pages in: 154 MB in 30 ms, 8,500/s, where 38 MB of bytes take 8 ms,
        32,000/s: 3.8 times as fast, at any batch. The link, at 55 GB/s, takes 2.8 and 0.7 ms of a
        batch, beside that; normalising on the GPU reads and writes 39 and 154 MB three times, 0.3
        ms. From JPEGs decoding and cropping, 1.7 ms, come first: 2.15 against 1.8 ms, 1.2 times as
        fast.
    """,
    "predict": [
        "given:pixels/batch:256: uint8 2.8-4.5",
        "given:pixels/batch:64: uint8 2.5-4.5",
        "given:jpegs/batch:256: uint8 1.1-1.35",
        "given:jpegs/batch:64: uint8 1.1-1.35",
    ],
    "found": """
        JPEGs, 256 a batch, one launch on an H100 with 16 cores: 2,670 and 4,370 images/s, 1.5, not
        1.2. With all cores at work an image takes 4.9 and 3.5 ms of one, where 2.15 and 1.8 were
        predicted: what the workers write to memory costs more than what they compute.
    """,
    "gpus": 1,
    "arms": ["fp32_in_worker", "uint8"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"given": ["pixels", "jpegs"], "batch": [256, 64]},
    "check": {
        "meaning": "largest mean difference of an image from the bytes, of 255",
        "tolerance": 1e-3,
    },
}
FILES = 1024
LOOKED = 4  # rounds


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Batches of a loader that end as FP32 on the device."""
    workers = keep_to("all")
    leave_a_core_free()
    device = device_of(gpu)
    batch = int(point["batch"])
    load = tensor_cut(stored(scratch(), FILES, seed)) if point["given"] == "jpegs" else drawn(seed)
    sends_bytes = arm == "uint8"
    image_bytes = 3 * PIXELS**2 * (1 if sends_bytes else 4)
    require_shared_memory((workers * PREFETCH + 1) * batch * image_bytes)
    order = Order(FILES, batch, seed)
    on_gpu = device.type == "cuda"
    loader = ProcessLoader(
        Samples(load if sends_bytes else normalised(load)), order, workers, pin_memory=on_gpu
    )
    normalise = Normalising(device)
    seen: list[torch.Tensor] = []

    def bring(images: torch.Tensor) -> None:
        images = images.to(device, non_blocking=True)
        seen[:] = [normalise(images) if sends_bytes else images]

    def synchronize() -> None:
        if on_gpu:
            torch.cuda.synchronize(device)

    rounds = Rounds(loader, order, bring, workers)

    def metrics() -> dict[str, float]:
        look = rounds.look(LOOKED, bring, synchronize)
        return {"loader_cpu_s_per_image": look.cpu_s / (LOOKED * workers * batch)}

    return arm_of(
        rounds,
        synchronize,
        error=lambda: largest_difference(seen[0], list(map(load, rounds.last[0]))),
        metrics=metrics,
        items=workers * batch,
        notes={"workers": str(workers), "device": device.type, **note_of(FILES)},
    )


def drawn(seed: int) -> Load:
    """Pixels that are in memory."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    shape = (FILES, 3, PIXELS, PIXELS)
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def load(key: Key) -> torch.Tensor:
        return pixels[key[1]]

    return load
