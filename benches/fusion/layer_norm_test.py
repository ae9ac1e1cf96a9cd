"""The Python arms of fusion/layer_norm; gpulift_work's own tests have their passes."""

from __future__ import annotations

from types import ModuleType

import pytest


def point(which: str, norm: str) -> dict[str, int | str]:
    # One, as a processor sums up the gradients of a layer norm's weight and bias in BF16.
    return {"pass": which, "norm": norm, "shape": "1x768"}


@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_an_arm_takes_the_pass_of_the_case(technique: ModuleType, which: str, norm: str) -> None:
    arm = technique.make("torch", point(which, norm), 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance
