"""A step whose weights are off by a little, which tells how far rounding alone turns it."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .saved import parts_of


class Rounded:
    """Every weight up or down by chance, by a share of itself, but at least by its last bit; no
    random number of the script is drawn for it."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer], share: float = 0.0) -> None:
        self._optimizers, self._share = list(optimizers), share

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def flip(self) -> None:
        """Of the weights as they are now."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    for part in parts_of(parameter):
                        if part.is_floating_point():
                            _nudge(part, self._share)

    def back(self) -> None:
        """Whoever restores the weights does."""


def _nudge(weights: torch.Tensor, share: float) -> None:
    chance = torch.Generator(weights.device).manual_seed(1)
    share = max(share, torch.finfo(weights.dtype).eps)
    ups = torch.randint(2, weights.shape, generator=chance, device=weights.device)
    weights.mul_(1 + share * (2 * ups - 1).to(weights.dtype))
