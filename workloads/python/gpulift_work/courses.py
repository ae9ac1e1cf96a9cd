"""Trainings from their beginning, for arms of which it matters how fast a model learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gpulift_work.texts import Text
from gpulift_work.training import Training

LOOKS = 16  # at the loss, in a training
WARM_UP = 0.1  # of the updates
FACTORS = (1 / 3, 1.0, 3.0)  # of the learning rate, which all arms may choose from
HELD_OUT_BATCHES = 8


@dataclass(frozen=True)
class Course:
    """Of a training: how many updates it had taken at each look, and the held-out loss then."""

    rate: float
    updates: tuple[int, ...]
    losses: tuple[float, ...]

    def updates_until(self, target: float) -> float | None:
        """When the loss was as low, on a straight line between looks; None where it never was."""
        reached = next((n for n, loss in enumerate(self.losses) if loss <= target), None)
        if not reached:  # not at all, or ahead of the first look
            return None if reached is None else float(self.updates[0])
        ends = slice(reached - 1, reached + 1)
        return float(np.interp(-target, np.negative(self.losses[ends]), self.updates[ends]))


def train(
    optimizer: torch.optim.Optimizer,
    rate: float,
    updates: int,
    *,
    update: Callable[[], object],
    look: Callable[[], float],
) -> Course:
    """So many updates, whose rate rises at first and falls to nothing in the end."""
    looks = {updates * number // LOOKS for number in range(1, LOOKS + 1)} - {0}
    losses = []
    for done in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = rate * share_of_rate((done + 0.5) / updates)
        update()
        if done + 1 in looks:
            losses.append(look())
    return Course(rate, tuple(sorted(looks)), tuple(losses))


def train_on_text(training: Training, text: Text, rate: float, updates: int, seed: int) -> Course:
    """With other rows in each update, as large as the training's batch."""
    rows, tokens = training.input.shape
    generator = torch.Generator(training.device).manual_seed(seed)
    held_out = text.held_out_rows(HELD_OUT_BATCHES * rows, tokens + 1).split(rows)

    def give(drawn: torch.Tensor) -> None:
        training.input, training.target = drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()

    def update() -> None:
        give(text.draw(rows, tokens + 1, generator))
        training.step()

    def look() -> float:
        losses = []
        for batch in held_out:
            give(batch)
            # As in a step, gradients and all: of other calls what is compiled is another code.
            losses.append(float(training.make_loss().detach()))
        return float(np.mean(losses))

    return train(training.optimizer, rate, updates, update=update, look=look)


def share_of_rate(part: float) -> float:
    """After this part of the updates."""
    return min(part / WARM_UP, (1 - part) / (1 - WARM_UP))


def best_courses(
    rate: float, seeds: Sequence[int], course_at: Callable[[int, float], Course]
) -> list[Course]:
    """A training for each seed, at the rate of the lowest loss of the first seed's trainings, of
    which there is one for each factor."""
    first, *others = seeds
    tried = [course_at(first, factor * rate) for factor in FACTORS]
    losses = [course.losses[-1] for course in tried]
    best = tried[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]
    return [best, *(course_at(seed, best.rate) for seed in others)]


def mean_loss(courses: Sequence[Course]) -> float:
    """At the end; not a number where one of them is none."""
    return float(np.mean([course.losses[-1] for course in courses]))


def loss_facts(courses: Sequence[Course]) -> dict[str, float]:
    """At the end, over the seeds."""
    return {
        "held_out_loss": mean_loss(courses),
        "held_out_loss_sd": float(np.std([course.losses[-1] for course in courses], ddof=1)),
    }


def facts_of(
    courses: Sequence[Course], target: float, item: str, items_of_update: int
) -> dict[str, float]:
    """Over the seeds, by updates and by what these see; who does not reach the target counts as
    all that it took."""
    reached = [course.updates_until(target) for course in courses]
    updates = float(
        np.mean(
            [
                course.updates[-1] if until is None else until
                for course, until in zip(courses, reached, strict=True)
            ]
        )
    )
    return {
        **loss_facts(courses),
        "learning_rate": courses[0].rate,
        "updates_to_target": updates,
        f"{item}s_to_target": updates * items_of_update,
        "reached_target_share": float(np.mean([until is not None for until in reached])),
    }
