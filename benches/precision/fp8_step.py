"""precision/fp8_step: the linear layers of a training step in BF16, or in FP8 by torchao."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpulift_work.fp8 import convert_to_fp8
from gpulift_work.resting import Resting
from gpulift_work.training import (
    CHECKED_STEPS,
    TEXT_SIZES,
    TWINS,
    arm_on,
    device_of,
    gradient_error,
    keep_the_compiler_quiet,
    largest_deviation,
    memory_of_step,
    reference_losses,
    require_compiler,
    require_fp8,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm
from torch import nn

TECHNIQUE = {
    "question": "Which recipe of FP8 linear layers shortens a training step, and what does it do "
    "to gradients and loss?",
    "expectation": """
        llama_1b, 8192 tokens, compiled, on an H100: the layers' products are 48 TFLOP, 75 ms of 146
        in BF16; the output layer stays in BF16. By tensor FP8 multiplies at 1100 TFLOP/s: 32 ms
        less; inputs, gradients and weights are read for the largest, read again and written in 8
        bits, in two layouts: 16 ms more: 1.1. By rows products are slower, 15 ms less, and each
        layout has scales of its own, one of them by columns, 26 ms more: 0.93. With the weight's
        gradient in BF16, rows alone are scaled: two thirds of the products 10 ms less, 10 ms more:
        1.0. The control is our layer by tensor, which casts all in BF16 first: 1.05. GPT-2, 768
        wide, 18 ms: products 2 ms less, casts 4 ms more: 0.9, by rows 0.85. Eager, as nobody would
        run it, a cast is 8 passes and launches: 0.6 of llama_1b, and of GPT-2, where the host sets
        the pace, 0.3. Gradients: E4M3 keeps 4 bits and E5M2, which by tensor has the gradients, 3:
        0.1 to 0.25 off by tensor, less by rows, and least with the weight's gradient in BF16.
        Losses of 20 steps within 2 % of FP32. Memory is the same: inputs are kept in BF16. Not
        measured: whether a long training on data ends at another loss; the loss after 100 steps is
        of one batch, learnt by heart.
    """,
    "predict": [
        {
            "case": {"model": "llama_1b", "form": "compiled"},
            "on": "h100",
            "step_time_s": {"bf16": [0.139, 0.153]},
            "speedup": {
                "tensorwise": [1.05, 1.15],
                "rowwise": [0.88, 0.97],
                "rowwise_with_gw_hp": [0.93, 1.05],
                "own": [0.95, 1.12],
            },
        },
        {
            "case": {"model": "gpt2", "form": "compiled"},
            "on": "h100",
            "step_time_s": {"bf16": [0.016, 0.02]},
            "speedup": {
                "tensorwise": [0.82, 0.98],
                "rowwise": [0.75, 0.95],
                "rowwise_with_gw_hp": [0.8, 1.0],
                "own": [0.78, 0.98],
            },
        },
        {
            "case": {"model": "llama_1b", "form": "eager"},
            "on": "h100",
            "step_time_s": {"bf16": [0.178, 0.198]},
            "speedup": {
                "tensorwise": [0.45, 0.75],
                "rowwise": [0.4, 0.75],
                "rowwise_with_gw_hp": [0.5, 0.85],
                "own": [0.5, 0.8],
            },
        },
        {
            "case": {"model": "gpt2", "form": "eager"},
            "on": "h100",
            "step_time_s": {"bf16": [0.024, 0.03]},
            "speedup": {
                "tensorwise": [0.2, 0.45],
                "rowwise": [0.2, 0.45],
                "rowwise_with_gw_hp": [0.25, 0.55],
                "own": [0.25, 0.5],
            },
        },
    ],
    "found": (
        "GPT-2 eager, 42 ms in BF16, was measured with 50257 words, whose products are some 8 "
        "times as slow as with 50304, while others kept 11 cores of the host busy."
    ),
    "claims": [],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp", "own"],
    "controls": ["own"],
    "l2": "cold",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "llama_1b"], "form": ["compiled", "eager"]},
    "check": {
        "meaning": "gradients of one step against FP32, relative to their norm",
        "tolerance": 0.5,  # by tensor 0.25 of gpt2's on an H100
    },
}
TRIAL_STEPS = 100  # whose loss is told
TOLERANCES = {"bf16": 0.06, "own": 0.25}  # 0.026 to 0.040; 0.104 of gpt2's
FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2  # values; gradients
TINY = 1e-12  # the least that counts as a largest value


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step whose layers have the arm's products; those of the output layer stay in BF16,
    as is usual."""
    name, compiled = str(point["model"]), point["form"] == "compiled"
    device = device_of(gpu)
    require_fp8(device)
    if compiled:
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    job = Resting(name, device, seed)
    training = job.training
    replace_linears(training.model, arm)
    if compiled:
        training.loss_of = torch.compile(training.loss_of)

    def error() -> float:
        job.begin()
        # Of the whole batch: what is compiled for another size is another code.
        found = gradient_error(training, len(training.input))
        job.rest()
        return found

    def metrics() -> dict[str, float]:
        job.rest()
        with device:  # which draws the same weights for both
            expected = reference_losses(name, device, seed)
        job.begin()
        training.losses = []
        training.train_until(TRIAL_STEPS)
        apart = largest_deviation(training.losses[:CHECKED_STEPS], expected)
        return {
            **memory_of_step(training),
            f"loss_deviation_of_{CHECKED_STEPS}_steps": apart,
            f"loss_after_{TRIAL_STEPS}_steps": training.losses[-1],
        }

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        rest=job.rest,
        wake=job.wake,
        tolerance=TOLERANCES.get(arm),
        metrics=metrics,
        flops=TWINS[name].batch * TEXT_SIZES[name].flops_of_row(),
        roof="gemm/bf16" if arm == "bf16" else "gemm/fp8",
        items=tokens_of_step(name),
        item="token",
    )


