"""moe/experts: each arm trains as the exact model does, and what is compiled is in groups."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import experts, llama  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("arm", ["one_by_one", "grouped"])
def test_first_steps_are_within_the_tolerance(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    monkeypatch.setattr(llama, "INITIAL_DEVIATION", 0.1)
    job = technique.Job("moe_toy", CPU, 7, arm)
    assert job.error() < technique.TECHNIQUE["check"]["tolerance"]
    works = {layer.mlp.work for layer in job.training.model.layers}
    assert works == {getattr(experts, arm)}


def test_tokens_in_another_order_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mixed_up(tokens: Any, *others: Any) -> Any:
        return experts.grouped(tokens.flip(0), *others)

    monkeypatch.setattr(technique, "grouped", mixed_up)
    # So that the networks add as much to a state as those that are 32 times as wide do.
    monkeypatch.setattr(llama, "INITIAL_DEVIATION", 0.1)
    job = technique.Job("moe_toy", CPU, 7, "grouped")
    job.loss_tolerance = 1.0
    assert job.error() > technique.TECHNIQUE["check"]["tolerance"]


def test_a_network_that_is_left_out_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_but_one(tokens: Any, chosen: Any, shares: Any, *weights: Any) -> Any:
        return experts.grouped(tokens, chosen, shares * (chosen < 3), *weights)

    monkeypatch.setattr(technique, "grouped", all_but_one)
    with pytest.raises(technique.Failed, match="no gradient reaches"):
        technique.Job("moe_toy", CPU, 7, "grouped").error()


@pytest.mark.parametrize("name", ["moe_8e", "moe_64e"])
def test_networks_have_as_many_tokens(technique: ModuleType, name: str) -> None:
    size = experts.MOE_SIZES[name]
    chosen = technique.drawn(8192, size, CPU)(None)
    assert chosen.shape == (8192, size.chosen)
    taken = torch.zeros(8192, size.experts).scatter(1, chosen, 1.0).sum(0)
    assert taken.sum() == 8192 * size.chosen, "one is taken twice"
    assert taken.max() < 1.15 * taken.mean()
    assert taken.min() > 0.85 * taken.mean()


def test_a_compiled_model_is_as_exact(technique: ModuleType) -> None:
    job = technique.Job("moe_toy", CPU, 7, "grouped_compiled")
    assert job.error() < technique.TECHNIQUE["check"]["tolerance"]
