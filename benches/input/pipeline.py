"""input/pipeline: a training loop that is fed naively, and what each rung of the ladder brings."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.feeding import (
    EMULATED,
    PIXELS,
    Normalising,
    arm_of,
    keep_to,
    largest_difference,
    normalised,
    note_of,
    pillow_cut,
    shares,
    step_alone_s,
    step_behind,
    stored,
    tensor_cut,
)
from gpulift_work.loaders import PREFETCH, Order, ProcessLoader, Samples
from gpulift_work.loaders import require_shared_memory as require_shared
from gpulift_work.overlapping import Overlapping
from gpulift_worker import Arm, Skip, scratch

TECHNIQUE = {
    "question": "How many images a second can this host feed to a training step, and what does "
    "each setting of the loader bring on top of those before it?",
    "expectation": """
        JPEGs of mixed sizes as ImageNet has them, 112 kB in the mean, through torchvision's
        RandomResizedCrop, flip and normalising. The loop of naive has one thread, as each worker
        has: of small images torch's threads, one a core, share out each and spin while they wait
        for one another. Processor time an image on an EPYC, one core at work: Pillow decodes in
        1.55 ms, crops and resizes in 0.8, FP32 and normalising 0.5, stacking into fresh pages 0.35:
        3.2 ms. Cores that are all at work take 1.4 times as long. naive: 310 images/s. An H100
        takes 74 ms for 256 images of ResNet-50 in BF16, 3,460/s, an H200 62, 4,130/s. workers, 16
        cores: 3,600/s, as many as the step takes; but its 154 MB of FP32 are copied from pageable
        memory at 10 GB/s, 15 ms in turn with the step: 2,880/s, 9 times naive. tensors, decoded and
        cropped in 1.7 ms and normalised in 0.1: 2.15 ms, 1.5 times less, which pays where cores are
        short. pinned: 3 ms of copying, not waited for: 3,300/s. uint8: a fourth of the bytes over
        shared memory and the link, normalised on the GPU in 0.1 ms: 1.8 ms an image, 3,420/s, 11
        times naive for half of its processor time. On 4 cores loading is the bound of all rungs:
        890, 1,330, 1,330 and 1,590/s. ViT-L/16 takes 128 images in 160 ms, 800/s: 2.6 times naive
        by workers alone, 4 or 16, and nothing more. The emulated step, 4.6 ms for 16 images, takes
        nothing to a device, so that two rungs are skipped: on 2 cores workers 450/s where naive has
        285, 1.6, tensors 660, 2.3.
    """,
    "predict": [
        "model:resnet50_256/cores:all @h100: naive 650-1000 ms, workers 7.5-10, tensors 8.3-10.5,"
        " pinned 9.5-12, uint8 10-12.5",
        "model:resnet50_256/cores:4: workers 2.5-3.5, tensors 3.8-5, pinned 3.8-5, uint8 4.5-6",
        "model:vit_l16 @h100: workers 2.2-2.9, tensors 2.2-2.9, pinned 2.2-2.9, uint8 2.2-2.9",
        # On two cores.
        "model:emulated/cores:all @cpu: workers 1.35-1.75, tensors 1.9-2.5",
    ],
    "found": """
        One launch on an H100 with 16 cores: 189, 2,170, 2,560, 3,360 and 3,910 images/s, where the
        step alone takes 3,920: bytes that the GPU normalises are the rung that feeds it. The last
        rung is 24 times naive, twice of what was predicted, since naive is half as fast: 5.9 ms
        an image, in which 14 cores are busy. torch's threads, one a core, share out each small
        image and spin while they wait for each other; this is inferred, not traced. Since
        2026-11-29 it has one thread, and is not measured anew.
    """,
    "claims": ["loader-pin-memory-faster"],
    "arms": ["naive", "workers", "tensors", "pinned", "uint8"],
    "l2": "by_size",
    "page_cache": "warm",
    "sweep": {"model": ["emulated", "resnet50_256", "vit_l16"], "cores": [4, "all"]},
    "quick": [{"model": "emulated", "cores": "all"}],
    "check": {
        "meaning": "largest mean difference of an image from Pillow's, of 255",
        "tolerance": 0.5,
    },
}
LADDER: list[str] = TECHNIQUE["arms"]  # type: ignore[assignment]
FILES = 1024
LEAST_IMAGES = 32  # that each worker makes for a round
LOOKED_IMAGES = 256


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Rounds of a loader with the settings up to the arm's, and a step with each batch."""
    has = LADDER[: LADDER.index(arm) + 1]
    model = str(point["model"])
    if "pinned" in has and model == EMULATED:
        raise Skip("an emulated step takes nothing to a GPU", "a model's case has this rung")
    here = keep_to(point["cores"])
    step = step_behind(model, seed, gpu)
    files = stored(scratch(), FILES, seed)
    cut = tensor_cut(files) if "tensors" in has else pillow_cut(files)
    order = Order(FILES, step.batch, seed)
    workers = here if "workers" in has else 0
    image_bytes = 3 * PIXELS**2 * (1 if "uint8" in has else 4)
    if workers:
        require_shared((workers * PREFETCH + 1) * step.batch * image_bytes)
    loader = ProcessLoader(
        Samples(cut if "uint8" in has else normalised(cut)),
        order,
        workers,
        pin_memory="pinned" in has,
    )
    if not workers:
        torch.set_num_threads(1)  # as torch does in each worker
    normalise = Normalising(step.device) if "uint8" in has else None
    seen: list[torch.Tensor] = []

    def train(batch: torch.Tensor) -> None:
        images = batch.to(step.device, non_blocking="pinned" in has)
        seen[:] = [normalise(images) if normalise else images]
        step.train(seen[0])

    batches = max(1, workers) * max(1, LEAST_IMAGES // step.batch)
    rounds = Overlapping(loader, order, train, batches)

    def error() -> float:
        return largest_difference(seen[0], list(map(pillow_cut(files), rounds.trained)))

    def metrics() -> dict[str, float]:
        step_s = step_alone_s(step, seen[0])
        return {"step_alone_s": step_s, **shares(rounds, step, step_s, LOOKED_IMAGES)}

    return arm_of(
        rounds,
        step.synchronize,
        error=error,
        items=batches * step.batch,
        metrics=metrics,
        notes={
            "step": step.said,
            "cores": str(here),
            "batch": str(step.batch),
            "torch_threads": str(torch.get_num_threads()),
            **note_of(FILES),
        },
    )