def replace_linears(model: nn.Module, arm: str) -> None:
    """Those of the layers compute as the arm says, with the same weights."""
    if arm == "own":
        for module in list(model.modules()):
            for name, layer in list(module.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(module, name, Fp8Linear(layer))
    elif arm != "bf16":
        convert_to_fp8(model, arm)


class Fp8Linear(nn.Module):
    """A linear layer, all of whose products are in FP8; its weights are the layer's."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        rows = given.to(torch.bfloat16).flatten(0, -2)
        found = Fp8Product.apply(rows, self.weight.to(torch.bfloat16))
        if self.bias is not None:
            found = found + self.bias.to(torch.bfloat16)
        return found.view(*given.shape[:-1], -1)


class Fp8Product(torch.autograd.Function):
    """rows @ weight.T, each tensor scaled as it comes by its largest value."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Inputs and weights in E4M3."""
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, FORWARD)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients in E5M2; sums are not rounded on the way."""
        rows, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_rows = product(gradient, weight.T, BACKWARD)
        of_weight = product(gradient.T, rows.T, BACKWARD)
        return of_rows, of_weight


def product(left: torch.Tensor, right: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """left @ right.T, of which left is cast to this kind of FP8 and right to E4M3."""
    first, first_scale = cast(left, kind)
    second, second_scale = cast(right, FORWARD)
    return torch._scaled_mm(
        first,
        second.T,
        first_scale,
        second_scale,
        out_dtype=torch.bfloat16,
        use_fast_accum=kind == FORWARD,
    )


def cast(values: torch.Tensor, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Row by row in memory, and what to multiply by to get the values back."""
    largest = values.abs().amax().float().clamp(min=TINY)
    scale = largest / torch.finfo(kind).max
    scaled = (values.float() / scale).to(kind).contiguous()
    return scaled, scale
