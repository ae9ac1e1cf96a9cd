"""Training steps in JAX for Python arms: AdamW and SGD on the models of jax_models.py.

Sizes, rules and precisions are those of training.py, which has the same models in PyTorch.
Data are synthetic and seeded. With BF16 the products are in BF16 and the rest in FP32, as under
autocast.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

# All arms of a case share the device's memory. Before JAX reads it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from gpulift_worker import Arm, Skip, ran_out_of_memory, usable_cores

from gpulift_work.jax_models import Arrays, Gpt, Lstm, Mlp, Model, Resnet

CHECKED_STEPS = 5
TIMED_STEPS = 20
COLD_STEPS = 3
EPSILON = 1e-8


@dataclass(frozen=True)
class AdamW:
    """I. Loshchilov, F. Hutter, arXiv:1711.05101."""

    rate: float = 1e-3
    decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)

    def start(self, weights: Arrays) -> Arrays:
        """The moments before the first step, on the host."""
        return {"first": zeros_of(weights), "second": zeros_of(weights), "count": np.float32(0)}

    def step(self, weights: Arrays, gradients: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """Weights and moments after a step."""
        (beta1, beta2), rate = self.betas, self.rate
        count = before["count"] + 1
        first = {
            name: beta1 * before["first"][name] + (1 - beta1) * one
            for name, one in gradients.items()
        }
        second = {
            name: beta2 * before["second"][name] + (1 - beta2) * one * one
            for name, one in gradients.items()
        }
        size_of_step = rate / (1 - beta1**count)
        correction = jnp.sqrt(1 - beta2**count)
        after = {
            name: one * (1 - rate * self.decay)
            - size_of_step * first[name] / (jnp.sqrt(second[name]) / correction + EPSILON)
            for name, one in weights.items()
        }
        return after, {"first": first, "second": second, "count": count}


@dataclass(frozen=True)
class Sgd:
    """With momentum, and weight decay that is added to the gradient."""

    rate: float
    momentum: float
    decay: float

    def start(self, weights: Arrays) -> Arrays:
        """The momenta before the first step, on the host."""
        return zeros_of(weights)

    def step(self, weights: Arrays, gradients: Arrays, before: Arrays) -> tuple[Arrays, Arrays]:
        """Weights and momenta after a step."""
        momenta = {
            name: self.momentum * before[name] + (gradients[name] + self.decay * one)
            for name, one in weights.items()
        }
        after = {name: one - self.rate * momenta[name] for name, one in weights.items()}
        return after, momenta


@dataclass(frozen=True)
class Twin:
    """How a model is trained, as in PyTorch and C++."""

    model: Model
    bf16: bool
    rule: AdamW | Sgd


GPT_BETAS = (0.9, 0.95)
RESNET50 = Twin(
    Resnet(64, blocks=(3, 4, 6, 3), pixels=224, classes=1000),
    bf16=True,
    rule=Sgd(0.01, momentum=0.9, decay=1e-4),
)
TWINS = {
    "resnet50": RESNET50,
    "resnet50_128": replace(RESNET50, model=replace(RESNET50.model, batch=128)),
    "gpt_small": Twin(
        Gpt(1, layers=4, width=768, heads=12, tokens=128, vocabulary=50304),
        bf16=True,
        rule=AdamW(1e-4, 0.1, GPT_BETAS),
    ),
    "gpt_toy": Twin(
        Gpt(8, layers=2, width=64, heads=4, tokens=32, vocabulary=64),
        bf16=False,
        rule=AdamW(3e-3, 0.1, GPT_BETAS),
    ),
    "lstm": Twin(
        Lstm(64, layers=2, width=512, tokens=128, vocabulary=10_000), bf16=True, rule=AdamW()
    ),
    "mlp": Twin(Mlp(256, layers=8, width=4096), bf16=True, rule=AdamW()),
}


def twin_of(name: str) -> Twin:
    """Throws Skip for a model that is not written in JAX here."""
    if name not in TWINS:
        raise Skip(f"the model {name} is not written in JAX here", "look at another case")
    return TWINS[name]


def device_of(gpu: int | None) -> Any:
    """The GPU where there is one: what is measured must not depend on how JAX was built."""
    if gpu is None:
        # One core stays free, as for other arms. JAX makes as many threads as it finds cores.
        cores = usable_cores()
        os.sched_setaffinity(0, cores[:-1] or cores)
        return jax.devices("cpu")[0]
    try:
        return jax.devices("gpu")[gpu]
    except (RuntimeError, IndexError) as error:
        raise Skip(
            "JAX cannot use the GPU",
            "install jax[cuda13], or name another interpreter with --python",
        ) from error


def zeros_of(arrays: Arrays) -> Arrays:
    """Of the same names and shapes, on the host."""
    return {name: np.zeros_like(one) for name, one in arrays.items()}


def train_step(twin: Twin, bf16: bool, state: Arrays, given: Any, target: Any) -> tuple[Any, Any]:
    """The loss, and the state after one step."""
    with jax.default_matmul_precision("default" if bf16 else "highest"):  # no TF32 for FP32
        loss_of = partial(twin.model.loss, jnp.bfloat16 if bf16 else jnp.float32)
        (loss, buffers), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            state["weights"], state["buffers"], given, target
        )
    weights, moments = twin.rule.step(state["weights"], gradients, state["moments"])
    return loss, {"weights": weights, "buffers": buffers, "moments": moments}


class Training:
    """A model in training. Two of the same seed start alike."""

    def __init__(
        self, name: str, device: Any, seed: int, *, jit: bool, plain: bool = False
    ) -> None:
        """`plain`: in FP32, for reference."""
        twin = twin_of(name)
        generator = np.random.default_rng(seed)
        weights = twin.model.make_weights(generator)
        state = {
            "weights": weights,
            "buffers": twin.model.make_buffers(),
            "moments": twin.rule.start(weights),
        }
        self.device = device
        self.state: Arrays = jax.device_put(state, device)
        self.batch = jax.device_put(twin.model.make_batch(generator), device)
        step: Callable[..., Any] = partial(train_step, twin, twin.bf16 and not plain)
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


def plain_step_time_s(name: str, device: Any, seed: int) -> float:
    """What a step takes without jit."""
    plain = Training(name, device, seed, jit=False)
    plain.train_until(1)
    return plain.step_time_s()


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
        found = {**peak, "cold_start_s": cold_start_s}
        try:
            plain_step_s = plain_step_time_s(name, device, seed)
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            return found  # the arm itself has enough
        saved_s = plain_step_s - training.step_time_s()
        return {**found, "break_even_steps": cold_start_s / saved_s} if saved_s > 0 else found

    notes = {"jax_device": device.platform}
    if device.platform == "cpu":
        notes["jax_threads"] = str(len(os.sched_getaffinity(0)))
    return Arm(
        step=training.step,
        error=error,
        synchronize=training.synchronize,
        notes=notes,
        metrics=metrics,
    )
