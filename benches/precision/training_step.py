"""precision/training_step: whole training steps, in TF32 and in BF16, checked in seconds."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.training import (
    TEXT_SIZES,
    TWINS,
    Training,
    arm_on,
    device_of,
    largest_deviation,
    memory_of_step,
    reference_losses,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "How fast does this card train GPT-2 and ResNet-50, and what does BF16 save over "
    "TF32?",
    "expectation": """
        GPT-2, 8 x 1024 tokens: 6 x 124 M weights and, for attention, 12 x 12 layers x 768 x 1024
        operations a token (PaLM, arXiv:2204.02311, appendix B) are 7.0 TFLOP: 18 ms at 390 TFLOP/s
        in TF32, 9.4 ms at 745 in BF16. All else, softmax and loss over 412 M logits above all,
        passes over memory, and in BF16 over half the bytes: an H200 took 64.6 and 39.3 ms in C++
        (precision/mixed). An H100, with 0.7 of that bandwidth and 42 ms measured in BF16: 69 and
        42 ms, 1.64; 26 and 22 % of its products. ResNet-50, 128 images, channels last: 4.09 G
        multiplications an image (He et al., arXiv:1512.03385, with the stride of torchvision), 6
        operations each but for the gradient of the images: 3.1 TFLOP, 8 and 4.2 ms. Batch norms
        bound it: 42.5 and 29.6 ms on an H200 whose cuDNN had searched. Here its heuristics choose,
        in no time and in every launch alike, for some 5 % more: 45 and 31 ms there, 52 and 37 ms
        on an H100, 1.4; 15 and 11 % of its products. Memory: 0.83 of GPT-2's, 0.53 of ResNet-50's,
        since weights, gradients and moments stay in FP32. The toy is bound by launches, of which
        casts are a quarter more: 0.8.
    """,
    "predict": [
        {"case": {"model": "gpt2"}, "on": "h200", "step_time_s": {"tf32": [0.05814, 0.07106]}},
        {"case": {"model": "gpt2"}, "on": "h100", "step_time_s": {"tf32": [0.0621, 0.0759]}},
        {"case": {"model": "gpt2"}, "speedup": {"bf16": [1.476, 1.804]}},
        {
            "case": {"model": "resnet50_128"},
            "on": "h200",
            "step_time_s": {"tf32": [0.0405, 0.0495]},
        },
        {
            "case": {"model": "resnet50_128"},
            "on": "h100",
            "step_time_s": {"tf32": [0.0468, 0.0572]},
        },
        {"case": {"model": "resnet50_128"}, "speedup": {"bf16": [1.26, 1.54]}},
        {"case": {"model": "gpt_toy"}, "speedup": {"bf16": [0.72, 0.88]}},
    ],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["tf32", "bf16"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "resnet50_128", "gpt_toy"]},
    "quick": [{"model": "resnet50_128"}],
    "check": {
        "meaning": "losses of 5 steps against FP32, relative to the first",
        "tolerance": 0.02,
    },
}
CHECKED_STEPS = 5
TF32_TOLERANCE = 3e-3  # as precision/mixed has it
CAPABILITY = (8, 0)  # brought both formats (NVIDIA A100 Tensor Core GPU Architecture, 2020)
# Multiply-adds of an image forward, and those of them in the first convolution.
IMAGE_PRODUCTS = {"resnet50_128": (4_089_184_256, 118_013_952)}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step in the arm's format; both may use TF32, so that autocast alone differs."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    require_formats(device)
    threads = set_up(device)
    torch.backends.cudnn.benchmark = False  # a search takes longer than all windows
    with device:  # which draws weights and images sooner than a host
        expected = reference_losses(name, device, seed, CHECKED_STEPS)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        training = Training(name, device, seed)
    training.bf16 = arm == "bf16"

    def error() -> float:
        training.record()  # of the step that was taken before
        training.train_until(CHECKED_STEPS)
        return largest_deviation(training.losses, expected)

    is_text = name not in IMAGE_PRODUCTS
    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        tolerance=TF32_TOLERANCE if arm == "tf32" else None,
        metrics=lambda: memory_of_step(training),
        flops=flops_of_step(name),
        roof="" if name == "gpt_toy" else f"gemm/{arm}",
        items=tokens_of_step(name) if is_text else TWINS[name].batch,
        item="token" if is_text else "image",
    )


def require_formats(device: torch.device) -> None:
    """Older cards compute in FP32 what is asked of them in TF32, and convert BF16."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        raise Skip("the GPU has no TF32 and no BF16", "use one of compute capability 8.0 or later")


def flops_of_step(name: str) -> float:
    """Of the products, two operations for each multiply-add: one forward, two backward. Images need
    no gradient."""
    if name in IMAGE_PRODUCTS:
        products, of_first = IMAGE_PRODUCTS[name]
        return 2.0 * TWINS[name].batch * (3 * products - of_first)
    return TWINS[name].batch * TEXT_SIZES[name].flops_of_row()
