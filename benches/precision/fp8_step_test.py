"""precision/fp8_step: products and gradients in FP8 against exact ones, and what is found."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(name="scaled_products", autouse=True)
def products_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any shape, with what the library asks for."""

    def scaled(left: Any, right: Any, left_scale: Any, right_scale: Any, **options: Any) -> Any:
        assert left.is_contiguous()
        assert right.T.is_contiguous()
        assert left.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
        assert right.dtype is torch.float8_e4m3fn
        assert left_scale.numel() == right_scale.numel() == 1
        found = (left.float() * left_scale) @ (right.float() * right_scale)
        return found.to(options["out_dtype"])

    monkeypatch.setattr(torch, "_scaled_mm", scaled)


@pytest.fixture(name="recipes", autouse=True)
def library_that_notes_recipes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """The models that were to be converted, and the recipes."""
    noted: list[tuple[Any, str]] = []
    library = ModuleType("torchao.float8")
    library.Float8LinearConfig = SimpleNamespace(from_recipe_name=str)  # type: ignore[attr-defined]
    library.convert_to_float8_training = (  # type: ignore[attr-defined]
        lambda model, config: noted.append((model, config))
    )
    monkeypatch.setitem(sys.modules, "torchao", ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.float8", library)
    return noted


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_gives_what_the_exact_one_gives(technique: ModuleType, bias: bool) -> None:
    torch.manual_seed(7)
    layer = nn.Linear(64, 48, bias=bias)
    given = torch.randn(2, 16, 64, requires_grad=True)
    gradient = torch.randn(2, 16, 48)
    wanted = torch.autograd.grad(layer(given), [given, *layer.parameters()], grad_outputs=gradient)
    found = technique.Fp8Linear(layer)(given)
    assert float((found - layer(given)).detach().square().mean()) < 0.05**2
    grads = torch.autograd.grad(
        found, [given, *layer.parameters()], grad_outputs=gradient.bfloat16()
    )
    for one, exact in zip(grads, wanted, strict=True):
        assert float((one - exact).norm() / exact.norm()) < 0.08


def test_a_cast_uses_the_whole_range_and_comes_back(technique: ModuleType) -> None:
    values = torch.tensor([[1.0, -2.0], [1e3, 5e2], [0.0, 0.0]])
    found, scale = technique.cast(values, torch.float8_e4m3fn)
    assert found.float().abs().max() == 448
    assert torch.allclose(found.float() * scale, values, rtol=1 / 16, atol=1.0)


def gradients_apart(technique: ModuleType, arm: str, name: str = "llama_toy") -> float:
    training = technique.Resting(name, CPU, 7).training
    training.bf16 = True
    technique.replace_linears(training.model, arm)
    found: float = technique.gradient_error(training, 8)
    return found


@pytest.mark.parametrize("name", ["llama_toy", "gpt_toy"])
def test_a_model_in_fp8_has_gradients_within_the_tolerance(
    technique: ModuleType, name: str
) -> None:
    in_bf16 = gradients_apart(technique, "bf16", name)
    assert in_bf16 < 0.03
    assert 2 * in_bf16 < gradients_apart(technique, "own", name) < technique.TOLERANCES["own"]


def test_a_gradient_of_another_product_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = technique.product

    def without_gradients(left: Any, other: Any, kind: Any) -> Any:
        found = right(left, other, kind)
        return found if kind is technique.FORWARD else torch.zeros_like(found)

    monkeypatch.setattr(technique, "product", without_gradients)
    assert gradients_apart(technique, "own") > technique.TECHNIQUE["check"]["tolerance"]


@pytest.mark.parametrize("arm", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_the_library_is_given_the_recipe_of_the_arm(
    technique: ModuleType, recipes: list[tuple[Any, str]], arm: str
) -> None:
    model = nn.Sequential(nn.Linear(16, 16))
    technique.replace_linears(model, arm)
    assert recipes == [(model, arm)]


def test_an_arm_tells_its_error_and_the_loss_it_comes_to(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "require_fp8", lambda device: None)
    arm = technique.make("bf16", {"model": "llama_toy", "form": "eager"}, 7, None)
    arm.step()
    arm.rest()
    assert arm.error() < 1e-5  # the toy is in FP32
    found = arm.metrics()
    assert found["loss_deviation_of_20_steps"] == 0  # of the weights that the reference had
    assert found["loss_after_100_steps"] < 4
    assert (arm.items, arm.roof) == (8 * 32, "gemm/bf16")


def test_a_card_without_fp8_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type="cuda"))
    with pytest.raises(Exception, match="the GPU has no 8-bit floats"):
        technique.make("bf16", {"model": "gpt2", "form": "eager"}, 7, 0)
