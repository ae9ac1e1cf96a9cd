"""convolution/depthwise: a ResNet whose 3 x 3 convolutions are dense, grouped or separable."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from gpulift_work.training import (
    TWINS,
    Training,
    arm_on,
    device_of,
    free_memory,
    largest_deviation,
    make_optimizer,
    memory_of_step,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm
from torch import nn

TECHNIQUE = {
    "question": "What do grouped and depthwise-separable convolutions save of a training step?",
    "expectation": """
        ResNet-50, 64 images, BF16, channels last, on an H100: 3 x 3 convolutions are 1.85 of 4.1
        G multiplications an image. In 32 groups they are 32 times fewer, separable, 9 of each
        channel and a 1 x 1 convolution, 8.8 times: 0.56 and 0.61 of the work in all. Time: dense,
        0.71 TFLOP at 300 TFLOP/s are 2.4 ms of a step of 25. A depthwise kernel has no product
        for the Tensor Cores and moves 2 bytes for 9 multiplications: 16 layers forward and
        backward, 0.15 to 0.5 ms each of three kernels, 7 to 24 ms: 0.6 to 0.85 of the speed;
        grouped likewise, 0.6 to 0.9. Memory: one more activation for each separable layer, and
        none of the batch norms' larger: 0.95 times less. ResNet-18, 32 images of 32 pixels: 0.93
        of the work is dense 3 x 3: grouped is 9.6 times less in all, separable 5.4. On a GPU
        launches bound it: 0.9 separable, 1.0 grouped; on a host, at a third of the rate and with
        the same norms and optimizer of a tenth of the weights, 2 separable and 2.5 grouped.
    """,
    "predict": [
        "model:resnet50 @h100: dense 22.5-27.5 ms",
        "model:resnet50 @nvidia-h: grouped 0.6-0.9, separable 0.6-0.85",
        "model:resnet18 @nvidia: grouped 0.9-1.1, separable 0.81-0.99",
        "model:resnet18 @cpu: grouped 2.25-2.75, separable 1.8-2.2",
    ],
    "found": """
        An H200, one launch: the host paces all of ResNet-18's arms. Dense takes 10.3 ms for 242
        launches, grouped 1330 more at 6.7 us each: 0.53, not 1.0. That cuDNN launches a kernel for
        each group of some layers is inferred, not traced.
    """,
    "claims": ["depthwise-convolution-faster", "grouped-convolution-faster"],
    "whole_steps": True,
    "arms": ["dense", "grouped", "separable"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["resnet50", "resnet18"]},
    "check": {
        "meaning": "losses of 5 steps against the same network, on a GPU in FP32, on a host in "
        "FP64, relative to the first",
        "tolerance": 0.02,
    },
}
FP32_TOLERANCE = 1e-3  # where a model is trained in FP32
GROUPS = 32
CHECKED_STEPS = 5
SEARCHED_KERNELS = 3  # of cuDNN for a layer: its usual ten take a minute for groups


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step of a ResNet with the arm's convolutions."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    expected = exact_losses(arm, name, device, seed)
    torch.backends.cudnn.benchmark_limit = SEARCHED_KERNELS
    training = training_of(arm, name, device, seed)

    def error() -> float:
        training.record()
        training.train_until(CHECKED_STEPS)
        return largest_deviation(training.losses, expected)

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        tolerance=None if training.bf16 else FP32_TOLERANCE,
        metrics=lambda: {**memory_of_step(training), **size_of(training)},
        items=TWINS[name].batch,
        item="image",
    )


def training_of(
    arm: str, name: str, device: torch.device, seed: int, *, plain: bool = False
) -> Training:
    """Its weights come from the seed: two of the same arm start alike."""
    training = Training(name, device, seed, plain=plain)
    torch.manual_seed(seed)
    if arm != "dense":
        replace_convolutions(training.model, {"grouped": grouped, "separable": separable}[arm])
    training.model.to(device)
    if TWINS[name].channels_last and not plain:
        training.model.to(memory_format=torch.channels_last)
    training.optimizer = make_optimizer(name, list(training.model.parameters()))
    return training


def exact_losses(arm: str, name: str, device: torch.device, seed: int) -> list[float]:
    """Of the same steps in more bits. cuDNN does not search for these: among kernels for groups in
    FP32 that takes a minute."""
    torch.backends.cudnn.benchmark = False
    training = training_of(arm, name, device, seed, plain=True)
    if device.type == "cpu":
        training.model.double()
        training.input = training.input.double()
    training.train_until(CHECKED_STEPS)
    losses = training.losses
    del training
    free_memory(device)
    torch.backends.cudnn.benchmark = True
    return losses


def replace_convolutions(model: nn.Module, kind: Callable[[nn.Conv2d], nn.Module]) -> None:
    """Those of 3 x 3 by another kind, with weights of its own."""
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, kind(layer))


def grouped(dense: nn.Conv2d) -> nn.Module:
    """Each output sees one of the groups of channels."""
    return nn.Conv2d(
        dense.in_channels,
        dense.out_channels,
        dense.kernel_size,
        stride=dense.stride,
        padding=dense.padding,
        groups=GROUPS,
        bias=False,
    )


def separable(dense: nn.Conv2d) -> nn.Module:
    """Each channel by itself, then all of them at each pixel."""
    depthwise = nn.Conv2d(
        dense.in_channels,
        dense.in_channels,
        dense.kernel_size,
        stride=dense.stride,
        padding=dense.padding,
        groups=dense.in_channels,
        bias=False,
    )
    return nn.Sequential(depthwise, nn.Conv2d(dense.in_channels, dense.out_channels, 1, bias=False))


def size_of(training: Training) -> dict[str, float]:
    """What a forward pass multiplies and adds in convolutions, and how many weights there are."""
    flops = 0.0

    def count(layer: nn.Conv2d, _: object, found: torch.Tensor) -> None:
        nonlocal flops
        flops += 2.0 * found.numel() * layer.weight[0].numel()

    layers = [one for one in training.model.modules() if isinstance(one, nn.Conv2d)]
    hooks = [one.register_forward_hook(count) for one in layers]
    training.make_gradients()
    for hook in hooks:
        hook.remove()
    weights = sum(one.numel() for one in training.model.parameters())
    return {"forward_flops": flops, "parameters": float(weights)}
