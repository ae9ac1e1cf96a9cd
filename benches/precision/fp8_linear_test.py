"""precision/fp8_linear: products in FP8 against exact ones, and what of them is found wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

SIZES = (128, 256, 512)  # tokens, inputs, outputs


@pytest.fixture(autouse=True)
def eager_products_on_the_host(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """By any scales, where torch has them by tensor alone; autocast as torchao looks for it."""

    def scaled(left: Any, right: Any, **said: Any) -> Any:
        assert {left.dtype, right.dtype} <= {torch.float8_e4m3fn, torch.float8_e5m2}
        found = (left.float() * said["scale_a"]) @ (right.float() * said["scale_b"])
        return found.to(said["out_dtype"])

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    usual = torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    with torch.compiler.set_stance("force_eager"):
        yield
    torch.set_autocast_dtype("cuda", usual)


def layer_after_a_step(technique: ModuleType, arm: str) -> Any:
    layer = technique.Layer(arm, *SIZES, torch.device("cpu"))
    layer.step()
    return layer


@pytest.mark.parametrize("arm", ["bf16", "fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp"])
def test_results_are_as_far_from_exact_as_their_formats_make_them(
    technique: ModuleType, arm: str
) -> None:
    layer = layer_after_a_step(technique, arm)
    layer.step()  # which adds nothing to the gradients of the first
    assert layer.distances() == pytest.approx(technique.ROUNDED[arm], rel=0.2)


@pytest.mark.parametrize("spoilt", ["output", "input.grad", "weight.grad"])
def test_a_wrong_result_is_found(technique: ModuleType, spoilt: str) -> None:
    layer = layer_after_a_step(technique, "fp8_tensorwise")
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert technique.over_rounding(layer.distances(), "fp8_tensorwise") < tolerance
    result = layer.output if spoilt == "output" else getattr(layer, spoilt.split(".")[0]).grad
    result *= 0.9
    assert technique.over_rounding(layer.distances(), "fp8_tensorwise") > tolerance


@pytest.mark.parametrize(
    ("arm", "coarser"),
    [
        ("fp8_rowwise", "fp8_tensorwise"),
        ("fp8_rowwise_with_gw_hp", "fp8_rowwise"),
        ("bf16", "fp8_rowwise_with_gw_hp"),
    ],
)
def test_products_in_a_coarser_format_are_found(
    technique: ModuleType, arm: str, coarser: str
) -> None:
    distances = layer_after_a_step(technique, coarser).distances()
    assert technique.over_rounding(distances, arm) > technique.TECHNIQUE["check"]["tolerance"]


def test_a_result_that_is_no_number_is_no_number_in_the_check(technique: ModuleType) -> None:
    assert math.isnan(technique.over_rounding([0.01, math.nan, 0.01], "bf16"))


def test_an_arm_tells_its_work_and_how_far_each_result_is(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "require_fp8", lambda device: None)
    arm = technique.make("fp8_tensorwise", {"layer": "64x128", "tokens": 32}, 7, None)
    arm.step()
    assert arm.error() < technique.TECHNIQUE["check"]["tolerance"]
    assert 0 < arm.metrics()["output_distance"] < arm.metrics()["weight_gradient_distance"]
    assert (arm.flops, arm.items, arm.roof) == (3 * 2 * 32 * 64 * 128, 32, "gemm/fp8")


@pytest.mark.parametrize(
    ("device", "reason"),
    [("cpu", "products of 8-bit floats need a GPU"), ("cuda", "the GPU has no 8-bit floats")],
)
def test_a_machine_without_fp8_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, device: str, reason: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type=device))
    with pytest.raises(Exception, match=reason):
        technique.make("bf16", {"layer": "768x3072", "tokens": 1024}, 7, None)


@pytest.mark.usefixtures("idle_graphs")
def test_a_graph_that_does_nothing_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "require_fp8", lambda device: None)
    arm = technique.make("bf16", {"layer": "64x128", "tokens": 32}, 7, None)
    arm.step()
    assert not arm.error() < technique.TECHNIQUE["check"]["tolerance"]
