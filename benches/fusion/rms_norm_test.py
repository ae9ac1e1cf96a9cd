"""The Python arms of fusion/rms_norm; gpulift_work's own tests have their passes."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("name", ["torch", "written_out"])
def test_an_arm_takes_the_pass_of_the_case(technique: ModuleType, name: str, which: str) -> None:
    arm = technique.make(name, {"pass": which, "rows": 3, "width": 256}, 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_the_gradient_that_an_arm_may_write_over_is_copied_anew_ahead_of_each_window(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[object] = []
    monkeypatch.setattr(technique.NormRows, "renew", lambda rows: renewed.append(rows))
    arm = technique.make("torch", {"pass": "backward", "rows": 3, "width": 256}, 7, None)
    arm.step()
    assert not renewed
    arm.wake()
    assert len(renewed) == 1
