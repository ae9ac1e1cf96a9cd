"""loss/chunked_cross_entropy: every form gives the gradients of whole logits, or is found."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

TOY = {"model": "gpt_toy"}


@pytest.mark.parametrize("name", ["chunked", "checkpointed"])
def test_no_chunk_is_larger_than_asked_for(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    rows = []

    def noted(whole: Callable[..., object], first: Sized, *others: object) -> object:
        rows.append(len(first))
        return whole(first, *others)

    for chunk in ("loss_of_chunk", "loss_and_gradient"):
        monkeypatch.setattr(technique, chunk, partial(noted, getattr(technique, chunk)))
    technique.make(name, TOY, 7, None).step()
    assert set(rows) == {64}
    assert len(rows) == (4 if name == "chunked" else 8)  # by checkpoint forward and backward


def test_a_gradient_of_another_scale_is_found_though_adamw_hides_it(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = technique.loss_and_gradient

    def doubled(*given: object) -> tuple[Any, Any]:
        loss, gradient = right(*given)
        return loss, 2 * gradient

    monkeypatch.setattr(technique, "loss_and_gradient", doubled)
    arm = technique.make("chunked", TOY, 7, None)
    arm.step()
    assert (arm.items, arm.tolerance) == (8 * 32, 1e-5)
    assert arm.error() > 0.9


def test_a_wrong_loss_fails(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = technique.loss_of_chunk
    monkeypatch.setattr(technique, "loss_of_chunk", lambda *given: 1.1 * right(*given))
    arm = technique.make("checkpointed", TOY, 7, None)
    arm.step()
    with pytest.raises(technique.Failed, match=r"the loss is 0\.1 from"):
        arm.error()


def test_gpt2_needs_a_gpu(technique: ModuleType) -> None:
    with pytest.raises(Exception, match="a training step of gpt2 takes seconds on a processor"):
        technique.make("chunked", {"model": "gpt2"}, 7, None)
