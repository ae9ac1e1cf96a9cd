"""The arm torchao of precision/fp8_cast: what torchao's layers cast with, as torch.compile makes
it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.fp8 import CASTS
from gpulift_work.kernels import Replay
from gpulift_work.training import (
    arm_on,
    device_of,
    keep_the_compiler_quiet,
    require_compiler,
    require_fp8,
    set_up,
)
from gpulift_worker import Arm

SIDE = 8192


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A cast of a matrix, its launches recorded as one graph."""
    assert arm == "torchao"
    device = device_of(gpu)
    require_fp8(device)
    require_compiler(device)
    keep_the_compiler_quiet()
    threads = set_up(device)
    cast = CASTS[str(point["cast"])]
    original = torch.randn(SIDE, SIDE, device=device, dtype=torch.bfloat16)
    run = torch.compile(cast.run)
    replay = Replay(lambda: lambda: run(original), device)
    return arm_on(
        device,
        threads,
        step=replay.step,
        error=lambda: cast.error(original, tuple(replay.results)),
    )
