"""Weights that are off by a little."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe.rounded import Rounded  # noqa: E402
from gpulift_probe.saved import drawn_alike, random_numbers  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.world


def off(weights: Any, share: float = 0.0) -> Any:
    """The weights, and by which share of themselves they are off."""
    parameter = nn.Parameter(weights.clone(), requires_grad=weights.is_floating_point())
    Rounded([torch.optim.SGD([parameter])], share).flip()
    return (parameter.detach().double() - weights.double()) / weights.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_by_the_last_bit(dtype: Any) -> None:
    bit = torch.finfo(dtype).eps
    shares = off(torch.ones(100, dtype=dtype))
    assert set(shares.tolist()) == {bit, -bit}
    shares = off(torch.linspace(-1.9, -1.1, 100).to(dtype))
    assert 0 < shares.abs().min() <= shares.abs().max() < 2 * bit


def test_by_a_share() -> None:
    assert set(off(torch.ones(100), 2.0**-8).tolist()) == {2.0**-8, -(2.0**-8)}


def test_a_share_below_the_last_bit() -> None:
    bit = torch.finfo(torch.bfloat16).eps
    assert set(off(torch.ones(100, dtype=torch.bfloat16), bit / 4).tolist()) == {bit, -bit}


def test_always_by_the_same() -> None:
    weights = torch.linspace(1, 2, 100)
    assert torch.equal(off(weights), off(weights))


def test_no_random_number_is_drawn() -> None:
    numbers, python = random_numbers(), random.getstate()
    off(torch.ones(100))
    assert drawn_alike(numbers, random_numbers())
    assert python == random.getstate()


def test_what_has_no_last_bit_stays() -> None:
    zeros = nn.Parameter(torch.zeros(4))
    whole = nn.Parameter(torch.arange(4), requires_grad=False)
    Rounded([torch.optim.SGD([zeros, whole])], 0.1).flip()
    assert zeros.tolist() == [0.0] * 4
    assert whole.tolist() == [0, 1, 2, 3]
