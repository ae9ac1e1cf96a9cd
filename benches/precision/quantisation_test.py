"""precision/quantisation: what is kept of a weight, and that products with others are found."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Failed  # noqa: E402

ARMS = ["plain", "int8_weights", "int8_products"]
TASKS = ["inference", "step"]


def make(technique: ModuleType, name: str, task: str) -> Any:
    arm = technique.make(name, {"model": "gpt_toy", "task": task}, 7, None)
    arm.step()
    return arm


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_trains_with_the_quantised_weights(technique: ModuleType, name: str) -> None:
    arm = make(technique, name, "step")
    assert arm.error() < arm.tolerance


def test_only_rounded_inputs_have_a_tolerance_of_their_own(technique: ModuleType) -> None:
    assert technique.tolerance_of("int8_weights", bf16=True) is None
    assert technique.tolerance_of("int8_weights", bf16=False) == 1e-5
    assert technique.tolerance_of("int8_products", bf16=False) == 0.06


def test_a_row_keeps_its_largest_and_a_step_of_it(technique: ModuleType) -> None:
    values = torch.tensor([[1.0, -0.5, 0.003], [0.0, 0.0, 0.0]])
    integers, scale = technique.quantise(values)
    assert integers.tolist() == [[127, -64, 0], [0, 0, 0]]
    assert torch.allclose(integers * scale, values, atol=0.5 / 127)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ARMS[1:])
def test_a_product_with_the_scale_of_another_row_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, task: str
) -> None:
    arm = make(technique, name, task)
    kind = technique.Int8Linear if name == "int8_weights" else technique.Int8Product
    right = kind.product

    def with_another(self: Any, rows: Any, kept: Any) -> Any:
        integers, scale = kept
        return right(self, rows, (integers, scale.flip(0) * 1.2))

    monkeypatch.setattr(kind, "product", with_another)
    with pytest.raises(
        Failed, match=r"products of 256 rows and weights of 192 x 64 are 0\.\d+ off"
    ):
        arm.error()


def test_inference_keeps_the_integers_alone(technique: ModuleType) -> None:
    training = technique.Training("gpt_toy", torch.device("cpu"), 7)
    technique.replace_linears(training.model, technique.Int8Linear)
    technique.work_of("inference", training)
    for block in training.model.h:
        assert block.c_fc.weight is None
        assert block.c_fc.kept[0].dtype is torch.int8
