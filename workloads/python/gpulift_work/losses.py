"""Losses of a language model by the libraries people use: they take what the output layer is given,
its weight and the targets, and most never hold all logits."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as nnf
from torch import nn

from gpulift_work.experts import Moe
from gpulift_work.llama import for_products

# Of states [tokens, width], the output layer's weight [vocabulary, width] and targets [tokens]: the
# mean cross entropy.
HiddenLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class LossOfHidden(nn.Module):
    """A language model with such a loss."""

    def __init__(self, model: nn.Module, loss: HiddenLoss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        state = for_products(self.model.hidden(tokens))
        weight = for_products(self.model.output_weight)
        loss = self.loss(state.flatten(0, 1), weight, target.flatten())
        return loss + self.model.balance() if isinstance(self.model, Moe) else loss


def of_logits(state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """As a step does that knows of no library: holds all logits, and in FP32 their softmax."""
    return nnf.cross_entropy(nnf.linear(state, weight).float(), target)


def compiled(*, by_chunks: bool = False) -> HiddenLoss:
    """of_logits() by torch.compile. `by_chunks`: the compiler makes the logits of an eighth of the
    tokens after another's, and at once their gradients."""
    # By itself it does so where a product is 8 times as large as what is multiplied: of a Llama it
    # is 4 times. Where it cannot, it says nothing; torch._inductor.metrics counts where it could.
    chunks = {
        "auto_chunker.enable": True,
        "auto_chunker.amplify_ratio_threshold": 1,
        "auto_chunker.output_size_threshold": 0,
    }
    loss: HiddenLoss = torch.compile(
        of_logits, dynamic=False, options=chunks if by_chunks else None
    )
    return loss


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
