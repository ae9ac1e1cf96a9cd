"""A Llama: RMSNorm, rotary positions, grouped keys and values, SwiGLU, no biases, and an output
layer that shares the weight of the token embedding, or has its own.

Parameters are named and shaped as in Hugging Face's LlamaModel; a test compares both.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as nnf
from torch import nn

INITIAL_DEVIATION = 0.02
NORM_EPSILON = 1e-5
ROTARY_BASE = 500_000.0


@dataclass(frozen=True)
class LlamaSize:
    """The sizes of a Llama."""

    layers: int
    width: int
    heads: int
    key_heads: int  # of keys and of values, each shared by heads / key_heads queries
    inner: int  # of the SwiGLU
    tokens: int  # of a row
    vocabulary: int
    # The output layer shares the weight of the token embedding.
    tied: bool = field(default=True, kw_only=True)

    @property
    def weights(self) -> int:
        """Parameters in products: all but the norms', and but an embedding's that is not tied."""
        keys = self.width * self.key_heads // self.heads
        layer = 2 * self.width * (self.width + keys) + 3 * self.width * self.inner
        return self.layers * layer + self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        """All of them."""
        embedding = 0 if self.tied else self.vocabulary * self.width
        return self.weights + embedding + (2 * self.layers + 1) * self.width

    def flops_of_row(self) -> float:
        """Of a row's products in a training step: one forward, two backward, two operations for
        each multiply-add. Of attention the half that is not masked."""
        attention = 6 * self.layers * self.width * self.tokens
        return float(self.tokens * (6 * self.weights + attention))


LLAMA_SIZES = {
    # The shape of Llama 3.2 1B (A. Grattafiori et al., arXiv:2407.21783): 1,235,814,400 parameters
    "llama_1b": LlamaSize(16, 2048, 32, 8, 8192, 4096, 128_256),
    "llama_1b_untied": LlamaSize(16, 2048, 32, 8, 8192, 4096, 128_256, tied=False),
    # That of Llama 3.2 3B, whose training state, 51 GB, two GPUs of 80 GB share with room to spare
    "llama_3b": LlamaSize(28, 3072, 24, 8, 8192, 4096, 128_256),
    # The first layers of the smaller, with a vocabulary as large as Qwen3.5's
    "llama_248k": LlamaSize(4, 2048, 32, 8, 8192, 4096, 248_320),
    # An eighth of Llama 3.1 8B (the same paper), 4 of 32 layers and 16032 of 128256 words, so
    # that output layer and loss have the share of a step that they have of the whole.
    "llama_8b_slice": LlamaSize(4, 4096, 32, 8, 14_336, 4096, 16_032),
    # For texts without a tokenizer: small enough to be trained from its beginning several times
    "llama_bytes": LlamaSize(4, 1024, 16, 4, 4096, 512, 256),
    "llama_toy": LlamaSize(2, 64, 4, 2, 128, 32, 64),
    "llama_toy_untied": LlamaSize(2, 64, 4, 2, 128, 32, 64, tied=False),
}


# Of queries, keys and values, each with tokens, heads and their values as its last dimensions.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def causal_shared_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Each token to itself and those before it in its row; several queries may share a key."""
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    if query.dtype == torch.float32:  # of which torch has no kernel that shares keys
        key, value = repeated(query, key, value)
    shares = query.shape[1] > key.shape[1]
    return nnf.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=shares
    ).transpose(1, 2)


# Of queries, keys and a rotation: both rotated. Of a gate and values: what passes.
Rotate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
Gated = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def rotated_both(
    query: torch.Tensor, key: torch.Tensor, rotation: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each by itself."""
    return rotated(query, rotation), rotated(key, rotation)


def silu_gated(gate: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """As SwiGLU has it."""
    return nnf.silu(gate) * values


def repeated(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A key and a value for each query; of all three the second dimension is that of heads."""
    shared = query.shape[1] // key.shape[1]
    return key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)


