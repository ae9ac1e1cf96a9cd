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
