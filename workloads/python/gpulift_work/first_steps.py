"""A training whose first steps are held against those of the same model in TF32; in later launches
of a case against those of its first one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpulift_worker import Arm, Failed, Skip, check_seed, spent
from torch import nn

from gpulift_work import repeats
from gpulift_work.references import NOTE, DamagedError, Reference, shared_reference, source_of
from gpulift_work.repeats import norm_of_gradients, squared_norm
from gpulift_work.resting import Resting
from gpulift_work.training import (
    Training,
    arm_on,
    free_memory,
    largest_deviation,
    memory_of_step,
    work_of_step,
)

CHECKED_STEPS = 5
LOSS_TOLERANCE = 0.006  # BF16: 0.0016 of the first loss
# The peaks of steps in TF32, with gradients to compare.
CHECK_BYTES = {"llama_1b": 62e9, "llama_8b_slice": 35e9}


@dataclass(frozen=True)
class Gap:
    """Between a gradient and the exact one, in squares of their norms: the parameter's name, that
    of their difference, the found one's and the exact one's, which is not 0."""

    name: str
    apart: float
    found: float
    exact: float

    @property
    def distance(self) -> float:
        """Relative to the norm of the exact one."""
        return float((self.apart / self.exact) ** 0.5)

    @property
    def norm_ratio(self) -> float:
        """Of the found one over the exact one."""
        return float((self.found / self.exact) ** 0.5)

    @property
    def cosine(self) -> float:
        """Of the angle between both."""
        return float((self.found + self.exact - self.apart) / 2 / (self.found * self.exact) ** 0.5)


@dataclass(frozen=True)
class Bounds:
    """What roundings leave of gradients: the least cosine of a parameter's with the exact one, and
    how far norms are from the exact ones, relative: a parameter's, and that of all."""

    cosine: float
    norm: float
    norm_of_all: float

    def check(self, gaps: list[Gap]) -> None:
        """Failed where one is beyond, or is no number: a fault in one of many parameters does not
        show in the distance of all."""
        of_all = total(gaps)
        if not abs(of_all.norm_ratio - 1) <= self.norm_of_all:
            raise Failed(f"gradients are {of_all.norm_ratio:.3f} times as large as TF32's")
        for gap in gaps:
            if not abs(gap.norm_ratio - 1) <= self.norm:
                raise Failed(f"{gap.name}'s gradient is {gap.norm_ratio:.3f} times TF32's")
            if not gap.cosine >= self.cosine:
                raise Failed(f"{gap.name}'s gradient has a cosine of {gap.cosine:.3f} with TF32's")


