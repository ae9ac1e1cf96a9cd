"""The Python arms of fusion/gradient_norm."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.parametrize("name", ["torch", "one_by_one"])
def test_the_norm_is_that_of_double_precision(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, {"model": "small"}, 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(lambda all_of_them: all_of_them[::2], id="half"),
        pytest.param(lambda all_of_them: all_of_them[:-1], id="all_but_a_small_one"),
        pytest.param(lambda all_of_them: [one[: 128 * 128] for one in all_of_them], id="ends"),
    ],
)
def test_what_is_left_out_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, kept: Callable[[Any], Any]
) -> None:
    whole = technique.get_total_norm

    def less(gradients: Any, *, foreach: bool) -> Any:
        return whole(kept(gradients), foreach=foreach)

    monkeypatch.setattr(technique, "get_total_norm", less)
    arm = technique.make("torch", {"model": "small"}, 7, None)
    arm.step()
    assert arm.error() > arm.tolerance


def test_a_check_leaves_the_gradients_as_they_were(technique: ModuleType) -> None:
    arm = technique.make("torch", {"model": "small"}, 7, None)
    arm.step()
    first = arm.error()
    arm.step()
    assert arm.error() == first
