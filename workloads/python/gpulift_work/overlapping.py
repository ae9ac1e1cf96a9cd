"""Rounds of a loader that works while a device does."""

from __future__ import annotations

from collections.abc import Sequence

from gpulift_work.loaders import Key, Rounds


class Overlapping(Rounds):
    """Each step of a round has the next batch's loading behind it, as in a training. By rounds that
    end with a step a device that is waited for would not work while the next batch is loaded, and
    those of a loop without workers have one batch: of 410 ms, beside 160 of a ViT's step."""

    trained: Sequence[Key] = ()  # of the last step

    def step(self) -> None:
        """One round, of which the first batch is there."""
        for _ in range(self.batches):
            self.trained, data = self.last
            self.train(data)
            self.take()

    def settle(self) -> None:
        """And takes the batch that the next round begins with."""
        super().settle()
        self.take()
