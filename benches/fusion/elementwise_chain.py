"""The arms of fusion/elementwise_chain in Python: GELU of what a linear layer made."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as nnf
from gpulift_work.kernels import Replay, Results, largest_error, require_kernels_of
from gpulift_work.training import arm_on, device_of, free_memory, set_up
from gpulift_worker import Arm

COLUMNS = 4096  # of the hidden layer of GPT-2 medium's MLP
TOLERANCES = {"gelu": 1 / 32, "gelu_written_out": 1 / 16}  # each operation rounds to BF16


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The operations as calls, as a graph of theirs, or compiled and replayed: a GPU may run one
    kernel faster than Python calls it."""
    device = device_of(gpu)
    require_kernels_of(arm, device)
    threads = set_up(device)
    chain = str(point["chain"])
    rows = int(point["bytes"]) // torch.bfloat16.itemsize // COLUMNS
    values = torch.randn(rows, COLUMNS, device=device, dtype=torch.bfloat16)
    function = {"gelu": gelu, "gelu_written_out": written_out}[chain]
    if arm == "compiled":
        function = torch.compile(function, dynamic=False)
    kept: list[torch.Tensor] = []

    def work() -> Results:
        kept[:] = [function(values)]
        return kept

    def error() -> float:
        (found,) = kept
        largest = largest_error(found, gelu(values.double()), 1.0)
        free_memory(device)  # other arms need it for theirs
        return largest

    step = work if arm == "torch" else Replay(lambda: work, device).step
    return arm_on(device, threads, step=step, error=error, tolerance=TOLERANCES[chain])


def gelu(x: torch.Tensor) -> torch.Tensor:
    """By torch's kernel."""
    return nnf.gelu(x, approximate="tanh")


def written_out(x: torch.Tensor) -> torch.Tensor:
    """As transformers has it for GPT-2, operation by operation."""
    scaled = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(scaled))
