"""A vision transformer: A. Dosovitskiy et al., arXiv:2010.11929."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import nn

INITIAL_DEVIATION = 0.02
NORM_EPSILON = 1e-6
CHANNELS = 3


@dataclass(frozen=True)
class VitSize:
    """The sizes of a vision transformer."""

    layers: int
    width: int
    heads: int
    patch: int  # pixels of a side, as of the image
    pixels: int
    classes: int

    @property
    def tokens(self) -> int:
        """Of an image: its patches, and one for the class."""
        return (self.pixels // self.patch) ** 2 + 1

    def flops_of_row(self) -> float:
        """Of an image's products in a training step: one forward, two backward, two operations for
        each multiply-add. Images need no gradient."""
        tokens, width = self.tokens, self.width
        patches = 4 * (tokens - 1) * CHANNELS * self.patch**2 * width
        layer = 6 * 12 * tokens * width**2 + 12 * tokens**2 * width
        return float(patches + self.layers * layer + 6 * width * self.classes)


VIT_SIZES = {
    "vit_l16": VitSize(24, 1024, 16, 16, 224, 1000),  # ViT-L/16: 304,326,632 parameters
    "vit_toy": VitSize(2, 64, 4, 8, 32, 10),
}


class VitLayer(nn.Module):
    """Attention of all tokens of an image to all, and a network of one hidden layer."""

    def __init__(self, size: VitSize) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.ln_1 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        parts = self.in_proj(self.ln_1(state)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.transpose(1, 3).unbind(2)
        seen = nnf.scaled_dot_product_attention(query, key, value)
        state = state + self.out_proj(seen.transpose(1, 2).flatten(-2))
        return state + self.mlp_out(nnf.gelu(self.mlp_in(self.ln_2(state))))


class Vit(nn.Module):
    """Classes of images [batch, 3, pixels, pixels]: logits [batch, classes]."""

    def __init__(self, size: VitSize) -> None:
        super().__init__()
        width = size.width
        self.patches = nn.Conv2d(CHANNELS, width, size.patch, stride=size.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, size.tokens, width))
        self.layers = nn.ModuleList(VitLayer(size) for _ in range(size.layers))
        self.ln = nn.LayerNorm(width, eps=NORM_EPSILON)
        self.head = nn.Linear(width, size.classes)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 and name != "class_token":
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        first = self.class_token.expand(len(images), -1, -1)
        state = torch.cat([first, patches], dim=1) + self.places
        for layer in self.layers:
            state = layer(state)
        logits: torch.Tensor = self.head(self.ln(state[:, 0]))
        return logits
