"""An emulated step takes its time and no processor."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

pytest.importorskip("torch")


@pytest.fixture(name="steps")
def steps_module() -> Any:
    """The module that arms import."""
    return importlib.import_module("gpulift_work.steps")


def cpu_share(step: Any) -> float:
    """Of a step's time, what its thread worked."""
    step()
    start_s, cpu_s = time.monotonic(), time.thread_time()
    step()
    return (time.thread_time() - cpu_s) / (time.monotonic() - start_s)


def test_a_sleeping_step_takes_its_time_and_no_processor(steps: Any) -> None:
    step = steps.SleepingStep(0.05)
    assert steps.alone_s(step) >= 0.05
    assert cpu_share(step) < 0.5
    assert str(step) == "emulated: sleeps 50 ms"
