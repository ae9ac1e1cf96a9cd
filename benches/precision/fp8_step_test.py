"""precision/fp8_step: products and gradients in FP8 against exact ones, and what is found."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

CPU = torch.device("cpu")
TOLERANCE = 0.25


@pytest.fixture(name="scaled_products", autouse=True)
def products_by_rows_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's scaled product takes one scale for each tensor alone."""

    def scaled(left: Any, right: Any, left_scale: Any, right_scale: Any, **options: Any) -> Any:
        assert left.is_contiguous()
        assert right.T.is_contiguous()  # as the library asks
        assert left.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
        assert right.dtype is torch.float8_e4m3fn
        if left_scale.numel() > 1:
            assert left_scale.shape == (len(left), 1)
            assert right_scale.shape == (1, right.shape[1])
        found = (left.float() * left_scale) @ (right.float() * right_scale)
        return found.to(options["out_dtype"])

    monkeypatch.setattr(torch, "_scaled_mm", scaled)


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_layer_gives_what_the_exact_one_gives(technique: ModuleType, by_rows: bool) -> None:
    torch.manual_seed(7)
    layer = nn.Linear(64, 48)
    given = torch.randn(2, 16, 64, requires_grad=True)
    gradient = torch.randn(2, 16, 48)
    wanted = torch.autograd.grad(layer(given), [given, *layer.parameters()], grad_outputs=gradient)
    found = technique.Fp8Linear(layer, by_rows=by_rows)(given)
    assert float((found - layer(given)).detach().square().mean()) < 0.05**2
    grads = torch.autograd.grad(
        found, [given, *layer.parameters()], grad_outputs=gradient.bfloat16()
    )
    for one, exact in zip(grads, wanted, strict=True):
        assert float((one - exact).norm() / exact.norm()) < 0.08


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_cast_uses_the_whole_range_and_comes_back(technique: ModuleType, by_rows: bool) -> None:
    values = torch.tensor([[1.0, -2.0], [1e3, 5e2], [0.0, 0.0]])
    found, scale = technique.cast(values, torch.float8_e4m3fn, by_rows=by_rows)
    assert found.float().abs().max() == 448
    assert scale.shape == ((3, 1) if by_rows else (1, 1))
    assert torch.allclose(found.float() * scale, values, rtol=1 / 16, atol=0.0 if by_rows else 1.0)


def gradients_apart(technique: ModuleType, arm: str) -> float:
    training = technique.Training("gpt_toy", CPU, 7)
    training.bf16 = True
    technique.replace_linears(training, arm)
    found: float = technique.gradient_error(training, 8)
    return found


def test_a_model_in_fp8_has_gradients_within_the_tolerance(technique: ModuleType) -> None:
    in_bf16 = gradients_apart(technique, "bf16")
    assert in_bf16 < 0.03
    for arm in ("fp8_tensorwise", "fp8_rowwise"):
        assert 2 * in_bf16 < gradients_apart(technique, arm) < TOLERANCE


def test_a_gradient_of_another_product_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = technique.product

    def without_gradients(left: Any, *others: Any, **options: Any) -> Any:
        found = right(left, *others, **options)
        return found if others[1] is technique.FORWARD else torch.zeros_like(found)

    monkeypatch.setattr(technique, "product", without_gradients)
    assert gradients_apart(technique, "fp8_rowwise") > TOLERANCE


def test_a_card_without_fp8_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type="cuda"))
    with pytest.raises(Exception, match="the GPU has no 8-bit floats"):
        technique.make("bf16", {"model": "gpt2", "form": "eager"}, 7, 0)
