"""Losses of a language model by the libraries people use: they take what the output layer is given,
its weight and the targets, and most never hold all logits."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from gpulift_work.llama import for_products

# Of states [tokens, width], the output layer's weight [vocabulary, width] and targets [tokens]: the
# mean cross entropy.
HiddenLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class LossOfHidden(nn.Module):
    """A language model with such a loss."""

    def __init__(self, model: nn.Module, loss: HiddenLoss, *, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.loss = model, loss
        self.hidden = torch.compile(model.hidden) if compiled else model.hidden

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        state, weight = for_products(self.hidden(tokens)), for_products(self.model.output_weight)
        return self.loss(state.flatten(0, 1), weight, target.flatten())


def cut_cross_entropy() -> HiddenLoss:
    """E. Wijmans et al., arXiv:2411.09009, with the library's defaults: gradients that vanish in 16
    bits are left out."""
    from cut_cross_entropy import linear_cross_entropy

    loss: HiddenLoss = linear_cross_entropy
    return loss


def liger() -> HiddenLoss:
    """Liger's output layer and cross entropy by chunks: P.-L. Hsu et al., arXiv:2410.10989."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    fused = LigerFusedLinearCrossEntropyLoss()
    return lambda state, weight, target: fused(weight, state, target)
