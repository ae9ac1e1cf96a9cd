"""gemm/grouped's Python arm: each expert's tokens meet its own weights, as many as in C++."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

CPU = torch.device("cpu")
TOLERANCE = 0.003  # matmul_tolerance() of BF16


def test_tokens_are_dealt_as_for_the_other_arms(technique: ModuleType) -> None:
    """The numbers of workloads/expert_matmul_test.cpp."""
    assert technique.deal_tokens(8, 1024, evenly=True) == [128] * 8
    assert technique.deal_tokens(8, 1024, evenly=False) == [512, *[73] * 7]
    many = technique.deal_tokens(64, 16384, evenly=False)
    assert (many.count(1024), many.count(146)) == (8, 56)


@pytest.mark.parametrize("evenly", [True, False])
def test_results_are_those_of_each_expert(technique: ModuleType, *, evenly: bool) -> None:
    dealt = technique.deal_tokens(8, 160, evenly=evenly)
    products = technique.Products(dealt, 128, 64, CPU)
    products.step()
    assert products.error() < TOLERANCE


def test_no_step_is_no_result(technique: ModuleType) -> None:
    assert not technique.Products([2] * 8, 128, 64, CPU).error() < 1


def test_weights_of_another_expert_are_found(technique: ModuleType) -> None:
    products = technique.Products([2] * 8, 128, 64, CPU)
    products.weights = products.weights.roll(1, 0)
    products.step()
    assert products.error() > 1
