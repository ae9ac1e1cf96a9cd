"""Networks of which each token takes some: A. Q. Jiang et al., arXiv:2401.04088.

Parameters are named and shaped as in Hugging Face's Mixtral; a test compares both.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import nn

from gpulift_work.llama import Llama, LlamaSize, for_products

BALANCE_SHARE = 0.02  # of the loss of balance, as Mixtral 8x7B's configuration has it


@dataclass(frozen=True)
class MoeSize(LlamaSize):
    """A Llama's sizes, of whose inner networks there are several."""

    experts: int
    chosen: int  # of them by each token

    def _layer_weights(self, networks: int) -> int:
        keys = self.width * self.key_heads // self.heads
        attention = 2 * self.width * (self.width + keys)
        return attention + self.width * (self.experts + 3 * networks * self.inner)

    @property
    def weights(self) -> int:
        """Those that a token meets in products."""
        return self.layers * self._layer_weights(self.chosen) + self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        """All of them."""
        rest = (self.vocabulary + 2 * self.layers + 1) * self.width
        return self.layers * self._layer_weights(self.experts) + rest


MOE_SIZES = {
    # 8 networks half as wide as llama_1b's in half its layers, the vocabulary of Mixtral: 1.76 G
    "moe_8e": MoeSize(8, 2048, 32, 8, 4096, 4096, 32_000, experts=8, chosen=2),
    # The same in 64 pieces, as newer ones are made (D. Dai et al., arXiv:2401.06066)
    "moe_64e": MoeSize(8, 2048, 32, 8, 512, 4096, 32_000, experts=64, chosen=8),
    "moe_toy": MoeSize(2, 64, 4, 2, 128, 32, 64, experts=4, chosen=2),
}

# Of tokens [tokens, width], the networks that each has chosen and their shares [tokens, chosen],
# gates with values [experts, 2 inner, width] and outputs [experts, width, inner]: [tokens, width].
Work = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor
]


def gated(both: torch.Tensor) -> torch.Tensor:
    """SwiGLU of gates and values side by side."""
    gate, values = both.chunk(2, dim=-1)
    return nnf.silu(gate) * values


def one_by_one(
    tokens: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    """A network after another, as transformers' eager form does: the host waits for each, since it
    has to know how many tokens that has."""
    output = torch.zeros_like(tokens)
    # unbind(): of a slice by itself the gradient is as large as all weights.
    for expert, (into, out_of) in enumerate(zip(gate_up.unbind(), down.unbind(), strict=True)):
        rows, place = torch.where(chosen == expert)
        inner = gated(nnf.linear(tokens[rows], into))
        found = nnf.linear(inner, out_of) * shares[rows, place, None]
        output.index_add_(0, rows, found.to(output.dtype))
    return output


def grouped(
    tokens: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
) -> torch.Tensor:
    """All networks in one product of tokens that are sorted by them; nobody waits."""
    order = chosen.flatten().argsort(stable=True)
    ends = counted(chosen, len(gate_up)).cumsum(0).to(torch.int32)
    inner = gated(
        nnf.grouped_mm(tokens[order // chosen.shape[1]], gate_up.transpose(1, 2), offs=ends)
    )
    found = nnf.grouped_mm(inner, down.transpose(1, 2), offs=ends)
    of_tokens = found[order.argsort()].view(*chosen.shape, -1)
    return (of_tokens * shares[..., None]).sum(1).to(tokens.dtype)


class Experts(nn.Module):
    """Of several SwiGLU networks each token takes those that a router gives most, by their share.
    Of the last tokens `choice` has each one's networks [tokens, chosen], `taken` how many took each
    network, and `likely` its mean share [experts]."""

    choice: torch.Tensor
    taken: torch.Tensor
    likely: torch.Tensor

    def __init__(self, size: MoeSize) -> None:
        super().__init__()
        self.work: Work = one_by_one
        self.chosen = size.chosen
        self.gate = nn.Linear(size.width, size.experts, bias=False)
        self.gate_up_proj = nn.Parameter(torch.empty(size.experts, 2 * size.inner, size.width))
        self.down_proj = nn.Parameter(torch.empty(size.experts, size.width, size.inner))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        tokens = state.flatten(0, -2)
        likely = self.gate(tokens).float().softmax(-1)
        chosen = self.choice = self.choose(likely)
        shares = likely.gather(-1, chosen)
        shares = shares / shares.sum(-1, keepdim=True)
        self.likely = likely.mean(0)
        self.taken = counted(chosen, len(self.likely)) / len(tokens)
        weights = for_products(self.gate_up_proj), for_products(self.down_proj)
        return self.work(tokens, chosen, shares.to(tokens.dtype), *weights).view_as(state)

    def choose(self, likely: torch.Tensor) -> torch.Tensor:
        """The networks [tokens, chosen] that tokens take by their shares [tokens, experts]."""
        return likely.topk(self.chosen, dim=-1).indices


def counted(chosen: torch.Tensor, experts: int) -> torch.Tensor:
    """How many tokens each has: without bincount(), for which a host waits."""
    return (chosen.flatten() == torch.arange(experts, device=chosen.device)[:, None]).sum(1)


class Moe(Llama):
    """A Llama with several networks in each layer."""

    def make_network(self, size: LlamaSize) -> nn.Module:
        """Of a layer."""
        assert isinstance(size, MoeSize)
        return Experts(size)

    def balance(self) -> torch.Tensor:
        """What the last batch adds to its loss: least where all have as many tokens."""
        taken, likely = (
            torch.stack([getattr(layer.mlp, name) for layer in self.layers]).mean(0)
            for name in ("taken", "likely")
        )
        return BALANCE_SHARE * len(taken) * (taken * likely).sum()
