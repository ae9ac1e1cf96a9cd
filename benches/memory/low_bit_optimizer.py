"""memory/low_bit_optimizer: AdamW's moments in 32 bits or in 8."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    free_memory,
    keep_the_compiler_quiet,
    memory_of_step,
    parameters_of,
    require_compiler,
    require_fp8,
    require_gpu_for,
    set_up,
    tokens_of_step,
    update_error,
)
from gpulift_worker import Arm
from torch import nn

TECHNIQUE = {
    "question": "What memory do AdamW's moments in 8 bits save, at what cost in time and loss?",
    "expectation": """
        Two moments of 4 bytes a parameter become 2 bytes and 8 / 256 for the scales of blocks:
        5.97 bytes less. GPT-2 (124 M): 0.74 GB of a peak of 8.5 GB, 1.1 times less; large (774
        M): 4.6 GB of some 21 GB, 1.28. Time: FP32 moves 28 bytes a parameter, 3.5 GB in 1.2 ms,
        blockwise 16, in 0.7 ms, but by one compiled call for each of 50 large weights, at 40 us:
        within 2 % of a step of 39 ms. torchao's compiles all in one: the same. FP8 keeps 3 bits
        of a moment's mantissa: each is wrong by up to 1/16, by 1/28 in the mean square, and the
        two of them turn an update by 5 %. Losses after 100 steps differ by under 1 %. The toy on
        a host, uncompiled: 15 calls a weight in place of a part of one, 0.5 of the speed.
    """,
    "predict": [
        {"arm": "fp32", "case": {"model": "gpt2"}, "step_time_s": [0.0351, 0.0429]},
        {"arm": "blockwise_8bit", "case": {"model": "gpt2"}, "speedup": [0.98, 1.02]},
        {"arm": "torchao_8bit", "case": {"model": "gpt2"}, "speedup": [0.98, 1.02]},
        {
            "arm": "blockwise_8bit",
            "case": {"model": "gpt_toy"},
            "on": "cpu",
            "speedup": [0.45, 0.55],
        },
    ],
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["fp32", "blockwise_8bit", "torchao_8bit"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt2_large", "gpt_toy"]},
    "check": {
        "meaning": "weights after 10 steps against AdamW in FP32 with the same gradients, relative "
        "to the way they went",
        "tolerance": 0.1,
    },
}
BLOCK = 256  # values that share a scale
SMALLEST = 4096  # values of a weight worth it: of the others little is gained
LARGEST_FP8 = 448.0  # of float8_e4m3fn
CHECKED_STEPS = 10
TRIAL_STEPS = 100  # whose loss is told
FP32_TOLERANCE = 1e-3


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step with the arm's AdamW."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(name, device, seed)
    start = parameters_of(training)
    if arm == "blockwise_8bit":
        training.optimizer = Blockwise(training.optimizer, update_on(device))
    elif arm == "torchao_8bit":
        training.optimizer = torchao_adamw(training)

    def error() -> float:
        training.record()
        found = update_error(training, start, CHECKED_STEPS)
        start.clear()
        free_memory(device)
        return found

    def metrics() -> dict[str, float]:
        found = memory_of_step(training)
        training.train_until(TRIAL_STEPS)
        return {
            **found,
            "optimizer_state_bytes": bytes_of_state(training.optimizer),
            f"loss_after_{TRIAL_STEPS}_steps": training.losses[-1],
        }

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        rest=lambda: free_memory(device),  # all arms are in memory at the same time
        tolerance=FP32_TOLERANCE if arm == "fp32" else None,
        metrics=metrics,
        notes={} if arm == "fp32" else {"update": "eager" if device.type == "cpu" else "compiled"},
        items=tokens_of_step(name),
        item="token",
    )


def torchao_adamw(training: Training) -> torch.optim.Optimizer:
    """The library's, where it is installed."""
    from torchao.optim import AdamW8bit

    require_compiler(training.device)
    keep_the_compiler_quiet()
    group = training.optimizer.param_groups[0]
    found: torch.optim.Optimizer = AdamW8bit(
        group["params"],
        lr=group["lr"],
        betas=group["betas"],
        weight_decay=group["weight_decay"],
    )
    return found


