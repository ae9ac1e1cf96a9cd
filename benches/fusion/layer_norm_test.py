"""The Python arms of fusion/layer_norm; gpulift_work's own tests have their passes."""

from __future__ import annotations

from types import ModuleType

import pytest


def point(which: str, norm: str) -> dict[str, int | str]:
    return {"pass": which, "norm": norm, "rows": 9}


# On a processor torch sums up the gradients of a layer norm's weight and bias in BF16.
@pytest.mark.parametrize(
    ("which", "norm"),
    [("forward", "layer_norm"), ("forward", "rms_norm"), ("backward", "rms_norm")],
)
def test_an_arm_takes_the_pass_of_the_case(technique: ModuleType, which: str, norm: str) -> None:
    arm = technique.make("torch", point(which, norm), 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_an_arm_that_did_not_step_has_no_results(technique: ModuleType) -> None:
    arm = technique.make("torch", point("forward", "rms_norm"), 7, None)
    with pytest.raises(ValueError, match="zip"):
        arm.error()
