"""The arms of optimizer/foreach: one AdamW step over all parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from gpulift_worker import Arm, Skip

TENSORS = {
    "few": (4, 1 << 22),
    "many": (150, 1 << 12),
}  # number, elements of each: as foreach.cpp counts
OPTIONS = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
CHECKED_STEPS = 3


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Parameters with gradients of their own and one optimizer over them, all in FP32."""
    # One core stays free: threads that wait for one another stall when one of them is preempted.
    threads = max(1, len(os.sched_getaffinity(0)) - 1)
    torch.set_num_threads(threads)
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

    notes = {"device": device.type, "torch_threads": str(threads)}
    if device.type == "cpu":
        return Arm(step=optimizer.step, error=error, notes=notes)

    def mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return Arm(
        step=optimizer.step,
        error=error,
        synchronize=lambda: torch.cuda.synchronize(device),
        mark=mark,
        notes=notes,
    )


def device_of(gpu: int | None) -> torch.device:
    """The GPU where there is one: what is measured must not depend on how torch was built."""
    if gpu is None:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise Skip("torch cannot use the GPU", "install a build of torch for this CUDA driver")
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


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
