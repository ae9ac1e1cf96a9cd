"""A training whose first steps are held against those of the same model in TF32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpulift_worker import Arm, Failed, Skip
from torch import nn

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


class FirstSteps(Resting):
    """A model in training that can be checked at any time, since it begins anew."""

    loss_tolerance = LOSS_TOLERANCE
    checked_steps = CHECKED_STEPS

    def __init__(self, name: str, device: torch.device, seed: int) -> None:
        require_memory(name, device)
        self.name = name
        super().__init__(name, device, seed)

    def arm(self, threads: int, **said: Any) -> Arm:
        """Its steps and what they take; `said` is what else the arm says."""
        return arm_on(
            self.device,
            threads,
            step=self.training.step,
            error=self.error,
            rest=self.rest,
            wake=self.wake,
            metrics=lambda: memory_of_step(self.training),
            **work_of_step(self.name),
            **said,
        )

    def error(self) -> float:
        """How far the gradients of the first step are from TF32's; Failed where losses are."""
        self.rest()
        expected, expected_losses = exact_steps(
            self.name, self.device, self.seed, self.checked_steps, self.prepare_exact
        )
        self.begin()
        self.training.losses = []
        self.training.make_gradients()
        scale = self.training.scaler.get_scale() if self.training.scaler else 1.0
        squares = []
        for (name, mine), theirs in zip(
            self.training.model.named_parameters(), expected, strict=True
        ):
            if theirs.any() and not mine.grad.any():  # one of many would not show in their norm
                raise Failed(f"no gradient reaches {name}")
            squares.append((squared_norm(mine.grad / scale - theirs), squared_norm(theirs)))
        del expected
        self.training.update()
        self.training.record()
        self.training.train_until(self.checked_steps)
        apart = largest_deviation(self.training.losses, expected_losses)
        if not apart <= self.loss_tolerance:  # not a number, too
            raise Failed(
                f"losses of {self.checked_steps} steps are {apart:.2g} from TF32's: "
                + ", ".join(f"{loss:.4g}" for loss in self.training.losses)
            )
        of_difference, of_expected = (sum(column) for column in zip(*squares, strict=True))
        return float((of_difference / of_expected) ** 0.5)

    def prepare_exact(self, model: nn.Module) -> None:
        """What the model in TF32 takes over from this one: nothing."""


def exact_steps(
    name: str,
    device: torch.device,
    seed: int,
    steps: int,
    prepare: Callable[[nn.Module], None],
) -> tuple[list[torch.Tensor], list[float]]:
    """The gradients of the first step, and the losses of some, of eager steps in TF32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    allow_tf32(True)
    with device:
        plain = Training(name, device, seed, plain=True)
    prepare(plain.model)
    plain.make_gradients()
    gradients = [one.grad.clone() for one in plain.model.parameters()]
    plain.optimizer.step()
    plain.record()
    plain.train_until(steps)
    losses = plain.losses
    del plain
    free_memory(device)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    return gradients, losses


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


def squared_norm(values: torch.Tensor) -> float:
    """In FP32."""
    return float(torch.linalg.vector_norm(values.float())) ** 2
