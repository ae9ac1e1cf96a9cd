"""The arms of fusion/gradient_norm in Python: torch's norm of all gradients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from gpulift_work.kernels import Replay, Results, model_tensors, require_kernels_of
from gpulift_work.training import arm_on, device_of, set_up
from gpulift_worker import Arm
from torch.nn.utils import get_total_norm

TOLERANCE = 1 / 128  # norms are rounded to BF16, of each tensor and of all


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The norm of the gradients of the case's model, replayed as a graph."""
    device = device_of(gpu)
    require_kernels_of(arm, device)
    threads = set_up(device)
    gradients = [
        torch.randn(count, device=device, dtype=torch.bfloat16) / 1024
        for count in model_tensors(str(point["model"]))
    ]
    total_norm = partial(get_total_norm, foreach=arm != "one_by_one")
    if arm == "compiled":
        total_norm = torch.compile(total_norm, dynamic=False)

    def work() -> Results:
        return (total_norm(gradients),)

    replay = Replay(lambda: work, device)

    def error() -> float:
        (found,) = replay.results
        norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients]
        off = abs(float(found / torch.linalg.vector_norm(torch.stack(norms))) - 1)
        return off + sum(not counts(one) for one in gradients)

    def counts(gradient: torch.Tensor) -> bool:
        """Whether its end is in the total: a small one is less of it than BF16 rounds."""
        last = gradient[-1].clone()
        gradient[-1] = torch.nan
        replay.step()
        gradient[-1] = last
        return bool(replay.results[0].isnan())

    return arm_on(device, threads, step=replay.step, error=error, tolerance=TOLERANCE)
