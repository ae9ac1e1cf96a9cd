"""How much of a training step torch.compile is given at once."""

from __future__ import annotations

import torch

from gpulift_work.losses import LossOfHidden
from gpulift_work.losses import compiled as compiled_loss
from gpulift_work.training import Training, compile_layers


def compile_model(training: Training) -> None:
    """With its loss, and both backward."""
    training.loss_of = torch.compile(training.loss_of)


def compile_each_layer(training: Training, mode: str | None = None) -> None:
    """And the loss."""
    compile_layers(training.model, mode)
    training.loss_of = LossOfHidden(training.model, compiled_loss())
