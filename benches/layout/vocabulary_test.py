"""layout/vocabulary: its arms differ in words alone, and its forms in who pads."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")


def arm_of(technique: ModuleType, name: str, form: str) -> Any:
    return technique.make(name, {"model": "gpt_toy", "form": form}, 7, None)


def test_the_padded_model_has_the_next_multiple_of_64_words() -> None:
    from gpulift_work.training import GPT_SIZES, TWINS

    for name in ("gpt2", "gpt_toy"):
        padded, unpadded = GPT_SIZES[name], GPT_SIZES[f"{name}_unpadded"]
        assert padded.vocabulary == -(-unpadded.vocabulary // 64) * 64 > unpadded.vocabulary
        assert (padded.layers, padded.width) == (unpadded.layers, unpadded.width)
        assert TWINS[name] == TWINS[f"{name}_unpadded"]


def test_both_have_the_same_text_and_no_word_of_it_pads(
    technique: ModuleType, trainings: list[Any]
) -> None:
    for name in ("unpadded", "padded"):
        arm_of(technique, name, "eager")
    unpadded, padded = trainings
    assert padded.input.equal(unpadded.input)
    assert padded.target.equal(unpadded.target)
    assert padded.target.max() < 61 < padded.model.output_weight.shape[0]


@pytest.mark.parametrize("name", ["unpadded", "padded"])
def test_a_wrong_gradient_is_found(technique: ModuleType, trainings: list[Any], name: str) -> None:
    arm = arm_of(technique, name, "eager")
    assert arm.error() <= arm.tolerance
    loss = trainings[0].loss_of
    trainings[0].loss_of = lambda *batch: 1.001 * loss(*batch)
    assert arm.error() > arm.tolerance


@pytest.mark.parametrize(("form", "pads"), [("compiled", True), ("compiled_as_is", False)])
def test_a_compiler_pads_where_it_may(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, form: str, pads: bool
) -> None:
    told: list[Any] = []

    def compile_nothing(work: Any, options: Any) -> Any:
        told.append(options)
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)
    arm = arm_of(technique, "padded", form)
    assert told == [{"shape_padding": pads}]
    assert (arm.items, arm.item) == (8 * 32, "token")
