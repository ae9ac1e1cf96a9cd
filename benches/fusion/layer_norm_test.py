"""The Python arms of fusion/layer_norm; gpulift_work's own tests have their passes."""

from __future__ import annotations

from types import ModuleType

import pytest


def point(which: str, norm: str) -> dict[str, int | str]:
    # One, as a processor sums up the gradients of a layer norm's weight and bias in BF16.
    return {"pass": which, "norm": norm, "rows": 1}


@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_an_arm_takes_the_pass_of_the_case(technique: ModuleType, which: str, norm: str) -> None:
    arm = technique.make("torch", point(which, norm), 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_an_arm_that_did_not_step_has_no_results(technique: ModuleType) -> None:
    arm = technique.make("torch", point("forward", "rms_norm"), 7, None)
    with pytest.raises(ValueError, match="zip"):
        arm.error()


def test_the_gradient_that_an_arm_may_write_over_is_copied_anew_ahead_of_each_window(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[object] = []
    monkeypatch.setattr(technique.NormRows, "renew", lambda rows: renewed.append(rows))
    arm = technique.make("torch", point("backward", "rms_norm"), 7, None)
    arm.step()
    assert not renewed
    arm.wake()
    assert len(renewed) == 1