def bytes_of_state(optimizer: torch.optim.Optimizer) -> float:
    """Of all tensors that it keeps for its parameters, and of those inside them."""
    rest = bytes_of_state(optimizer.plain) if isinstance(optimizer, Blockwise) else 0.0
    return rest + sum(map(bytes_of, optimizer.state.values()))


def bytes_of(one: Any) -> int:
    """Of a tensor, or of the tensors that a dictionary or a tensor of a library's own kind has."""
    if isinstance(one, dict):
        return sum(map(bytes_of, one.values()))
    if hasattr(one, "__tensor_flatten__"):
        return sum(bytes_of(getattr(one, name)) for name in one.__tensor_flatten__()[0])
    return one.numel() * one.element_size() if isinstance(one, torch.Tensor) else 0


class Blockwise(torch.optim.Optimizer):
    """AdamW that keeps the mean of the gradients, and the root of that of their squares, as FP8
    with a scale for each block; small weights stay with the optimizer given."""

    def __init__(self, plain: torch.optim.Optimizer, update: Callable[..., None]) -> None:
        group = plain.param_groups[0]
        large = [one for one in group["params"] if is_large(one)]
        super().__init__(large, {key: group[key] for key in ("lr", "betas", "eps", "weight_decay")})
        group["params"] = [one for one in group["params"] if not is_large(one)]
        self.plain = plain
        self.update = update
        self.steps = torch.zeros((), device=large[0].device)
        for one in large:
            blocks = one.numel() // BLOCK
            kept = {"device": one.device, "dtype": torch.float8_e4m3fn}
            self.state[one] = {
                "mean": torch.zeros(blocks, BLOCK, **kept),
                "mean_scale": torch.zeros(blocks, 1, device=one.device),
                "root": torch.zeros(blocks, BLOCK, **kept),
                "root_scale": torch.zeros(blocks, 1, device=one.device),
            }

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of all weights."""
        super().zero_grad(set_to_none)
        self.plain.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:
        """Of all weights."""
        self.plain.step()
        with torch.no_grad():
            self._update_large()

    def _update_large(self) -> None:
        self.steps += 1
        group = self.param_groups[0]
        rule = (group["lr"], *group["betas"], group["eps"], group["weight_decay"])
        for one in group["params"]:
            state = self.state[one]
            self.update(
                one.view(-1, BLOCK),
                one.grad.view(-1, BLOCK),
                *state.values(),
                self.steps,
                *rule,
            )


def is_large(parameter: nn.Parameter) -> bool:
    """Whether its moments are kept in 8 bits."""
    values = int(parameter.numel())
    return values >= SMALLEST and values % BLOCK == 0


def update_on(device: torch.device) -> Callable[..., None]:
    """The rule as the device runs it best: on a GPU one kernel for all of a weight's passes."""
    if device.type == "cpu":
        return update_weight
    require_fp8(device)
    require_compiler(device)
    keep_the_compiler_quiet()
    # From the second shape on the number of blocks is a variable; their length never is.
    compiled: Callable[..., None] = torch.compile(update_weight)
    return compiled


def update_weight(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    mean_scale: torch.Tensor,
    root: torch.Tensor,
    root_scale: torch.Tensor,
    steps: torch.Tensor,
    rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float,
) -> None:
    """AdamW's rule in FP32, by blocks, in place. Of the squares' mean the root is kept: it spans
    half the powers of two."""
    exact_mean = beta1 * (mean.float() * mean_scale) + (1 - beta1) * gradient
    old_root = root.float() * root_scale
    exact_root = (beta2 * old_root.square() + (1 - beta2) * gradient.square()).sqrt()
    debiased = exact_root / (1 - beta2**steps).sqrt() + epsilon
    weight.mul_(1 - rate * decay)
    weight.sub_(rate / (1 - beta1**steps) * exact_mean / debiased)
    store(exact_mean, mean, mean_scale)
    store(exact_root, root, root_scale)


def store(exact: torch.Tensor, kept: torch.Tensor, scale: torch.Tensor) -> None:
    """Rounds to FP8, so that the largest of each block is the largest that there is."""
    largest = exact.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    scale.copy_(largest / LARGEST_FP8)
    kept.copy_((exact / scale).to(kept.dtype))