class Attention(nn.Module):
    """Queries, keys and values of tokens, rotated by their positions, and what attention makes."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.rotate: Rotate = rotated_both
        self.head_width = size.width // size.heads
        keys = size.key_heads * self.head_width
        self.q_proj = nn.Linear(size.width, size.width, bias=False)
        self.k_proj = nn.Linear(size.width, keys, bias=False)
        self.v_proj = nn.Linear(size.width, keys, bias=False)
        self.o_proj = nn.Linear(size.width, size.width, bias=False)

    def forward(
        self,
        state: torch.Tensor,
        rotation: torch.Tensor,
        attend: Attend = causal_shared_attention,
    ) -> torch.Tensor:
        query, key, value = (
            projection(state).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = self.rotate(query, key, rotation)
        attended = attend(*(each.transpose(1, 2) for each in (query, key, value)))
        output: torch.Tensor = self.o_proj(attended.flatten(-2))
        return output


class SwiGlu(nn.Module):
    """N. Shazeer, arXiv:2002.05202."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.gated: Gated = silu_gated
        self.gate_proj = nn.Linear(size.width, size.inner, bias=False)
        self.up_proj = nn.Linear(size.width, size.inner, bias=False)
        self.down_proj = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        inner = self.gated(self.gate_proj(state), self.up_proj(state))
        output: torch.Tensor = self.down_proj(inner)
        return output


class Layer(nn.Module):
    """One of a Llama's."""

    def __init__(self, size: LlamaSize, network: nn.Module) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(size.width, eps=NORM_EPSILON)
        self.self_attn = Attention(size)
        self.post_attention_layernorm = nn.RMSNorm(size.width, eps=NORM_EPSILON)
        self.mlp = network

    def forward(
        self,
        state: torch.Tensor,
        rotation: torch.Tensor,
        attend: Attend = causal_shared_attention,
    ) -> torch.Tensor:
        state = state + self.self_attn(for_products(self.input_layernorm(state)), rotation, attend)
        normal = for_products(self.post_attention_layernorm(state))
        output: torch.Tensor = state + self.mlp(normal)
        return output


class Llama(nn.Module):
    """Logits of tokens."""

    rotation: torch.Tensor

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(
            Layer(size, self.make_network(size)) for _ in range(size.layers)
        )
        self.norm = nn.RMSNorm(size.width, eps=NORM_EPSILON)
        if not size.tied:
            self.lm_head = nn.Linear(size.width, size.vocabulary, bias=False)
        rotation = rotation_of(size.tokens, size.width // size.heads)
        self.register_buffer("rotation", rotation, persistent=False)
        self.reset_parameters()

    def make_network(self, size: LlamaSize) -> nn.Module:
        """Of a layer, what its tokens pass after attention."""
        return SwiGlu(size)

    def reset_parameters(self) -> None:
        """Draws all weights anew, from torch's default generator of the device that they are on."""
        for parameter in self.parameters():
            if parameter.dim() == 1:
                nn.init.ones_(parameter)
            else:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)

    @property
    def output_weight(self) -> torch.Tensor:
        """The output layer's: vocabulary x width."""
        output = getattr(self, "lm_head", self.embed_tokens)
        weight: torch.Tensor = output.weight
        return weight

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        """What the output layer is given."""
        state = self.embed_tokens(tokens)
        rotation = for_products(self.rotation[:, : tokens.shape[1]])
        for layer in self.layers:
            state = layer(state, rotation)
        output: torch.Tensor = self.norm(state)
        return output

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nnf.linear(self.hidden(tokens), self.output_weight)


def for_products(values: torch.Tensor) -> torch.Tensor:
    """Under autocast, in its type: it would cast them anew for each of several products."""
    kind = values.device.type
    return values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values


def rotation_of(tokens: int, head_width: int) -> torch.Tensor:
    """Cosines and sines [2, tokens, head_width] by which positions turn pairs of a head's values:
    the first half's with the second's (J. Su et al., arXiv:2104.09864)."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_width, 2) / head_width)
    angles = torch.outer(torch.arange(tokens), frequencies).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()])


def rotated(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Values [..., tokens, head_width], in their own type."""
    cosine, sine = rotation.to(heads.dtype)
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat([-second, first], dim=-1) * sine
