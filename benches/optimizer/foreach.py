"""optimizer/foreach: one AdamW step over all parameters."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.training import device_of, leave_a_core_free, mark_on
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": (
        "What does PyTorch's fused AdamW save over foreach, its default on a GPU, and what would a "
        "loop of single-parameter updates cost?"
    ),
    "expectation": (
        "Foreach makes about 11 calls per step, fused 1, the loop 11 per tensor. Many tensors of "
        "16 KiB on a GPU: foreach cuts them into 3 to 5 launches a call and takes some 0.4 ms, "
        "fused 0.13: 3. Few tensors of 16 MiB: bound by memory. Foreach moves about 20 values per "
        "parameter in its 11 passes, fused 7: up to 2.9. The loop is a control on a GPU: a call "
        "costs 2 to 5 us in Python and dispatch, so many tensors take 150 x 11 x 3 us = 5 ms, 0.1 "
        "of foreach; few the same as foreach, which moves as much. On a CPU, where the loop is "
        "torch's default, foreach calls per tensor still, but from C++: the loop has 0.5 of its "
        "speed, and fused, which does only the arithmetic, some 150 x 3 us, 5 times as much."
    ),
    "predict": [
        {
            "case": {"tensors": "many"},
            "on": "nvidia",
            "step_time_s": {"foreach": [0.00036, 0.00044]},
            "speedup": {"fused": [2.7, 3.3], "loop": [0.09, 0.11]},
        },
        {
            "case": {"tensors": "few"},
            "on": "nvidia",
            "speedup": {"fused": [1, 2.9], "loop": [0.95, 1.05]},
        },
        {
            "case": {"tensors": "many"},
            "on": "cpu",
            "speedup": {"fused": [4.5, 5.5], "loop": [0.45, 0.55]},
        },
    ],
    "found": (
        "On an H200 foreach takes 1.1 ms for many tensors and fused 0.35: the host, which bounds "
        "both (share 1.00), issues them that much slower than estimated. On a CPU the loop has "
        "0.77: it takes 4.1 to 4.8 ms, 2.5 to 2.9 us a call, as estimated, and foreach 2.9 to 4.1, "
        "not half; why is not known."
    ),
    "arms": ["foreach", "fused", "loop"],
    "controls": ["loop"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"tensors": ["many", "few"]},
    # No quick case: three interpreters that load torch for each case and launch take longer than
    # all else together.
    "check": {
        "meaning": (
            "parameters after 3 steps against the loop in FP64, relative to the largest change"
        ),
        "tolerance": 1e-3,
    },
}

TENSORS = {"few": (4, 1 << 22), "many": (150, 1 << 12)}  # number, elements of each
VALUES_MOVED = 7  # the gradient is read; parameter and both moments are read and written
OPTIONS = {
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
    "loop": {"foreach": False, "fused": False},
}
CHECKED_STEPS = 3


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Parameters with gradients of their own and one optimizer over them, all in FP32."""
    threads = leave_a_core_free()
    device = device_of(gpu)
    generator = torch.Generator(device).manual_seed(seed)
    number, elements = TENSORS[str(point["tensors"])]
    parameters = []
    for _ in range(number):
        parameter = torch.randn(elements, generator=generator, device=device).requires_grad_()
        parameter.grad = torch.randn(elements, generator=generator, device=device)
        parameters.append(parameter)
    start = [parameter.detach().clone() for parameter in parameters]
    optimizer = adamw(parameters, arm)

    def error() -> float:
        for _ in range(CHECKED_STEPS - 1):
            optimizer.step()
        found = max(map(relative_error, start, parameters))
        start.clear()
        return found

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return Arm(
        step=optimizer.step,
        error=error,
        synchronize=synchronize,
        mark=(lambda: mark_on(device)) if device.type == "cuda" else None,
        notes={"device": device.type, "torch_threads": str(threads)},
        bytes=VALUES_MOVED * torch.float32.itemsize * number * elements,
        items=number * elements,
    )


def adamw(parameters: list[torch.Tensor], arm: str) -> torch.optim.Optimizer:
    """The optimizer of an arm, with torch's defaults."""
    try:
        return torch.optim.AdamW(parameters, lr=1e-3, **OPTIONS[arm])
    except RuntimeError as error:  # how torch refuses `fused` where it has no such kernel
        raise Skip(f"torch refuses {arm}: {error}") from error


def relative_error(start: torch.Tensor, parameter: torch.Tensor) -> float:
    """How far the parameter is from where the FP64 loop brings it, over how far that moves it.

    1 for an optimizer that changes nothing.
    """
    assert parameter.grad is not None
    exact = start.double().requires_grad_()
    exact.grad = parameter.grad.double()
    optimizer = adamw([exact], "loop")
    for _ in range(CHECKED_STEPS):
        optimizer.step()
    moved = (exact - start).abs().max().item()
    return float((exact - parameter).abs().max().item() / moved)
