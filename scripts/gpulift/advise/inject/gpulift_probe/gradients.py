"""How far the gradients of a step are from those of another."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from .saved import kept


class Gradients:
    """Looks at them behind an optimizer's step: clipped and unscaled, also of one that makes them
    itself, by a closure."""

    def __init__(self, beside: bool = True) -> None:
        """`beside`: there is room for copies where gradients are, else on the host."""
        self._beside = beside
        self._kept: dict[int, torch.Tensor] = {}
        self._keeps, self._compares = False, False
        self._squares: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep(self) -> None:
        """Those of the next step are what others are held against."""
        self._kept.clear()
        self._keeps, self._compares = True, False

    def compare(self) -> None:
        """Those of the next step are held against the ones that were kept."""
        self._squares.clear()
        self._keeps, self._compares = False, True

    def stop(self) -> None:
        """Steps from now on are not looked at."""
        self._keeps = self._compares = False

    def distance(self) -> float | None:
        """Of the step since, relative to the norm of what was kept; None without gradients."""
        apart = sum(float(difference) for difference, _ in self._squares)
        whole = sum(float(square) for _, square in self._squares)
        return math.sqrt(apart / whole) if whole > 0 else None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def look(self, optimizer: torch.optim.Optimizer) -> None:
        """Behind each step of an optimizer."""
        if self._keeps or self._compares:
            for place, gradient in gradients_of(optimizer):
                self._look_at(place, gradient)

    def _look_at(self, place: int, gradient: torch.Tensor) -> None:
        if self._keeps:
            self._kept[place] = kept(gradient, self._beside)
        elif place in self._kept:
            first = self._kept[place].to(gradient.device)
            self._squares.append((square(gradient - first), square(first)))


def gradients_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, torch.Tensor]]:
    """With the parameter that each is of."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield id(parameter), parameter.grad.detach()


def square(gradient: torch.Tensor) -> torch.Tensor:
    """Of the norm."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    norm: torch.Tensor = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm**2
