"""Training steps in JAX for Python arms: a GPT-2 and a stack of linear layers, and AdamW.

Sizes, rules and precisions are those of gpulift_training, which has the same models in PyTorch.
Data are synthetic and seeded. With BF16 the products are in BF16 and the rest in FP32, as under
autocast.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

# All arms of a case share the device's memory. Before JAX reads it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from gpulift_worker import Arm, Skip

CHECKED_STEPS = 20
TIMED_STEPS = 20
COLD_STEPS = 3
EPSILON = 1e-8

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """A model and its rule. Without a vocabulary it is linear layers alone."""

    batch: int
    layers: int
    width: int
    bf16: bool
    heads: int = 0
    tokens: int = 0
    vocabulary: int = 0
    rate: float = 1e-4
    decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)


SIZES = {
    "gpt_small": Size(1, 4, 768, True, heads=12, tokens=128, vocabulary=50257),
    "gpt_toy": Size(8, 2, 64, False, heads=4, tokens=32, vocabulary=64, rate=3e-3),
    "mlp": Size(256, 8, 4096, True, rate=1e-3, decay=0.01, betas=(0.9, 0.999)),
}


def size_of(name: str) -> Size:
    """Throws Skip for a model that is not written in JAX here."""
    if name not in SIZES:
        raise Skip(f"the model {name} is not written in JAX here", "look at another case")
    return SIZES[name]


def device_of(gpu: int | None) -> Any:
    """The GPU where there is one: what is measured must not depend on how JAX was built."""
    if gpu is None:
        # One core stays free, as for other arms. JAX makes as many threads as it finds cores.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:-1] or cores)
        return jax.devices("cpu")[0]
    try:
        return jax.devices("gpu")[gpu]
    except (RuntimeError, IndexError) as error:
        raise Skip(
            "JAX cannot use the GPU",
            "install jax[cuda13], or name another interpreter with --python",
        ) from error


def make_weights(size: Size, generator: np.random.Generator) -> Arrays:
    """FP32 weights by name, on the host."""

    def normal(*shape: int, deviation: float = 0.02) -> Any:
        return generator.normal(0, deviation, shape).astype(np.float32)

    width, weights = size.width, {}
    if not size.vocabulary:
        bound = 1 / math.sqrt(width)
        for i in range(size.layers):
            weights[f"{i}.weight"] = normal(width, width, deviation=bound / math.sqrt(3))
            weights[f"{i}.bias"] = np.zeros(width, np.float32)
        return weights
    small = 0.02 / math.sqrt(2 * size.layers)
    weights["wte"], weights["wpe"] = normal(size.vocabulary, width), normal(size.tokens, width)
    linear = {
        "c_attn": (width, 3 * width, 0.02),
        "c_proj": (width, width, small),
        "c_fc": (width, 4 * width, 0.02),
        "mlp_c_proj": (4 * width, width, small),
    }
    for i in range(size.layers):
        for name, (rows, columns, deviation) in linear.items():
            weights[f"{i}.{name}.weight"] = normal(rows, columns, deviation=deviation)
            weights[f"{i}.{name}.bias"] = np.zeros(columns, np.float32)
    for name in (*(f"{i}.ln_{j}" for i in range(size.layers) for j in (1, 2)), "ln_f"):
        weights[f"{name}.weight"] = np.ones(width, np.float32)
        weights[f"{name}.bias"] = np.zeros(width, np.float32)
    return weights


def make_batch(size: Size, generator: np.random.Generator) -> tuple[Any, Any]:
    """Input and target, on the host."""
    if not size.vocabulary:
        values = generator.normal(size=(2, size.batch, size.width)).astype(np.float32)
        return values[0], values[1]
    tokens = generator.integers(size.vocabulary, size=(size.batch, size.tokens + 1), dtype=np.int32)
    return tokens[:, :-1], tokens[:, 1:]


def linear(weights: Arrays, name: str, given: Any, kind: Any) -> Any:
    """A product in this type."""
    return given.astype(kind) @ weights[f"{name}.weight"].astype(kind) + weights[
        f"{name}.bias"
    ].astype(kind)


def norm(weights: Arrays, name: str, given: Any) -> Any:
    """Layer normalisation in FP32."""
    mean = given.mean(-1, keepdims=True)
    deviation = jax.lax.rsqrt(given.var(-1, keepdims=True) + 1e-5)
    return (given - mean) * deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gpt_loss(size: Size, kind: Any, weights: Arrays, tokens: Any, target: Any) -> Any:
    """The mean cross entropy of a GPT-2 without dropout."""
    state = weights["wte"][tokens] + weights["wpe"]
    rows, length, width = state.shape
    for i in range(size.layers):
        parts = linear(weights, f"{i}.c_attn", norm(weights, f"{i}.ln_1", state), kind)
        parts = parts.reshape(rows, length, 3, size.heads, width // size.heads)
        mixed = jax.nn.dot_product_attention(
            parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True
        )
        state = state + linear(weights, f"{i}.c_proj", mixed.reshape(rows, length, width), kind)
        hidden = linear(weights, f"{i}.c_fc", norm(weights, f"{i}.ln_2", state), kind)
        state = state + linear(weights, f"{i}.mlp_c_proj", jax.nn.gelu(hidden), kind)
    final = norm(weights, "ln_f", state).astype(kind)
    logits = (final @ weights["wte"].astype(kind).T).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()


def mlp_loss(size: Size, kind: Any, weights: Arrays, given: Any, target: Any) -> Any:
    """The mean squared error of linear layers with ReLU between them."""
    for i in range(size.layers):
        given = linear(weights, str(i), jax.nn.relu(given) if i else given, kind)
    return ((given.astype(jnp.float32) - target) ** 2).mean()


def adamw(size: Size, state: Arrays, gradients: Arrays) -> Arrays:
    """I. Loshchilov, F. Hutter, arXiv:1711.05101."""
    (beta1, beta2), rate = size.betas, size.rate
    count = state["count"] + 1
    first = {
        name: beta1 * state["first"][name] + (1 - beta1) * one for name, one in gradients.items()
    }
    second = {
        name: beta2 * state["second"][name] + (1 - beta2) * one * one
        for name, one in gradients.items()
    }
    size_of_step = rate / (1 - beta1**count)
    correction = jnp.sqrt(1 - beta2**count)
    weights = {
        name: one * (1 - rate * size.decay)
        - size_of_step * first[name] / (jnp.sqrt(second[name]) / correction + EPSILON)
        for name, one in state["weights"].items()
    }
    return {"weights": weights, "first": first, "second": second, "count": count}


def train_step(size: Size, bf16: bool, state: Arrays, given: Any, target: Any) -> tuple[Any, Any]:
    """The loss, and the state after one step."""
    loss_of = gpt_loss if size.vocabulary else mlp_loss
    with jax.default_matmul_precision("default" if bf16 else "highest"):  # no TF32 for FP32
        kind = jnp.bfloat16 if bf16 else jnp.float32
        loss, gradients = jax.value_and_grad(partial(loss_of, size, kind))(
            state["weights"], given, target
        )
    return loss, adamw(size, state, gradients)


class Training:
    """A model in training. Two of the same seed start alike."""

    def __init__(
        self, name: str, device: Any, seed: int, *, jit: bool, plain: bool = False
    ) -> None:
        """`plain`: in FP32, for reference."""
        size = size_of(name)
        generator = np.random.default_rng(seed)
        weights = make_weights(size, generator)
        zeros = {key: np.zeros_like(one) for key, one in weights.items()}
        state = {"weights": weights, "first": zeros, "second": zeros, "count": np.float32(0)}
        self.device = device
        self.state: Arrays = jax.device_put(state, device)
        self.batch = jax.device_put(make_batch(size, generator), device)
        step: Callable[..., Any] = partial(train_step, size, size.bf16 and not plain)
        self._step = jax.jit(step, donate_argnums=0) if jit else step
        self.loss: Any = None
        self.losses: list[float] = []

    def step(self) -> None:
        """One step; does not wait for the device."""
        self.loss, self.state = self._step(self.state, *self.batch)

    def record(self) -> None:
        """Keeps the loss of the last step."""
        self.losses.append(float(self.loss))

    def train_until(self, steps: int) -> None:
        """Steps until so many losses are kept."""
        while len(self.losses) < steps:
            self.step()
            self.record()

    def synchronize(self) -> None:
        """Waits for the device."""
        jax.block_until_ready((self.loss, self.state))

    def step_time_s(self, steps: int = TIMED_STEPS) -> float:
        """The mean time of a step, of so many."""
        self.step()
        self.synchronize()
        start_s = monotonic()
        for _ in range(steps):
            self.step()
        self.synchronize()
        return (monotonic() - start_s) / steps

    def peak_bytes(self) -> dict[str, float]:
        """The most that this process held on the device so far; none on the host."""
        stats = self.device.memory_stats() or {}
        if "peak_bytes_in_use" not in stats:
            return {}
        return {"peak_allocated_bytes": float(stats["peak_bytes_in_use"])}


def reference_losses(name: str, device: Any, seed: int) -> list[float]:
    """Of steps in FP32 with TF32 off from the same weights."""
    reference = Training(name, device, seed, jit=True, plain=True)
    reference.train_until(CHECKED_STEPS)
    return reference.losses


def largest_deviation(found: list[float], expected: list[float]) -> float:
    """The largest |found - expected| relative to the first expected; else not a number."""
    deviations = [abs(a - b) / abs(expected[0]) for a, b in zip(found, expected, strict=True)]
    return max(deviations) if all(map(math.isfinite, deviations)) else math.nan


def make_arm(name: str, seed: int, gpu: int | None, *, jit: bool) -> Arm:
    """An arm that trains a model; with `jit` the metrics say what compiling cost."""
    device = device_of(gpu)
    training = Training(name, device, seed, jit=jit)
    start_s = monotonic()
    training.train_until(COLD_STEPS)
    cold_start_s = monotonic() - start_s
    peak: dict[str, float] = {}

    def error() -> float:
        peak.update(training.peak_bytes())  # before the reference takes more
        training.record()  # of the step that was taken between
        training.train_until(CHECKED_STEPS)
        return largest_deviation(training.losses, reference_losses(name, device, seed))

    def metrics() -> dict[str, float]:
        if not jit:
            return peak
        plain = Training(name, device, seed, jit=False)
        plain.train_until(1)
        saved_s = plain.step_time_s() - training.step_time_s()
        found = {**peak, "cold_start_s": cold_start_s}
        return {**found, "break_even_steps": cold_start_s / saved_s} if saved_s > 0 else found

    notes = {"jax": jax.__version__, "jax_device": device.platform}
    if device.platform == "cpu":
        notes["jax_threads"] = str(len(os.sched_getaffinity(0)))
    return Arm(
        step=training.step,
        error=error,
        synchronize=training.synchronize,
        notes=notes,
        metrics=metrics,
    )
