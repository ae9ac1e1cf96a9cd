"""Models in JAX for Python arms: linear layers and a GPT-2.

They do the work of the models of gpulift_training in PyTorch. Weights are FP32 by name: of a linear
layer [in, out]. Losses take the type of their products; the rest is in FP32.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Model(ABC):
    """A model of one size with its data; arrays are made on the host."""

    batch: int

    @abstractmethod
    def make_weights(self, generator: np.random.Generator) -> Arrays:
        """What gradients change."""

    def make_buffers(self) -> Arrays:
        """What steps change without a gradient."""
        return {}

    @abstractmethod
    def make_batch(self, generator: np.random.Generator) -> tuple[Any, Any]:
        """Input and target."""

    @abstractmethod
    def loss(
        self, kind: Any, weights: Arrays, buffers: Arrays, given: Any, target: Any
    ) -> tuple[Any, Arrays]:
        """The mean loss, and the buffers after it."""


@dataclass(frozen=True)
class Mlp(Model):
    """Linear layers with ReLU between them and the mean squared error."""

    layers: int
    width: int

    def make_weights(self, generator: np.random.Generator) -> Arrays:
        deviation = 1 / math.sqrt(3 * self.width)
        weights = {}
        for i in range(self.layers):
            weights[f"{i}.weight"] = normal(generator, deviation, self.width, self.width)
            weights[f"{i}.bias"] = np.zeros(self.width, np.float32)
        return weights

    def make_batch(self, generator: np.random.Generator) -> tuple[Any, Any]:
        values = normal(generator, 1, 2, self.batch, self.width)
        return values[0], values[1]

    def loss(
        self, kind: Any, weights: Arrays, buffers: Arrays, given: Any, target: Any
    ) -> tuple[Any, Arrays]:
        for i in range(self.layers):
            given = linear(weights, str(i), jax.nn.relu(given) if i else given, kind)
        return ((given.astype(jnp.float32) - target) ** 2).mean(), buffers


@dataclass(frozen=True)
class Gpt(Model):
    """A GPT-2 without dropout whose output layer shares the weight of the token embedding."""

    layers: int
    width: int
    heads: int
    tokens: int
    vocabulary: int

    def make_weights(self, generator: np.random.Generator) -> Arrays:
        width = self.width
        weights = {
            "wte": normal(generator, 0.02, self.vocabulary, width),
            "wpe": normal(generator, 0.02, self.tokens, width),
        }
        small = 0.02 / math.sqrt(2 * self.layers)
        layers = {
            "c_attn": (width, 3 * width, 0.02),
            "c_proj": (width, width, small),
            "c_fc": (width, 4 * width, 0.02),
            "mlp_c_proj": (4 * width, width, small),
        }
        for i in range(self.layers):
            for name, (rows, columns, deviation) in layers.items():
                weights[f"{i}.{name}.weight"] = normal(generator, deviation, rows, columns)
                weights[f"{i}.{name}.bias"] = np.zeros(columns, np.float32)
        for name in (*(f"{i}.ln_{j}" for i in range(self.layers) for j in (1, 2)), "ln_f"):
            weights[f"{name}.weight"] = np.ones(width, np.float32)
            weights[f"{name}.bias"] = np.zeros(width, np.float32)
        return weights

    def make_batch(self, generator: np.random.Generator) -> tuple[Any, Any]:
        return token_batch(generator, self.batch, self.tokens, self.vocabulary)

    def loss(
        self, kind: Any, weights: Arrays, buffers: Arrays, given: Any, target: Any
    ) -> tuple[Any, Arrays]:
        state = weights["wte"][given] + weights["wpe"]
        rows, length, width = state.shape
        for i in range(self.layers):
            parts = linear(weights, f"{i}.c_attn", layer_norm(weights, f"{i}.ln_1", state), kind)
            parts = parts.reshape(rows, length, 3, self.heads, width // self.heads)
            mixed = jax.nn.dot_product_attention(
                parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True
            )
            state = state + linear(weights, f"{i}.c_proj", mixed.reshape(rows, length, width), kind)
            hidden = linear(weights, f"{i}.c_fc", layer_norm(weights, f"{i}.ln_2", state), kind)
            state = state + linear(weights, f"{i}.mlp_c_proj", jax.nn.gelu(hidden), kind)
        final = layer_norm(weights, "ln_f", state).astype(kind)
        return cross_entropy(final @ weights["wte"].astype(kind).T, target), buffers


def normal(generator: np.random.Generator, deviation: float, *shape: int) -> Any:
    """Normally distributed around 0."""
    return generator.normal(0, deviation, shape).astype(np.float32)


def token_batch(
    generator: np.random.Generator, rows: int, length: int, vocabulary: int
) -> tuple[Any, Any]:
    """Tokens and those that follow them."""
    tokens = generator.integers(vocabulary, size=(rows, length + 1), dtype=np.int32)
    return tokens[:, :-1], tokens[:, 1:]


def linear(weights: Arrays, name: str, given: Any, kind: Any) -> Any:
    """A product in this type."""
    return given.astype(kind) @ weights[f"{name}.weight"].astype(kind) + weights[
        f"{name}.bias"
    ].astype(kind)


def layer_norm(weights: Arrays, name: str, given: Any) -> Any:
    """In FP32."""
    mean = given.mean(-1, keepdims=True)
    deviation = jax.lax.rsqrt(given.var(-1, keepdims=True) + 1e-5)
    return (given - mean) * deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def cross_entropy(logits: Any, target: Any) -> Any:
    """The mean over all targets, in FP32."""
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()
