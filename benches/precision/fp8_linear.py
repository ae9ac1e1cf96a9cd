"""precision/fp8_linear: one linear layer of a training step in BF16, or in FP8 by torchao."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from gpulift_work.fp8 import convert_to_fp8
from gpulift_work.training import (
    arm_on,
    device_of,
    distance,
    keep_the_compiler_quiet,
    memory_of,
    recorded,
    require_compiler,
    require_fp8,
    set_up,
)
from gpulift_worker import Arm
from torch import nn

TECHNIQUE = {
    "question": "From which size on does FP8 pay for one linear layer?",
    "expectation": """
        A layer of K inputs and N outputs on M tokens is three products of 2 MKN. On an H100 they
        run at 700 TFLOP/s in BF16 and at 1150 in FP8 by tensor, as only the forward one adds up
        fast. Weights are FP32 and cast in each step, in BF16 once, 6 bytes. In FP8 by tensor each
        of input, gradient and weight is read for its largest value, and read and written twice, as
        products of the backward pass want the other layout: 8 bytes a value of input and gradient
        more than BF16, and 8 a weight. At 3.0 TB/s that is earned where 1/M + 1/K + 1/N is below
        1/800: never of 768 inputs; of 2048 x 8192 from 1600 tokens on, of 8192 x 28672 from 900.
        By rows all three layouts have scales of their own, and the backward products, scaled after
        they are written, pass once more: 1050 TFLOP/s and 10 to 14 bytes a value: from 6000 tokens
        on of 2048 x 8192, from 1700 of 8192 x 28672. At most, by 16384 tokens of 8192 x 28672, 1.46
        by tensor and 1.3 by rows. Small layers lose most, as 16 kernels take 2 us each where BF16
        has 5: 0.57. On an H200, at 4.3 TB/s, break-even is at 0.7 of the sizes. Launches are one
        graph's: the host would set the pace of small layers. Neither the optimizer is part of it
        nor a norm ahead of it, which would cast as it writes; windows are short, at a high clock.
        With the weight's gradient left in BF16 (fp8_rowwise_with_gw_hp) two products of three gain,
        and neither input nor gradient is cast along the tokens: 3 bytes a value, 12 a weight. On an
        H200 at 720 and 1150 TFLOP/s: 16384 tokens of 8192 x 28672 32 ms against 13.7 + 10.7 + 1.4,
        1.25; 4096 of 4096 x 14336 2.0 ms against 0.85 + 0.66 + 0.22, 1.15; 4096 of 2048 x 8192 0.6
        ms against 0.24 + 0.19 + 0.09, 1.12.
        Rounded to E4M3 a tensor is 2.6 % off, to E5M2 5.2, and products of two the root of both
        squares: 3.7 %, and gradients by tensor, of E5M2, 5.9.
    """,
    "predict": [
        "layer:768x3072/tokens:1024 @h100: bf16 32-50 us, fp8_tensorwise 0.45-0.7,"
        " fp8_rowwise 0.4-0.65",
        "layer:768x3072/tokens:4096 @h100: fp8_tensorwise 0.64-0.84, fp8_rowwise 0.54-0.72",
        "layer:768x3072/tokens:16384 @h100: fp8_tensorwise 0.75-0.94, fp8_rowwise 0.62-0.8",
        "layer:2048x8192/tokens:1024 @h100: fp8_tensorwise 0.76-0.96, fp8_rowwise 0.66-0.84",
        "layer:2048x8192/tokens:4096 @h100: bf16 600-740 us, fp8_tensorwise 0.97-1.2,"
        " fp8_rowwise 0.84-1.04",
        "layer:2048x8192/tokens:16384 @h100: fp8_tensorwise 1.08-1.32, fp8_rowwise 0.94-1.15",
        "layer:4096x14336/tokens:1024 @h100: fp8_tensorwise 0.87-1.07, fp8_rowwise 0.75-0.92",
        "layer:4096x14336/tokens:4096 @h100: bf16 2.1-2.5 ms, fp8_tensorwise 1.11-1.35,"
        " fp8_rowwise 0.97-1.18",
        "layer:4096x14336/tokens:16384 @h100: fp8_tensorwise 1.22-1.5, fp8_rowwise 1.08-1.32",
        "layer:8192x28672/tokens:1024 @h100: fp8_tensorwise 0.92-1.12, fp8_rowwise 0.79-0.97",
        "layer:8192x28672/tokens:4096 @h100: fp8_tensorwise 1.18-1.44, fp8_rowwise 1.04-1.28",
        "layer:8192x28672/tokens:16384 @h100: bf16 31-37 ms, fp8_tensorwise 1.32-1.6,"
        " fp8_rowwise 1.17-1.43",
        "layer:2048x8192/tokens:4096 @h200: fp8_tensorwise 1.05-1.3, fp8_rowwise 0.93-1.13",
        "layer:2048x8192/tokens:4096 @nvidia-h200: fp8_rowwise_with_gw_hp 1.0-1.24",
        "layer:4096x14336/tokens:4096 @nvidia-h200: fp8_rowwise_with_gw_hp 1.03-1.28",
        "layer:8192x28672/tokens:16384 @nvidia-h200: fp8_rowwise_with_gw_hp 1.12-1.38",
    ],
    "gpus": 1,
    "arms": ["bf16", "fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp"],
    "l2": "by_size",
    "page_cache": "none",
    # Inputs x outputs of the widest layer of GPT-2, of Llamas of 1, 8 and 70 billion weights
    "sweep": {
        "layer": ["768x3072", "2048x8192", "4096x14336", "8192x28672"],
        "tokens": [1024, 4096, 16384],
    },
    "check": {
        "meaning": "distance from FP32 of output and both gradients, over what rounding to the"
        " arm's formats makes; the largest",
        "tolerance": 1.5,  # one operand in the next coarser format makes 1.6
    },
}
# Of normal values, relative to their norm: 0.21 of the last bit, of which 3, 2 and 7 are kept.
E4M3, E5M2, BF16 = 0.026, 0.052, 0.0016
# Of output, input's gradient and weight's gradient: operands that are rounded, and the result.
ROUNDED = {
    "bf16": [math.hypot(BF16, BF16), math.hypot(BF16, BF16), BF16],
    "fp8_tensorwise": [math.hypot(E4M3, E4M3), math.hypot(E5M2, E4M3), math.hypot(E5M2, E4M3)],
    "fp8_rowwise": [math.hypot(E4M3, E4M3)] * 3,
    "fp8_rowwise_with_gw_hp": [math.hypot(E4M3, E4M3), math.hypot(E4M3, E4M3), BF16],
}
RESULTS = ("output", "input_gradient", "weight_gradient")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The layer's forward and backward pass, compiled, with the arm's products."""
    device = device_of(gpu)
    require_fp8(device)
    require_compiler(device)
    keep_the_compiler_quiet()
    threads = set_up(device)
    inputs, outputs = map(int, str(point["layer"]).split("x"))
    tokens = int(point["tokens"])
    layer = Layer(arm, tokens, inputs, outputs, device)
    step = recorded(layer.step, device)
    distances: list[float] = []

    def error() -> float:
        distances[:] = layer.distances()
        return over_rounding(distances, arm)

    def metrics() -> dict[str, float]:
        told = {f"{name}_distance": far for name, far in zip(RESULTS, distances, strict=True)}
        return {**memory_of(step, device), **told}

    return arm_on(
        device,
        threads,
        step=step,
        error=error,
        metrics=metrics,
        flops=6 * tokens * inputs * outputs,
        roof="gemm/bf16" if arm == "bf16" else "gemm/fp8",
        items=tokens,
        item="token",
    )


