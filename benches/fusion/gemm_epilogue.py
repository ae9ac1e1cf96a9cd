"""The arms of fusion/gemm_epilogue in Python: a linear layer of torch's, and GELU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import cycle

import torch
import torch.nn.functional as nnf
from gpulift_work.kernels import Replay, require_kernels_of, sets_beyond_cache
from gpulift_work.training import arm_on, device_of, distance, free_memory, set_up
from gpulift_worker import Arm, Skip

Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

CHECKED_ROWS = 64


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A forward pass of a training, replayed as a graph.

    Operands and results take turns, so that a step finds none of its own in the cache, as in
    workloads/matrix_set.hpp.
    """
    device = device_of(gpu)
    require_kernels_of(arm, device)
    forward = forward_of(arm, device)
    threads = set_up(device)
    outputs, tokens, inputs = (int(side) for side in str(point["shape"]).split("x"))
    weights = torch.randn(outputs, inputs, device=device) * near_reciprocal_root(inputs)
    rows = torch.randn(tokens, inputs, device=device)
    bias = torch.randn(outputs, device=device).bfloat16()
    sample = slice(None, None, max(1, tokens // CHECKED_ROWS))
    expected = layer(rows[sample].double(), weights.double(), bias.double())
    bias.requires_grad_()

    def replay() -> Replay:
        own_rows, own_weights = (one.bfloat16().requires_grad_() for one in (rows, weights))
        return Replay(lambda: lambda: (forward(own_rows, own_weights, bias),), device)

    size = 2 * (weights.numel() + rows.numel() + tokens * outputs)
    replays = [replay() for _ in range(sets_beyond_cache(device, size))]
    turns = cycle(replays)
    latest = replays[0]

    def step() -> None:
        nonlocal latest
        latest = next(turns)
        latest.step()

    def error() -> float:
        (found,) = latest.results
        of_sample = distance(found.detach()[sample].double(), expected)
        free_memory(device)  # other arms need it for theirs
        return of_sample

    return arm_on(device, threads, step=step, error=error)


def forward_of(arm: str, device: torch.device) -> Forward:
    """The layer by the arm's kernels."""
    if arm == "addmm_activation":
        if device.type == "cpu":
            raise Skip(
                "on a processor torch's call takes GELU by the error function, not by tanh",
                "use a machine with a GPU",
            )
        return in_one_call
    return torch.compile(layer, dynamic=False) if arm == "compiled" else layer


def layer(rows: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """As models call it: nn.Linear, and GELU in its tanh form."""
    return nnf.gelu(nnf.linear(rows, weights, bias), approximate="tanh")


def in_one_call(rows: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """torch's own call of cuBLASLt's epilogue, which has no derivative."""
    with torch.no_grad():
        return torch._addmm_activation(bias, rows, weights.t(), use_gelu=True)


def near_reciprocal_root(count: int) -> float:
    """A power of two, by which results are about normal, as workloads/matmul.cpp has it."""
    return 2.0 ** -round(math.log2(count) / 2)
