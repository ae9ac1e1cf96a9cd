"""batch/dynamic_size: who is in which batch, that no sample sees another, and what is found."""

from __future__ import annotations

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
    with pytest.raises(technique.Failed, match="did not see each of them once"):
        epoch.require_each_once()


def see_one_another(_: Any, given: Any) -> Any:
    """As if all were one sample."""
    ends = torch.tensor([0, len(given.tokens)], dtype=torch.int32)
    return type(given)(given.tokens, given.places, ends, len(given.tokens))


def count_on(_: Any, given: Any) -> Any:
    """Places that do not begin anew."""
    places = torch.arange(len(given.tokens)) % 32
    return type(given)(given.tokens, places, given.ends, given.longest)


@pytest.mark.parametrize("mistake", [see_one_another, count_on])
def test_samples_that_see_others_or_do_not_begin_at_0_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, mistake: Any
) -> None:
    epoch = epoch_of(technique, "packed")
    right = epoch.training.loss_of
    epoch.training.loss_of = lambda given, target: right(mistake(technique, given), target)
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


def test_a_search_that_ends_badly_says_so(technique: ModuleType) -> None:
    with pytest.raises(technique.Failed, match="the search ended with 1: "):
        technique.search_in_child("no_such_model", 7, None)


def test_a_processor_is_not_searched(technique: ModuleType) -> None:
    with pytest.raises(technique.Skip, match="does not say when its memory is full"):
        technique.make("search", {"model": "gpt_toy"}, 7, None)
