"""The arm of precision/alignment in Python: torch.mm of rows as they are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import torch
from gpulift_work.kernels import sets_beyond_cache
from gpulift_work.training import arm_on, device_of, distance, set_up
from gpulift_worker import Arm

CHECKED_ROWS = 64


def make(_arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Tokens times weights, both by rows along the sum, as a linear layer without a bias calls it.

    Operands and results take turns, so that a step finds none of its own in the cache, as in
    workloads/matrix_set.hpp.
    """
    device = device_of(gpu)
    threads = set_up(device)
    outputs, tokens, inputs = (int(side) for side in str(point["shape"]).split("x"))
    weights = torch.randn(outputs, inputs, device=device)
    rows = torch.randn(tokens, inputs, device=device)
    sets = sets_beyond_cache(device, 2 * (weights.numel() + rows.numel() + tokens * outputs))
    buffers = [
        (
            rows.bfloat16(),
            weights.bfloat16().t(),
            torch.full((tokens, outputs), torch.nan, dtype=torch.bfloat16, device=device),
        )
        for _ in range(sets)
    ]
    turns = cycle(buffers)
    latest = buffers[0]
    sample = slice(None, None, max(1, tokens // CHECKED_ROWS))
    checked = rows[sample].double()

    def step() -> None:
        nonlocal latest
        latest = next(turns)
        torch.mm(latest[0], latest[1], out=latest[2])

    def error() -> float:
        return distance(latest[2][sample].double(), checked @ weights.double().t())

    return arm_on(device, threads, step=step, error=error)