class FirstSteps(Resting):
    """A model in training that can be checked at any time, since it begins anew."""

    bounds: Bounds | None = None  # of its gradients beside the tolerance of their distance
    loss_tolerance = LOSS_TOLERANCE
    repeat_tolerance = repeats.LOSS_TOLERANCE
    checked_steps = CHECKED_STEPS

    def __init__(self, name: str, device: torch.device, seed: int) -> None:
        require_memory(name, device)
        self.name = name
        self.facts: dict[str, float] = {}  # of the last check
        self.notes: dict[str, str] = {}  # of the arm, which the check adds to
        super().__init__(name, device, seed)

    def arm(self, threads: int, *, compiles: bool = False, **said: Any) -> Arm:
        """Its steps and what they take; `said` is what else the arm says. One that compiles does so
        here, and its record tells for how long."""
        if compiles:
            with spent("compile"):
                self.training.step()
                self.training.synchronize()
        made = arm_on(
            self.device,
            threads,
            step=self.training.step,
            error=self.error,
            rest=self.rest,
            wake=self.wake,
            metrics=lambda: {**memory_of_step(self.training), **self.facts},
            **work_of_step(self.name),
            **said,
        )
        self.notes.update(made.notes)
        return replace(made, notes=self.notes)

    def error(self) -> float:
        """How far the gradients of the first step are from TF32's; in a later launch how far the
        losses of two steps are from those of the first. Failed where losses or work are others.
        All launches check from the seed of the first."""
        earlier = repeats.expected()
        with self.from_seed(check_seed()):
            self.prepare_check()
            if earlier is None:
                return self.error_of_first_steps()
            self.notes["check"] = repeats.SAID
            self.begin()
            self.facts = repeats.take_steps(self.training, work_of_step(self.name))
            return repeats.deviation(self.facts, earlier, self.repeat_tolerance)

    def prepare_check(self) -> None:
        """What has to be known or set before: nothing."""

    def error_of_first_steps(self) -> float:
        """The whole check."""
        self.rest()
        try:
            return self.error_from(self.reference())
        except DamagedError as damaged:
            self.notes[NOTE] = f"an arm's own: {damaged}"
            self.rest()
            return self.error_from(self.own_reference())

    def reference(self) -> Reference:
        """That of the case, which its first arm computes."""
        return shared_reference(
            self.own_reference,
            self.device,
            self.notes,
            source=source_of(inspect.getfile(type(self))),
            of=f"{self.checked_steps} steps by {type(self).prepare_exact.__qualname__}",
            model=self.name,
            seed=self.seed,
        )

    def own_reference(self) -> Reference:
        """The same, computed by this arm."""
        with spent("reference"):
            return exact_steps(
                self.name, self.device, self.seed, self.checked_steps, self.prepare_exact
            )

    def error_from(self, exact: Reference) -> float:
        """Of the gradients of the first step; Failed where losses are."""
        self.begin()
        self.training.losses = []
        self.training.make_gradients()
        gaps = gaps_between(self.training, exact.gradients)
        norm = norm_of_gradients(self.training)
        expected_losses = list(exact.losses)
        del exact
        free_memory(self.device)  # what the check took is no part of a step's
        if self.bounds:
            self.bounds.check(gaps)
        self.training.update()
        self.training.record()
        self.training.train_until(self.checked_steps)
        apart = largest_deviation(self.training.losses, expected_losses)
        if not apart <= self.loss_tolerance:  # not a number, too
            raise Failed(
                f"losses of {self.checked_steps} steps are {apart:.2g} from TF32's: "
                + ", ".join(f"{loss:.4g}" for loss in self.training.losses)
            )
        of_all = total(gaps)
        self.facts = {
            f"loss_deviation_of_{self.checked_steps}_steps": apart,
            "gradient_norm_ratio": of_all.norm_ratio,
            "least_gradient_cosine": min(gap.cosine for gap in gaps),
            **repeats.found_of(self.training, norm, work_of_step(self.name)),
        }
        return of_all.distance

    def prepare_exact(self, model: nn.Module) -> None:
        """What the model in TF32 takes over from this one: nothing."""


def gaps_between(training: Training, exact: Iterable[torch.Tensor]) -> list[Gap]:
    """Of its last backward pass and the exact gradients, for each parameter whose exact one is
    not 0. Raises Failed where no gradient reaches one of these."""
    scale = training.scaler.get_scale() if training.scaler else 1.0
    gaps = []
    for (name, mine), theirs in zip(training.model.named_parameters(), exact, strict=True):
        if not theirs.any():
            continue
        if mine.grad is None or not mine.grad.any():  # one would not show in the norm of all
            raise Failed(f"no gradient reaches {name}")
        found = mine.grad / scale
        squares = (squared_norm(one) for one in (found - theirs, found, theirs))
        gaps.append(Gap(name, *squares))
    return gaps


def total(gaps: Iterable[Gap]) -> Gap:
    """Of all parameters as one."""
    columns = zip(*((gap.apart, gap.found, gap.exact) for gap in gaps), strict=True)
    return Gap("all", *map(sum, columns))


def exact_steps(
    name: str,
    device: torch.device,
    seed: int,
    steps: int,
    prepare: Callable[[nn.Module], object] = lambda _: None,
    *,
    tf32: bool = True,
) -> Reference:
    """The gradients of the first step, and the losses of some, of eager steps in TF32 or FP32."""
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    allow_tf32(tf32)
    cudnn.benchmark = False  # a search takes longer than so few steps
    with device:
        plain = Training(name, device, seed, plain=True)
    prepare(plain.model)
    plain.make_gradients()
    gradients = [one.grad.clone() for one in plain.model.parameters()]
    plain.update()
    plain.record()
    plain.train_until(steps)
    losses = plain.losses
    del plain
    free_memory(device)
    products.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
    return Reference(losses, gradients)


def require_memory(name: str, device: torch.device) -> None:
    """Skips a model on a card that is too small for its check."""
    if device.type == "cpu" or name not in CHECK_BYTES:
        return
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    if total_bytes < CHECK_BYTES[name]:
        raise Skip(
            f"{name} needs {CHECK_BYTES[name] / 1e9:.0f} GB for its check, this card has"
            f" {total_bytes / 1e9:.0f}",
            "take gpt2, or a larger card",
        )


def allow_tf32(allowed: bool) -> None:
    """In products of FP32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
