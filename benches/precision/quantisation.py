"""precision/quantisation: the weights of linear layers in 8-bit integers, and their inputs too."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.compression import (
    CompressedLinear,
    error_of,
    replace_linears,
    weights_left,
    work_of,
)
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    free_memory,
    memory_of,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What do weights and products in 8-bit integers bring to inference and to a "
    "training step?",
    "expectation": """
        GPT-2's layers have 85 M weights. Inference, 8 x 1024 tokens in BF16 on an H100, some 8
        ms: weights in INT8 take 0.085 GB less of some 0.6 GB, 1.15 times less, and are made BF16
        again for each product: 85 M x 7 bytes, 0.2 ms, in 96 calls: 0.95. Products in INT8 have
        twice the peak, 1.2 ms of 2.3 saved at best, and their inputs are quantised in some 6
        passes and the INT32 results scaled in 3: 12300 values x 12 layers x 8192 tokens x 25
        bytes = 30 GB, 10 ms: 0.5. A step keeps its weights in FP32 and quantises them anew: no
        memory saved, and more is made, 0.95 to 1.0 times less; INT8 weights 85 M x 20 bytes, 0.6
        ms of 39: 0.97, products 0.75. The toy on a host: calls bound it, some 4 more a layer with
        INT8 weights, 0.7, and 12 with products, 0.5.
    """,
    "predict": [
        {
            "case": {"model": "gpt2", "task": "inference"},
            "on": "h100",
            "step_time_s": {"plain": [0.0072, 0.0088]},
            "speedup": {"int8_weights": [0.855, 1.045], "int8_products": [0.45, 0.55]},
        },
        {
            "case": {"model": "gpt2", "task": "step"},
            "on": "h100",
            "step_time_s": {"plain": [0.0351, 0.0429]},
            "speedup": {"int8_weights": [0.873, 1.067], "int8_products": [0.675, 0.825]},
        },
        {
            "case": {"model": "gpt_toy"},
            "on": "cpu",
            "speedup": {"int8_weights": [0.63, 0.77], "int8_products": [0.45, 0.55]},
        },
    ],
    "found": (
        "plain waits for the H100's host (share 0.99, windows of 4.1 to 21.6 ms), so that 0.33 is "
        "too good: an H200 takes 4.0 ms for it and has 0.22. int8_products take the H100 itself 20 "
        "ms, not 16: its passes over inputs and results are slower than estimated, or more (not "
        "traced). One launch."
    ),
    "claims": ["quantisation-saves-memory", "quantisation-faster"],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["plain", "int8_weights", "int8_products"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"], "task": ["inference", "step"]},
    "check": {
        "meaning": "logits, or gradients of a step, against those of the quantised weights in "
        "more bits, and products of a whole batch against plain ones, relative",
        "tolerance": 0.05,  # gradients of GPT-2 in BF16 are 0.026 to 0.030 off
    },
}
INT8_TOLERANCE = 0.06  # of inputs that are rounded too: 1/254 of each row's largest, in every layer
FP32_TOLERANCE = 1e-5
LARGEST = 127.0
TINY = 1e-12  # the least that counts as a largest value

Quantised = tuple[torch.Tensor, torch.Tensor]  # integers, and what to multiply each row by


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Inference or a training step with the arm's linear layers."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(name, device, seed)
    if arm != "plain":
        kinds = {"int8_weights": Int8Linear, "int8_products": Int8Product}
        replace_linears(training.model, kinds[arm])
    work = work_of(str(point["task"]), training)

    def error() -> float:
        found = error_of(training, work, weights_left(training.model))
        free_memory(device)
        return found

    return arm_on(
        device,
        threads,
        step=work,
        error=error,
        tolerance=tolerance_of(arm, bf16=training.bf16),
        metrics=lambda: memory_of(work, device),
        items=tokens_of_step(name),
        item="token",
    )


def tolerance_of(arm: str, *, bf16: bool) -> float | None:
    """Where it is not the technique's."""
    if arm == "int8_products":
        return INT8_TOLERANCE
    return None if bf16 else FP32_TOLERANCE


class Int8Linear(CompressedLinear):
    """A linear layer with weights in INT8, a scale for each row; products are plain."""

    def compress(self, weight: torch.Tensor) -> Quantised:
        return quantise(weight)

    def dense(self, kept: Quantised) -> torch.Tensor:
        integers, scale = kept
        return integers * scale

    def product(self, rows: torch.Tensor, kept: Quantised) -> torch.Tensor:
        return rows @ self.dense(kept).to(rows.dtype).T

    def product_of_gradient(self, gradient: torch.Tensor, kept: Quantised) -> torch.Tensor:
        return gradient @ self.dense(kept).to(gradient.dtype)


class Int8Product(Int8Linear):
    """The same, whose inputs are INT8 as well; gradients are not."""

    def product(self, rows: torch.Tensor, kept: Quantised) -> torch.Tensor:
        integers, scale = kept
        inputs, input_scale = quantise(rows)
        found = torch._int_mm(inputs, integers.T) * input_scale * scale.T
        return found.to(rows.dtype)


def quantise(values: torch.Tensor) -> Quantised:
    """Rounded, so that the largest of each row is the largest that there is."""
    largest = values.abs().amax(dim=1, keepdim=True).float().clamp(min=TINY)
    scale = largest / LARGEST
    return (values / scale).round().to(torch.int8), scale
