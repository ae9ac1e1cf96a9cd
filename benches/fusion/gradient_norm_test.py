"""The Python arms of fusion/gradient_norm."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


@pytest.mark.parametrize("name", ["torch", "one_by_one"])
def test_the_norm_is_that_of_double_precision(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, {"model": "small"}, 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_tensors_that_are_left_out_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = technique.get_total_norm

    def half(gradients: Any, *, foreach: bool) -> Any:
        return whole(gradients[::2], foreach=foreach)

    monkeypatch.setattr(technique, "get_total_norm", half)
    arm = technique.make("torch", {"model": "small"}, 7, None)
    arm.step()
    assert arm.error() > arm.tolerance
