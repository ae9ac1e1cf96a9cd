"""Models in JAX for Python arms: linear layers, a GPT-2, an LSTM and a ResNet.

They do the work of the models of training.py in PyTorch, and those of LSTM and ResNet have its
names. Weights are FP32 by name: of a linear layer [in, out], of a convolution [height, width, in,
out]. Losses take the type of their products; what is not a product is in FP32, except where
autocast leaves what products give in their type.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
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


@dataclass(frozen=True)
class Lstm(Model):
    """A language model of LSTM layers. States are in the products' type, as under autocast."""

    layers: int
    width: int
    tokens: int
    vocabulary: int

    def make_weights(self, generator: np.random.Generator) -> Arrays:
        width, bound = self.width, 1 / math.sqrt(self.width)
        weights = {"embedding.weight": normal(generator, 1, self.vocabulary, width)}
        for i in range(self.layers):
            for side in ("ih", "hh"):
                weights[f"lstm.weight_{side}_l{i}"] = uniform(generator, bound, width, 4 * width)
                weights[f"lstm.bias_{side}_l{i}"] = uniform(generator, bound, 4 * width)
        weights["decoder.weight"] = uniform(generator, bound, width, self.vocabulary)
        weights["decoder.bias"] = uniform(generator, bound, self.vocabulary)
        return weights

    def make_batch(self, generator: np.random.Generator) -> tuple[Any, Any]:
        return token_batch(generator, self.batch, self.tokens, self.vocabulary)

    def loss(
        self, kind: Any, weights: Arrays, buffers: Arrays, given: Any, target: Any
    ) -> tuple[Any, Arrays]:
        state = weights["embedding.weight"][given.T]  # [tokens, rows, width]
        for i in range(self.layers):
            layer = {
                name: weights[f"lstm.{name}_l{i}"].astype(kind)
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            # Of all tokens in one product: it does not need the states before.
            gates = state.astype(kind) @ layer["weight_ih"] + layer["bias_ih"] + layer["bias_hh"]
            # One operation, or a step without jit would compile the scan anew each time.
            state = jax.jit(recurrence)(gates, layer["weight_hh"])
        return cross_entropy(linear(weights, "decoder", state, kind), target.T), buffers


@dataclass(frozen=True)
class Resnet(Model):
    """A ResNet of bottlenecks as in torchvision, with its stride in the 3 x 3 convolution."""

    blocks: tuple[int, int, int, int]  # of each stage
    pixels: int
    classes: int

    def plan(self) -> Iterator[tuple[str, int, int, int]]:
        """Name, channels given, channels between and stride of each block, in order."""
        given = 64
        for stage, count in enumerate(self.blocks):
            planes = 64 << stage
            for i in range(count):
                yield f"layer{stage + 1}.{i}", given, planes, 2 if stage and not i else 1
                given = 4 * planes

    def convolutions(self) -> Iterator[tuple[str, str, int, int, int]]:
        """Name of each convolution and of its norm, width of its kernel, channels in and out."""
        yield "conv1", "bn1", 7, 3, 64
        for name, given, planes, _ in self.plan():
            yield f"{name}.conv1", f"{name}.bn1", 1, given, planes
            yield f"{name}.conv2", f"{name}.bn2", 3, planes, planes
            yield f"{name}.conv3", f"{name}.bn3", 1, planes, 4 * planes
            if given != 4 * planes:
                yield f"{name}.downsample.0", f"{name}.downsample.1", 1, given, 4 * planes

    def make_weights(self, generator: np.random.Generator) -> Arrays:
        weights = {}
        for name, norm, kernel, given, out in self.convolutions():
            deviation = math.sqrt(2 / (out * kernel**2))
            weights[f"{name}.weight"] = normal(generator, deviation, kernel, kernel, given, out)
            # Each block begins as the identity, as in C++.
            first = np.zeros if norm.endswith("bn3") else np.ones
            weights[f"{norm}.weight"] = first(out, np.float32)
            weights[f"{norm}.bias"] = np.zeros(out, np.float32)
        features = 4 * 512  # of the last stage
        bound = 1 / math.sqrt(features)
        weights["fc.weight"] = uniform(generator, bound, features, self.classes)
        weights["fc.bias"] = uniform(generator, bound, self.classes)
        return weights

    def make_buffers(self) -> Arrays:
        buffers = {}
        for _, norm, _, _, out in self.convolutions():
            buffers[f"{norm}.running_mean"] = np.zeros(out, np.float32)
            buffers[f"{norm}.running_var"] = np.ones(out, np.float32)
        return buffers

    def make_batch(self, generator: np.random.Generator) -> tuple[Any, Any]:
        images = normal(generator, 1, self.batch, self.pixels, self.pixels, 3)
        return images, generator.integers(self.classes, size=self.batch, dtype=np.int32)

    def loss(
        self, kind: Any, weights: Arrays, buffers: Arrays, given: Any, target: Any
    ) -> tuple[Any, Arrays]:
        after: Arrays = {}

        def normed(image: Any, conv: str, norm: str, stride: int = 1) -> Any:
            kernel = weights[f"{conv}.weight"].astype(kind)
            found, running = batch_norm(
                weights, buffers, norm, convolution(image.astype(kind), kernel, stride)
            )
            after.update(running)
            return found

        image = max_pool(jax.nn.relu(normed(given, "conv1", "bn1", 2)))
        for name, channels, planes, stride in self.plan():
            found = jax.nn.relu(normed(image, f"{name}.conv1", f"{name}.bn1"))
            found = jax.nn.relu(normed(found, f"{name}.conv2", f"{name}.bn2", stride))
            found = normed(found, f"{name}.conv3", f"{name}.bn3")
            if channels != 4 * planes:
                image = normed(image, f"{name}.downsample.0", f"{name}.downsample.1", stride)
            image = jax.nn.relu(found + image)
        return cross_entropy(linear(weights, "fc", image.mean((1, 2)), kind), target), after


def normal(generator: np.random.Generator, deviation: float, *shape: int) -> Any:
    """Normally distributed around 0."""
    return generator.normal(0, deviation, shape).astype(np.float32)


def uniform(generator: np.random.Generator, bound: float, *shape: int) -> Any:
    """Between -bound and bound."""
    return generator.uniform(-bound, bound, shape).astype(np.float32)


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


def convolution(image: Any, kernel: Any, stride: int) -> Any:
    """Padded so that stride 1 keeps the size of an image [rows, height, width, channels]."""
    side = (kernel.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(
        image,
        kernel,
        (stride, stride),
        ((side, side), (side, side)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def max_pool(image: Any) -> Any:
    """Of 3 x 3 with stride 2 and padding 1."""
    return jax.lax.reduce_window(
        image,
        -jnp.inf,
        jax.lax.max,
        (1, 3, 3, 1),
        (1, 2, 2, 1),
        ((0, 0), (1, 1), (1, 1), (0, 0)),
    )


def batch_norm(weights: Arrays, buffers: Arrays, name: str, given: Any) -> tuple[Any, Arrays]:
    """In FP32 by the batch's statistics, in the type given; and the running ones after it."""
    values = given.astype(jnp.float32)
    mean = values.mean((0, 1, 2))
    # Both sums in one pass over the activations, as Flax has it; var() would take a second one.
    variance = jnp.maximum((values * values).mean((0, 1, 2)) - mean * mean, 0)
    scale = jax.lax.rsqrt(variance + 1e-5) * weights[f"{name}.weight"]
    found = (values - mean) * scale + weights[f"{name}.bias"]
    count = given.size // given.shape[-1]
    seen = {"running_mean": mean, "running_var": variance * (count / (count - 1))}
    running = {
        f"{name}.{key}": 0.9 * buffers[f"{name}.{key}"] + 0.1 * one for key, one in seen.items()
    }
    return found.astype(given.dtype), running


def hidden_states(gates: Any, weight: Any) -> Any:
    """Those of an LSTM [tokens, rows, width] after each token, from what its input gives to the
    gates: input, forget, cell and output, in torch's order."""

    def step(state: tuple[Any, Any], given: Any) -> tuple[tuple[Any, Any], Any]:
        hidden, cell = state
        let_in, keep, new, show = jnp.split(given + hidden @ weight, 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(let_in) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(show) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((gates.shape[1], weight.shape[0]), gates.dtype)
    return jax.lax.scan(step, (start, start), gates)[1]


def recurrence_forward(gates: Any, weight: Any) -> tuple[Any, Any]:
    """The states, and what recurrence_backward() needs."""
    hidden, gates_of = jax.vjp(lambda one: hidden_states(one, weight), gates)
    return hidden, (hidden, gates_of)


def recurrence_backward(saved: Any, slope: Any) -> tuple[Any, Any]:
    """Gradients of both that hidden_states() is given."""
    hidden, gates_of = saved
    (gates,) = gates_of(slope)
    return gates, jnp.einsum("tri,trj->ij", hidden[:-1], gates[1:])  # the first state is 0


# hidden_states() with the gradient of the weight in one product of all tokens. A scan alone
# would add one of each token to the last, and round to BF16 every time.
recurrence = jax.custom_vjp(hidden_states)
recurrence.defvjp(recurrence_forward, recurrence_backward)