class Layer:
    """A linear layer, and what the layers around it give: its input, and its output's gradient."""

    def __init__(
        self, arm: str, tokens: int, inputs: int, outputs: int, device: torch.device
    ) -> None:
        linear = nn.Linear(inputs, outputs, bias=False, device=device)
        nn.init.normal_(linear.weight, std=0.02)
        model = nn.Sequential(linear)  # torchao replaces what is within a model
        if arm != "bf16":
            convert_to_fp8(model, arm.removeprefix("fp8_"))
        self.run = torch.compile(model)
        self.weight = linear.weight
        options = {"device": device, "dtype": torch.bfloat16}
        self.input = torch.randn(tokens, inputs, **options).requires_grad_()
        self.output_gradient = torch.randn(tokens, outputs, **options)
        self.output = self.output_gradient  # until a step makes it

    def step(self) -> list[torch.Tensor]:
        """Forward and backward, with new gradients: RESULTS."""
        self.input.grad = self.weight.grad = None
        with torch.autocast(self.input.device.type, dtype=torch.bfloat16):
            output = self.run(self.input)
        output.backward(self.output_gradient)
        self.output = output.detach()
        return self.results()

    def results(self) -> list[torch.Tensor]:
        """RESULTS, as the last step left them."""
        assert self.input.grad is not None
        assert self.weight.grad is not None
        return [self.output, self.input.grad, self.weight.grad]

    def distances(self) -> list[float]:
        """Of RESULTS, as the last step left them, from those in FP32."""
        weight, given = self.weight.detach(), self.input.detach().float()
        gradient = self.output_gradient.float()
        output, input_gradient, weight_gradient = self.results()
        return [
            distance(output, given @ weight.T),
            distance(input_gradient, gradient @ weight),
            distance(weight_gradient, gradient.T @ given),
        ]


def over_rounding(distances: list[float], arm: str) -> float:
    """The largest over what the arm's formats make; not a number if one is none."""
    return float((torch.tensor(distances) / torch.tensor(ROUNDED[arm])).max())
