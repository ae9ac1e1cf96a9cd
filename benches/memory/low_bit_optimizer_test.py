"""memory/low_bit_optimizer: what 8 bits keep of a moment, and which wrong updates are found."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

TOLERANCE = 0.1
TOY = {"model": "gpt_toy"}


def make(technique: ModuleType, name: str) -> Any:
    """An arm of the toy after its first step."""
    arm = technique.make(name, TOY, 7, None)
    arm.step()
    return arm


def test_moments_take_a_quarter_and_losses_after_100_steps_agree(technique: ModuleType) -> None:
    arms = {name: make(technique, name) for name in ("fp32", "blockwise_8bit")}
    errors = {name: arm.error() for name, arm in arms.items()}
    assert errors["fp32"] < arms["fp32"].tolerance == 1e-3
    assert 1e-3 < errors["blockwise_8bit"] < TOLERANCE
    plain, low = (arm.metrics() for arm in arms.values())
    assert 0.25 < low["optimizer_state_bytes"] / plain["optimizer_state_bytes"] < 0.35
    assert low["loss_after_100_steps"] == pytest.approx(plain["loss_after_100_steps"], rel=0.1)


@pytest.mark.parametrize("exact", [torch.zeros(2, 256), torch.logspace(-12, 3, 512).view(2, 256)])
def test_a_stored_block_keeps_its_largest_and_sixteenths_of_the_others(
    technique: ModuleType, exact: Any
) -> None:
    kept = torch.zeros(2, 256, dtype=torch.float8_e4m3fn)
    scale = torch.zeros(2, 1)
    technique.store(exact, kept, scale)
    found = kept.float() * scale
    assert torch.isfinite(found).all()
    large = exact > exact.amax(dim=1, keepdim=True) / 2**14
    assert torch.allclose(found[large], exact[large], rtol=1 / 16)


def test_a_moment_that_is_not_kept_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "store", lambda *given: None)
    assert make(technique, "blockwise_8bit").error() > TOLERANCE


def test_weights_that_share_no_whole_block_stay_in_fp32(technique: ModuleType) -> None:
    assert technique.is_large(torch.nn.Parameter(torch.zeros(64, 64)))
    assert not technique.is_large(torch.nn.Parameter(torch.zeros(64, 32)))
    assert not technique.is_large(torch.nn.Parameter(torch.zeros(4097)))


def test_without_torchao_its_arm_names_the_package(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ModuleNotFoundError, match="torchao"):
        technique.make("torchao_8bit", TOY, 7, None)
