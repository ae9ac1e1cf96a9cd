"""layout/vocabulary: GPT-2 with its own 50257 words, and with 50304."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    errors_of,
    free_memory,
    keep_the_compiler_quiet,
    make_batch,
    memory_of_step,
    require_compiler,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What is it worth to pad an odd vocabulary, and does a compiler do it by itself?",
    "expectation": """
        Rows of 50257 numbers of two bytes begin anywhere, and tensor cores read 16 bytes at once:
        the output layer's three products, 3.8 TFLOP of 13, take 36 ms by kernels for any place and
        6 ms by those for places of 16 bytes. The 47 words more are 0.1 % of the layer, and no text
        has them. Eager 1.5, as two earlier launches of 16 rows on an H100 were (76.5 and 50.7 ms);
        of 8 rows, one launch has 1.06, since a host took 37 ms to issue what the GPU does in 27.
        Inductor pads such products by itself: 1.04 where it may, 1.55 where its `shape_padding` is
        off. The toy has 61 or 64 words: alike on a processor.
    """,
    "predict": [
        "model:gpt2/form:eager: padded 1.4-1.65",
        "model:gpt2/form:compiled: padded 1.0-1.08",
        "model:gpt2/form:compiled_as_is: padded 1.4-1.7",
        "model:gpt_toy/form:eager: padded 0.9-1.1",
    ],
    "whole_steps": True,
    "arms": ["unpadded", "padded"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"], "form": ["eager", "compiled", "compiled_as_is"]},
    "check": {
        "meaning": "gradients of one step against those of the same model in more bits, relative"
        " to their norm",
        "tolerance": 0.05,
    },
}
FP32_TOLERANCE = 1e-5
ROWS = {"gpt2": 16, "gpt_toy": 8}  # so many that no host sets the pace


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step with as many words as the arm has."""
    name, form = str(point["model"]), str(point["form"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if form != "eager":
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    rows = ROWS[name]
    unpadded = f"{name}_unpadded"
    training = Training(name if arm == "padded" else unpadded, device, seed, batch=rows)
    torch.manual_seed(seed)  # the same text for both, which has none of the words that pad
    training.input, training.target = (one.to(device) for one in make_batch(unpadded, rows))
    if form != "eager":
        options = {"shape_padding": form == "compiled"}
        training.loss_of = torch.compile(training.loss_of, options=options)

    def error() -> float:
        # Of all: what is compiled for another number is another code.
        of_gradients = errors_of(training, rows)[1]
        free_memory(device)
        return of_gradients

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        rest=lambda: free_memory(device),
        tolerance=None if training.bf16 else FP32_TOLERANCE,
        metrics=lambda: memory_of_step(training),
        items=training.input.numel(),
        item="token",
    )
