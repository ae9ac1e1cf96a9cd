"""The Python arm of precision/alignment: the product of all rows, which take turns on a GPU."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

TOLERANCE = 0.006  # of bf16: workloads/matmul_type.cpp


def test_the_product_is_that_of_the_originals_and_a_missing_one_is_found(
    technique: ModuleType,
) -> None:
    arm = technique.make("torch_mm", {"shape": "33x128x63"}, 7, None)
    assert not arm.error() <= TOLERANCE
    arm.step()
    assert 0 < arm.error() <= TOLERANCE
