"""Models that several ranks train together, each a part of it or a part of its data, for Python
arms: how far they are from one rank alone, and what their exchange costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from gpulift_worker import Arm

from gpulift_work.distributed import Group, library_versions, time_of, time_of_group
from gpulift_work.training import mark_on, memory_of_step

PAIRS = 3  # of timed groups
CALLS = 1  # in a group: steps of several models take half a second


class Trained(Protocol):
    """A rank's part of what is trained."""

    group: Group
    device: torch.device

    def step(self) -> None:
        """A training step, with all ranks."""

    def synchronize(self) -> None:
        """Waits for the device."""


class OnDevice:
    """What is the same for all that is trained on a device."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.device = group.device

    def synchronize(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def arm_of(
    trained: Trained,
    error: Callable[[], float],
    costs: Callable[[], dict[str, float]],
    *,
    tokens: int,
    model: str,
    notes: Mapping[str, str] | None = None,
    **said: Any,
) -> Arm:
    """The arm that trains it; a step is so many tokens of all ranks. `said` is what else the arm
    says."""
    device = trained.device
    on_gpu = device.type == "cuda"
    return Arm(
        step=trained.step,
        error=error,
        synchronize=trained.synchronize,
        mark=(lambda: mark_on(device)) if on_gpu else None,
        notes={
            "model": model,
            "device": device.type,
            "torch_threads": str(trained.group.threads),
            **(notes or {}),
        },
        versions=library_versions(on_gpu),
        metrics=lambda: {**memory_of(trained), **costs()},
        items=tokens,
        item="token",
        **said,
    )


def memory_of(trained: Any) -> dict[str, float]:
    """The peaks of one step, in bytes; none on the host."""
    return memory_of_step(trained)


def exposed(trained: Any, without: Callable[[], object]) -> dict[str, float]:
    """What of the exchange a step does not hide: the step less the same work of this rank with
    nobody to exchange with, below 0 where noise has more than that. Groups of both take turns, so
    that clocks that drift move both."""
    pairs = [
        (time_of_group(trained.step, trained, CALLS), time_of_group(without, trained, CALLS))
        for _ in range(PAIRS)
    ]
    with_s, without_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "exposed_communication_s": with_s - without_s,
        "step_without_exchange_s": without_s,
    }


def all_reduce_metrics(trained: Any, message: torch.Tensor) -> dict[str, float]:
    """One message in an all-reduce with nothing beside it, in bytes over the link as nccl-tests
    counts them."""
    alone_s = time_of(lambda: dist.all_reduce(message), trained)
    return {
        "all_reduce_s": alone_s,
        "all_reduce_bus_bytes_per_s": bus_bytes(message.nbytes, trained.group) / alone_s,
    }


def bus_bytes(message_bytes: float, group: Group) -> float:
    """Of an all-reduce, that each rank sends."""
    return message_bytes * 2 * (group.ranks - 1) / group.ranks


def relative_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The distance of all elements, relative to the norm of the expected ones. Tensor by tensor:
    in FP64 all at once would not fit beside a large model."""
    distance = norm = 0.0
    for one, other in zip(found, expected, strict=True):
        distance += float((one.double() - other.double()).square().sum())
        norm += float(other.double().square().sum())
    return math.sqrt(distance / norm)
