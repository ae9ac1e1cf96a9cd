"""Of trainings from their beginning: rates, looks, what is chosen and told, and which text."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import courses, texts  # noqa: E402
from gpulift_work.courses import Course  # noqa: E402
from gpulift_work.training import Training  # noqa: E402

CPU = torch.device("cpu")


def test_the_rate_rises_and_falls() -> None:
    shares = [courses.share_of_rate(part) for part in (0.0, 0.05, 0.1, 0.55, 1.0)]
    assert shares == pytest.approx([0, 0.5, 1, 0.5, 0])


@pytest.mark.parametrize(("updates", "looks"), [(32, range(2, 33, 2)), (3, (1, 2, 3)), (2, (1, 2))])
def test_a_training_takes_its_updates_and_looks_up_to_16_times(updates: int, looks: Any) -> None:
    group: dict[str, float] = {}
    rates: list[float] = []
    course = courses.train(
        SimpleNamespace(param_groups=[group]),
        2.0,
        updates,
        update=lambda: rates.append(group["lr"]),
        look=lambda: float(len(rates)),
    )
    assert course == Course(2.0, tuple(looks), tuple(map(float, looks)))
    assert len(rates) == updates
    assert 0 < max(rates) <= 2
    assert rates[-1] < max(rates) or updates < 3


@pytest.mark.parametrize(("best", "chosen"), [(0.1, 0.1), (1.0, 0.3), (0.0, 0.1 / 3)])
def test_the_rate_is_the_one_that_learns_most(best: float, chosen: float) -> None:
    asked: list[tuple[int, float]] = []

    def course_at(seed: int, rate: float) -> Course:
        asked.append((seed, rate))
        return Course(rate, (1, 2), (0.0, abs(rate - best) + seed))

    kept = courses.best_courses(0.1, [7, 8, 9], course_at)
    assert [course.rate for course in kept] == pytest.approx([chosen] * 3)
    # No training is taken twice.
    assert len(asked) == len(set(asked)) == 5
    assert [course.losses[-1] for course in kept] == pytest.approx(
        [seed + abs(chosen - best) for seed in (7, 8, 9)]
    )


def test_a_training_that_broke_is_not_chosen() -> None:
    def course_at(_: int, rate: float) -> Course:
        return Course(rate, (1,), (math.nan if rate < 2 else rate,))

    assert courses.best_courses(1.0, [7], course_at) == [Course(3.0, (1,), (3.0,))]


@pytest.mark.parametrize(
    ("target", "updates"), [(1.0, 25.0), (0.5, 30.0), (0.4, None), (2.0, 10.0), (9.0, 10.0)]
)
def test_a_target_is_reached_between_two_looks(target: float, updates: float | None) -> None:
    course = Course(0.1, (10, 20, 30), (2.0, 1.5, 0.5))
    assert course.updates_until(target) == updates


def test_what_is_told_of_the_seeds() -> None:
    made = [Course(0.3, (8, 16), losses) for losses in ((0.9, 0.5), (1.5, 1.1))]
    facts = courses.facts_of(made, 1.0, "sample", 64)
    assert facts["held_out_loss"] == pytest.approx(0.8)
    assert facts["held_out_loss_sd"] == pytest.approx(0.6 / math.sqrt(2))
    assert facts["updates_to_target"] == (8 + 16) / 2
    assert facts["samples_to_target"] == 64 * (8 + 16) / 2
    assert facts["reached_target_share"] == 0.5
    assert facts["learning_rate"] == 0.3


def test_rows_are_other_ones_in_each_update_and_those_held_out_at_each_look() -> None:
    text = texts.Text(
        torch.randint(128, (4096,), dtype=torch.uint8),
        torch.randint(128, 256, (4096,), dtype=torch.uint8),
        {},
    )
    training = Training("gpt_bytes_toy", CPU, 7)
    learned: list[Any] = []
    looked: list[Any] = []
    loss_of = training.loss_of

    def watched(given: Any, target: Any) -> Any:
        assert torch.equal(given[:, 1:], target[:, :-1])
        (looked if int(given.min()) >= 128 else learned).append(given)
        return loss_of(given, target)

    training.loss_of = watched
    start = [weight.detach().clone() for weight in training.model.parameters()]
    course = courses.train_on_text(training, text, 0.01, 3, seed=7)
    assert len(learned) == 3
    assert len({batch.sum().item() for batch in learned}) == 3
    assert len(looked) == 3 * courses.HELD_OUT_BATCHES
    assert torch.equal(looked[0], looked[courses.HELD_OUT_BATCHES])
    assert not torch.equal(start[0], next(training.model.parameters()))
    assert 4 < course.losses[0] < 7
