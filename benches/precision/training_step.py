"""precision/training_step: whole training steps in the number formats that torch has for them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.first_steps import FirstSteps
from gpulift_work.training import device_of, require_gpu_for, set_up
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "What do TF32, BF16 and FP16 bring to a training step over FP32, all with a fused "
    "optimizer?",
    "expectation": """
        llama_1b, 8192 tokens: 67 TFLOP in products and attention, 1.24 G weights. H100: FP32
        without TF32 1.3 s at 51 TFLOP/s and 0.2 s of attention and passes: 1.5 s. TF32: 0.17 s at
        390 TFLOP/s, the same attention, passes over FP32 and AdamW: 0.52 s, as a trial took, 2.9.
        BF16 by autocast: 0.105 s at 640, AdamW 12 ms, passes over half the bytes 68: 0.185 s, 8.
        FP16: the same, and 5 GB of gradients pass once more for what is not finite: 0.188 s.
        All in BF16: weights, gradients and moments in 10 GB in place of 20, no casts of weights,
        AdamW 6 ms, and the state between layers is half: 0.165 s, 9; updates below half a digit
        of a weight are lost, so that it leads nothing. Memory: activations half, states the same:
        0.75 of TF32's, all in BF16 0.5. GPT-2, 8 x 1024 tokens, 7.0 TFLOP: FP32 0.137 s of
        products and 28 ms of passes, 165 ms; TF32 18 and 28, 46 ms, 3.6; 16 bits 27 ms, 6.1.
        ViT-L/16, 128 images, 47 TFLOP: FP32 0.93 s and 0.2 of passes; TF32 0.12 and 0.28, since
        layers are half as wide and passes twice as many as those of llama_1b: 2.8; 16 bits 0.16 s,
        7. ResNet-50, 256 images, channels last: torch lets convolutions use TF32, so FP32 is TF32:
        90 ms on an H200, 104 on an H100, of 16 ms of products, batch norms bound it; BF16 62 and 74
        ms, 1.4; FP16, whose batch norms torch gives to cuDNN and BF16's not, 1.9; all in BF16 no
        casts, 1.5. The toy is
        bound by launches, of which casts are a quarter more: 0.8, a scaler's some more, 0.75.
    """,
    "predict": [
        "model:llama_1b @h100: fp32 1.3-1.7 s, tf32 450-580 ms, bf16 175-200 ms, fp16 7.0-9.0,"
        " all_bf16 7.6-10.2",
        "model:gpt2 @h100: fp32 145-185 ms, bf16 24-30 ms, tf32 3.1-4.1, fp16 5.2-7.0,"
        " all_bf16 5.5-7.5",
        "model:vit_l16 @h100: fp32 950-1350 ms, tf32 330-470 ms, bf16 130-190 ms, fp16 6.0-8.5,"
        " all_bf16 6.5-9.5",
        "model:resnet50_256 @h200: tf32 81-99 ms",
        "model:resnet50_256 @h100: tf32 94-115 ms",
        "model:resnet50_256: tf32 0.98-1.02, bf16 1.26-1.54, fp16 1.7-2.1, all_bf16 1.3-1.7",
        "model:gpt_toy: tf32 0.97-1.03, bf16 0.72-0.88, fp16 0.6-0.85",
    ],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["fp32", "tf32", "bf16", "fp16", "all_bf16"],
    "controls": ["all_bf16"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "gpt2", "vit_l16", "resnet50_256", "gpt_toy"]},
    "quick": [{"model": "resnet50_256"}],
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm",
        "tolerance": 0.15,  # BF16: 0.044 of llama_1b, 0.009 of gpt2; 0.07 of 32 images on a host
    },
}
# Formats of 10 bits and more; FP32 is 0.0037 of llama_1b from TF32.
TOLERANCES = {"fp32": 0.03, "tf32": 0.03, "fp16": 0.03}
# 0.04 of llama_1b's, which falls by two thirds meanwhile.
ALL_BF16_LOSS_TOLERANCE = 0.1
CAPABILITY = (8, 0)  # brought both formats (NVIDIA A100 Tensor Core GPU Architecture, 2020)
NEW = ("tf32", "bf16", "all_bf16")
NOTES = {
    "fp16": "torch's GradScaler scales the loss",
    "all_bf16": "no master weights: updates are rounded to BF16",
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step in the arm's format."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if arm in NEW:
        require_formats(device)
    threads = set_up(device)
    torch.backends.cudnn.benchmark = False  # a search takes longer than all windows
    torch.backends.cudnn.allow_tf32 = True  # as torch comes, where products may not
    torch.backends.cuda.matmul.allow_tf32 = arm != "fp32"
    job = Job(name, device, seed, arm)
    return job.arm(
        threads,
        tolerance=TOLERANCES.get(arm),
        notes={arm: NOTES[arm]} if arm in NOTES else {},
        roof="" if name == "gpt_toy" else roof_of(arm, name),
    )


class Job(FirstSteps):
    """A training in a format."""

    def __init__(self, name: str, device: torch.device, seed: int, arm: str) -> None:
        super().__init__(name, device, seed)
        training = self.training
        training.bf16 = arm == "bf16"
        if arm == "fp16":
            training.scaler = torch.amp.GradScaler(device.type)
        if arm == "all_bf16":
            self.loss_tolerance = ALL_BF16_LOSS_TOLERANCE
            training.model.to(torch.bfloat16)
            if training.input.is_floating_point():
                training.input = training.input.to(torch.bfloat16)

    def prepare_check(self) -> None:
        """A scale that holds: one that is too large leaves updates out."""
        scaler = self.training.scaler
        lowered = scaler is not None
        while scaler is not None and lowered:
            self.begin()
            scale = scaler.get_scale()
            self.training.losses = []
            self.training.train_until(self.checked_steps)
            lowered = 1 < scaler.get_scale() < scale


def roof_of(arm: str, name: str) -> str:
    """The ceiling of most of the products."""
    if arm == "fp32" and name == "resnet50_256":
        return "gemm/tf32"  # torch lets convolutions use it
    return f"gemm/{arm.removeprefix('all_')}"


def require_formats(device: torch.device) -> None:
    """Older cards compute in FP32 what is asked of them in TF32, and convert BF16."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        raise Skip("the GPU has no TF32 and no BF16", "use one of compute capability 8.0 or later")
