"""batch/dynamic_size: who is in which batch, that no sample sees another, and what is found."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

CPU = torch.device("cpu")
ON_HOST = ["fixed", "token_budget", "packed"]
LENGTHS = [5, 1, 8, 2, 3, 8, 1]


def epoch_of(technique: ModuleType, arm: str) -> Any:
    return technique.Epoch(arm, "gpt_toy", 7, CPU, rows=4)


def test_padding_is_no_work(technique: ModuleType) -> None:
    arm = technique.make("fixed", {"model": "gpt_toy"}, 7, None)
    assert arm.items == sum(len(one) - 1 for one in technique.make_samples("gpt_toy", 7))


def test_a_seed_changes_tokens_and_no_length(technique: ModuleType) -> None:
    one, other = (technique.make_samples("gpt2", seed) for seed in (7, 8))
    assert list(map(len, one)) == list(map(len, other))
    assert not any(map(torch.equal, one, other))


@pytest.mark.parametrize(
    ("arm", "plan"),
    [
        ("fixed", [[0, 1, 2], [3, 4, 5], [6]]),
        ("search", [[0, 1, 2], [3, 4, 5], [6]]),
        ("token_budget", [[1, 6, 3, 4], [0], [2], [5]]),
        ("packed", [[0, 1], [2, 3], [4, 5, 6]]),
    ],
)
def test_batches_have_rows_or_a_budget_of_tokens(
    technique: ModuleType, arm: str, plan: list[list[int]]
) -> None:
    assert technique.plan_of(arm, LENGTHS, 3, 12) == plan


def test_what_part_of_the_tokens_is_real(technique: ModuleType) -> None:
    share = {arm: epoch_of(technique, arm).facts()["real_share"] for arm in ON_HOST}
    assert share["fixed"] < 0.7 < share["token_budget"] < share["packed"] == 1


@pytest.mark.parametrize("plan", [[[0, 1], [1, 2]], [[0, 1]]])
def test_a_sample_that_is_left_out_or_seen_twice_fails(
    technique: ModuleType, plan: list[list[int]]
) -> None:
    epoch = epoch_of(technique, "fixed")
    epoch.samples = epoch.samples[:3]
    epoch.plan = plan
    epoch.step()
    with pytest.raises(technique.Failed, match="did not see each sample once"):
        epoch.require_each_once()


def test_samples_that_see_others_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = technique.attention_within

    def as_of_one(lengths: list[int], device: Any) -> Any:
        return right([sum(lengths)], device)

    monkeypatch.setattr(technique, "attention_within", as_of_one)
    assert epoch_of(technique, "packed").gradient_error() > 0.03


def test_places_that_do_not_begin_anew_are_found(technique: ModuleType) -> None:
    epoch = epoch_of(technique, "packed")
    right = epoch.training.loss_of

    def count_on(given: Any, target: Any) -> Any:
        places = torch.arange(len(given.places)) % 32
        return right(replace(given, places=places), target)

    epoch.training.loss_of = count_on
    assert epoch.gradient_error() > 0.03


def test_all_arms_make_the_same_update(technique: ModuleType) -> None:
    moved = []
    for arm in ON_HOST:
        epoch = epoch_of(technique, arm)
        taken: list[int] = []
        epoch.training.optimizer.register_step_post_hook(lambda *_, taken=taken: taken.append(1))
        epoch.step()
        assert taken == [1]
        moved.append(epoch.training.model.wte.weight.detach())
    assert all(torch.allclose(moved[0], other, atol=1e-4) for other in moved[1:])


def test_a_batch_that_counts_too_much_is_found(technique: ModuleType) -> None:
    epoch = epoch_of(technique, "fixed")
    right, factors = epoch.training.make_loss, iter([2.0, *[1.0] * len(epoch.plan)])
    epoch.training.make_loss = lambda: next(factors) * right()
    assert epoch.gradient_error() > 0.03


def test_padding_that_counts_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "IGNORED", 0)
    assert epoch_of(technique, "fixed").gradient_error() > 0.03


@pytest.mark.parametrize(("limit", "rows"), [(8, 8), (15, 15), (24, 23), (100, 100)])
def test_the_search_ends_within_an_eighth_of_the_most(
    technique: ModuleType, limit: int, rows: int
) -> None:
    tried = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= limit

    found = technique.largest(fits, 8)
    assert found["search_failures"] == sum(number > limit for number in tried) > 0
    assert limit * 7 / 8 <= found["rows"] <= limit


def test_a_search_makes_its_models_on_the_device(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device("meta")
    made: list[tuple[int, Any]] = []

    def training(*_: Any, batch: int) -> None:
        made.append((batch, torch.empty(0).device))
        if batch > 10:
            raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(technique, "device_of", lambda _: device)
    monkeypatch.setattr(technique, "take_steps", lambda _: None)
    monkeypatch.setattr(technique, "Training", training)
    assert technique.search("gpt_toy", 7, 0) == {"rows": 10.0, "search_failures": 3.0}
    assert made == [(8, device), (16, device), (12, device), (10, device), (11, device)]
    assert torch.empty(0).device.type == "cpu"


def test_a_search_holds_what_a_later_batch_of_an_update_finds(technique: ModuleType) -> None:
    training = technique.Training("gpt_toy", CPU, 7)
    right, held = training.make_loss, []

    def make_loss() -> Any:
        weight = training.model.wte.weight
        held.append((weight.grad is not None, weight in training.optimizer.state))
        return right()

    training.make_loss = make_loss
    technique.take_steps(training)
    assert held == [(False, False), (True, True)]


def test_a_search_that_ends_badly_says_so(technique: ModuleType) -> None:
    with pytest.raises(technique.Failed, match="the search ended with 1: "):
        technique.search_in_child("no_such_model", 7, None)


def test_a_processor_is_not_searched(technique: ModuleType) -> None:
    with pytest.raises(technique.Skip, match="does not say when its memory is full"):
        technique.make("search", {"model": "gpt_toy"}, 7, None)
