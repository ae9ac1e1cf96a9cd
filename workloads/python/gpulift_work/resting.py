"""A training that leaves a GPU's memory to others while it rests: the weights and moments of a
case's arms do not fit a card together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from gpulift_work.training import TWINS, Training, free_memory, make_batch, make_model


class Resting:
    """A model in training, whose weights are there only while it is awake."""

    def __init__(
        self, name: str, device: torch.device, seed: int, training: Training | None = None
    ) -> None:
        """`training`: one of this name and seed that is there, drawn on the device."""
        self.seed, self.device = seed, device
        last = TWINS[name].channels_last
        self.memory_format = torch.channels_last if last else torch.preserve_format
        with device:  # which draws a billion weights sooner than a host
            self.training = training or Training(name, device, seed)
        self.seed_of_batch = seed
        self.resting = False

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The model's."""
        return list(self.training.model.parameters())

    def rest(self) -> None:
        """Waits, and drops all that a training holds but what was compiled."""
        self.training.synchronize()
        self._drop_state()
        for parameter in self.parameters:
            parameter.data = torch.empty(0, device=self.device, dtype=parameter.dtype)
        free_memory(self.device)
        self.resting = True

    def wake(self) -> None:
        """Where it rests: begins the training anew, and takes the step that makes the moments."""
        if self.resting:
            self.begin()
            self.training.step()

    def begin(self) -> None:
        """With the weights of the first step, without gradients and moments; with its data, too,
        where `seed` has become another."""
        self._drop_state()
        training = self.training
        torch.manual_seed(self.seed)
        with self.device:
            fresh = make_model(training.model_name).to(memory_format=self.memory_format)
            if self.seed_of_batch != self.seed:  # as a training draws it, behind the weights
                given = make_batch(training.model_name, len(training.input))
                training.input.copy_(given[0])
                training.target.copy_(given[1])
                self.seed_of_batch = self.seed
        for parameter, first in zip(self.parameters, fresh.parameters(), strict=True):
            parameter.data = first.data.to(parameter.dtype)
        self.resting = False

    @contextlib.contextmanager
    def from_seed(self, seed: int) -> Iterator[None]:
        """Whatever begins within begins with the weights and data of this seed."""
        own, self.seed = self.seed, seed
        try:
            yield
        finally:
            self.seed = own

    def _drop_state(self) -> None:
        self.training.loss = None
        self.training.optimizer.zero_grad(set_to_none=True)
        self.drop_moments()

    def drop_moments(self) -> None:
        """Where an optimizer keeps them elsewhere, another does it."""
        self.training.optimizer.state.clear()
