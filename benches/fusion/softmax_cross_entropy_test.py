"""The Python arms of fusion/softmax_cross_entropy."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

POINT = {"tokens": 1030, "classes": 257}  # of two pieces
HOST = torch.device("cpu")


@pytest.mark.parametrize("name", ["torch", "torch_bf16"])
def test_a_step_is_that_of_double_precision(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, POINT, 7, None)
    arm.step()
    error = arm.error()
    assert 0 < error <= arm.tolerance
    arm.step()
    assert arm.error() == error


def test_liger_may_write_over_the_logits(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_place(logits: Any, target: Any) -> Any:
        def write_over(gradient: Any) -> Any:
            return logits.detach().copy_(gradient)

        logits.register_hook(write_over)
        return torch.nn.functional.cross_entropy(logits.float(), target)

    functional = SimpleNamespace(liger_cross_entropy=in_place)
    for name, module in (
        ("", None),
        (".transformers", None),
        (".transformers.functional", functional),
    ):
        monkeypatch.setitem(sys.modules, f"liger_kernel{name}", module or SimpleNamespace())
    monkeypatch.setattr(technique, "require_kernels_of", lambda arm, device: None)
    arm = technique.make("liger", POINT, 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_a_wrong_loss_and_a_wrong_gradient_are_found(technique: ModuleType) -> None:
    tokens = technique.Tokens(33, 19, 7, HOST)
    loss, gradient = tokens.step(technique.widened)
    one_off = gradient.clone()
    one_off[32, 18] += 1e-3

    def error(*results: Any) -> Any:
        tokens.results = results
        return tokens.error()

    assert error(loss, gradient) < 1 / 128
    assert error(loss * 1.1, gradient) > 1 / 16
    assert error(loss, gradient * 1.1) > 1 / 16
    assert error(loss, one_off) > 1 / 16
    nothing = error(loss, torch.full_like(gradient, torch.nan))
    assert nothing != nothing
