"""precision/qlora: thin matrices alone are trained, on weights that have 4 bits where they say."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

POINT = {"model": "llama_toy", "activations": "kept"}


def make(technique: ModuleType, arm: str, **other: str) -> Any:
    """On the processor."""
    if arm == "qlora":
        pytest.importorskip("bitsandbytes")
    return technique.make(arm, {**POINT, **other}, 7, None)


@pytest.mark.parametrize("activations", ["kept", "checkpointed"])
@pytest.mark.parametrize("arm", ["lora", "qlora"])
def test_gradients_are_those_of_what_the_weights_stand_for(
    technique: ModuleType, arm: str, activations: str
) -> None:
    found = make(technique, arm, activations=activations)
    found.step()
    assert found.error() <= found.tolerance


def test_four_bits_are_a_fraction_of_the_layers_and_another_model(technique: ModuleType) -> None:
    sixteen, four = make(technique, "lora"), make(technique, "qlora")
    layers, rest = 2 * (2 * 64 * 96 + 3 * 64 * 128), 64 * 64 + 5 * 64
    scales = layers / 64 + 2 * 7 * 4  # a byte for each 64 weights, a number for each 256 bytes
    assert sixteen.metrics()["frozen_bytes"] == 4 * (layers + rest)
    assert four.metrics()["frozen_bytes"] == layers / 2 + scales + 4 * rest


@pytest.mark.parametrize("arm", ["lora", "qlora"])
def test_a_wrong_gradient_is_found(technique: ModuleType, trainings: list[Any], arm: str) -> None:
    found = make(technique, arm)
    loss = trainings[0].loss_of
    trainings[0].loss_of = lambda *batch: 1.001 * loss(*batch)
    assert found.error() > found.tolerance


def test_a_step_changes_thin_matrices_alone(technique: ModuleType, trainings: list[Any]) -> None:
    found = make(technique, "lora")
    weights = dict(trainings[0].model.named_parameters())
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    found.step()
    changed = {name for name, weight in weights.items() if not weight.equal(before[name])}
    assert changed == {name for name in before if ".down." in name or ".up." in name}
    assert len(changed) == 2 * 2 * 7


def test_a_matrix_that_no_step_changes_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_optimizer = technique.make_optimizer
    monkeypatch.setattr(
        technique, "make_optimizer", lambda name, thin: make_optimizer(name, thin[1:])
    )
    with pytest.raises(technique.Failed, match="leaves a thin matrix"):
        make(technique, "lora").error()


def test_work_is_a_third_less_than_training_but_for_attention(technique: ModuleType) -> None:
    size = technique.LLAMA_SIZES["llama_1b"]
    attention = 6 * size.layers * size.width * size.tokens
    expected = 2 * size.tokens * (4 * size.weights + attention)
    assert technique.flops_of_step("llama_1b") == pytest.approx(expected)
