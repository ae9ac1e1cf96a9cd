"""A step whose weights are off by their last bit, which tells how far rounding alone turns it."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class Rounded:
    """Every weight up or down by chance; no random number of the script is drawn for it."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._optimizers = list(optimizers)

    @torch.no_grad()
    def flip(self) -> None:
        """Of the weights as they are now."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.is_floating_point():
                        _nudge(parameter)

    def back(self) -> None:
        """Whoever restores the weights does."""


def _nudge(weights: torch.Tensor) -> None:
    chance = torch.Generator(weights.device).manual_seed(1)
    last_bit = torch.finfo(weights.dtype).eps
    ups = torch.randint(2, weights.shape, generator=chance, device=weights.device)
    weights.mul_(torch.where(ups == 1, 1 + last_bit, 1 - last_bit).to(weights.dtype))
