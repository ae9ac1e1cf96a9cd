"""Trainings from their beginning, for arms of which it matters how fast a model learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

LOOKS = 8  # at the loss, in a training
WARM_UP = 0.1  # of the steps
FACTORS = (1 / 3, 1.0, 3.0)  # of the learning rate, which all arms may choose from


@dataclass(frozen=True)
class Course:
    """Of a training: what it had seen at each look, and the held-out loss then."""

    seen: tuple[int, ...]
    losses: tuple[float, ...]

    def seen_until(self, target: float) -> int | None:
        """When the loss was as low; None where it never was."""
        found = (seen for seen, loss in zip(self.seen, self.losses, strict=True) if loss <= target)
        return next(found, None)


def train(
    optimizer: torch.optim.Optimizer,
    rate: float,
    steps: int,
    *,
    seen_in_step: int,
    step: Callable[[], object],
    look: Callable[[], float],
) -> Course:
    """So many steps, whose rate rises at first and falls to nothing in the end."""
    looks = {steps * number // LOOKS for number in range(1, LOOKS + 1)}
    seen, losses = [], []
    for done in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * share_of_rate((done + 0.5) / steps)
        step()
        if done + 1 in looks:
            seen.append((done + 1) * seen_in_step)
            losses.append(look())
    return Course(tuple(seen), tuple(losses))


def share_of_rate(part: float) -> float:
    """After this part of the steps."""
    return min(part / WARM_UP, (1 - part) / (1 - WARM_UP))


def best_courses(
    rate: float, seeds: Sequence[int], course_at: Callable[[int, float], Course]
) -> list[Course]:
    """A training for each seed, at the rate of the lowest loss of the first seed's trainings, of
    which there is one for each factor."""
    first, *others = seeds
    rates = [factor * rate for factor in FACTORS]
    tried = [course_at(first, one) for one in rates]
    losses = [one.losses[-1] for one in tried]
    best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
    return [tried[best], *(course_at(seed, rates[best]) for seed in others)]


def mean_loss(courses: Sequence[Course]) -> float:
    """At the end; not a number where one of them is none."""
    return float(np.mean([one.losses[-1] for one in courses]))


def facts_of(courses: Sequence[Course], target: float, unit: str) -> dict[str, float]:
    """Over the seeds; who does not reach the target counts as all that it saw."""
    reached = [one.seen_until(target) for one in courses]
    seen = [
        one.seen[-1] if found is None else found
        for one, found in zip(courses, reached, strict=True)
    ]
    return {
        "held_out_loss": mean_loss(courses),
        "held_out_loss_sd": float(np.std([one.losses[-1] for one in courses], ddof=1)),
        f"{unit}_to_target": float(np.mean(seen)),
        "reached_target_share": float(np.mean([found is not None for found in reached])),
    }
