"""Training steps of a language model with settings that people turn on, each on top of others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpulift_worker import Arm, Skip

from gpulift_work.first_steps import CHECKED_STEPS, LOSS_TOLERANCE, FirstSteps, allow_tf32
from gpulift_work.fp8 import convert_to_fp8
from gpulift_work.losses import LossOfHidden, cut_cross_entropy
from gpulift_work.losses import compiled as compiled_loss
from gpulift_work.training import (
    TEXT_SIZES,
    compile_body,
    device_of,
    keep_the_compiler_quiet,
    make_optimizer,
    require_compiler,
    require_fp8,
    require_gpu_for,
    set_up,
)

# 0.46 of llama_1b's gradients, 0.35 of llama_8b_slice's, 0.14 to 0.25 of gpt2's and vit_l16's;
# 0.032 of losses, which fall by two thirds within 5 steps.
FP8_TOLERANCES = {"llama_1b": 0.6, "llama_8b_slice": 0.45}
FP8_TOLERANCE, FP8_LOSS_TOLERANCE = 0.33, 0.1
FP32_TOLERANCE = 0.012  # 0.0037 without TF32, which they are held against
FORMATS = ("fp8", "bf16", "tf32")  # of products, the fastest first


def arm_with(
    settings: Sequence[str],
    name: str,
    seed: int,
    gpu: int | None,
    checked_steps: int = CHECKED_STEPS,
) -> Arm:
    """A training step of the model with these settings; without any it is as torch comes."""
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if "cut_cross_entropy" in settings and name not in TEXT_SIZES:
        raise Skip("images have few classes", "take a language model")
    if "fp8" in settings:
        require_fp8(device)
    if "compiled" in settings:
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    job = Job(name, device, seed, settings)
    job.checked_steps = checked_steps
    return job.arm(
        threads,
        tolerance=tolerance_of(settings, name),
        roof="" if "toy" in name else roof_of(settings),
    )


def tolerance_of(settings: Sequence[str], name: str) -> float | None:
    """Of gradients; None is that of BF16."""
    if "fp8" in settings:
        return FP8_TOLERANCES.get(name, FP8_TOLERANCE)
    return None if "bf16" in settings else FP32_TOLERANCE


def roof_of(settings: Sequence[str]) -> str:
    """The ceiling of most of the products."""
    return f"gemm/{next((name for name in FORMATS if name in settings), 'fp32')}"


class Job(FirstSteps):
    """A training with some settings."""

    def __init__(self, name: str, device: torch.device, seed: int, settings: Sequence[str]) -> None:
        allow_tf32("tf32" in settings)
        super().__init__(name, device, seed)
        self.loss_tolerance = FP8_LOSS_TOLERANCE if "fp8" in settings else LOSS_TOLERANCE
        training = self.training
        training.bf16 = "bf16" in settings
        if "fp8" in settings:
            convert_to_fp8(training.model.layers)
        fused = True if "fused_adamw" in settings else None
        training.optimizer = make_optimizer(name, self.parameters, fused=fused)
        if "compiled" in settings:
            compile_body(training.model)
        if "compiled" in settings and name in TEXT_SIZES:  # of images the loss is next to nothing
            loss = cut_cross_entropy() if "cut_cross_entropy" in settings else compiled_loss()
            training.loss_of = LossOfHidden(training.model, loss)
