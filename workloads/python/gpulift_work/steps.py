"""Steps of an accelerator that is not there, for techniques that feed one.

A *sleeping* step, as storage benchmarks have it, needs no processor: whatever feeds it has the
machine to itself. A *launching* step keeps its thread busy with small operations, as a training
loop does whose pace the launches set: what else wants the processor or Python's lock holds it up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

KINDS = ("sleeping", "launching")
OPERATION_S = 1e-6  # about what an operation of a launching step takes
OPERATION_NUMBERS = 16  # so few that Python's call is nearly all of it
TIMED_STEPS = 5


@dataclass(frozen=True)
class SleepingStep:
    """Takes this time, and no processor."""

    seconds: float

    def __call__(self) -> None:
        time.sleep(self.seconds)

    def __str__(self) -> str:
        return f"emulated: sleeps {1e3 * self.seconds:g} ms"


class LaunchingStep:
    """Calls so many operations of torch from Python, each of which lets go of Python's lock and
    takes it again: the same work for all arms, however long it takes here."""

    def __init__(self, operations: int) -> None:
        self.operations = operations
        self._numbers: Any = torch.ones(OPERATION_NUMBERS)
        self._sums: Any = torch.empty(OPERATION_NUMBERS)

    def __call__(self) -> None:
        add, numbers, sums = torch.add, self._numbers, self._sums
        for _ in range(self.operations):
            add(numbers, numbers, out=sums)

    def __str__(self) -> str:
        return f"emulated: calls {self.operations} small operations"


def emulated_step(kind: str, seconds: float) -> SleepingStep | LaunchingStep:
    """A step that takes this time where nothing disturbs it; a launching one about so."""
    if kind not in KINDS:
        raise ValueError(f"no kind of step is called {kind!r}; there are {', '.join(KINDS)}")
    return (
        SleepingStep(seconds)
        if kind == "sleeping"
        else LaunchingStep(max(1, round(seconds / OPERATION_S)))
    )


def alone_s(step: Callable[[], object]) -> float:
    """What a step takes now: the median of a few."""
    times_s = []
    for _ in range(TIMED_STEPS):
        start_s = time.monotonic()
        step()
        times_s.append(time.monotonic() - start_s)
    return statistics.median(times_s)
