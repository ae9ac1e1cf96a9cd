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


def test_a_compiled_model_is_as_exact(technique: ModuleType) -> None:
    job = technique.Job("moe_toy", CPU, 7, "grouped_compiled")
    assert job.error() < technique.TECHNIQUE["check"]["tolerance"]
