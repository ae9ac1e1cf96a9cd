"""Emulated steps: one sleeps, the other keeps its thread busy and lets others have the lock."""

from __future__ import annotations

import importlib
import threading
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
    step = steps.emulated_step("sleeping", 0.05)
    assert steps.alone_s(step) >= 0.05
    assert cpu_share(step) < 0.5
    assert str(step) == "emulated: sleeps 50 ms"


def test_a_launching_step_works_for_all_of_its_time(steps: Any) -> None:
    step = steps.emulated_step("launching", 0.05)
    start_s = time.thread_time()
    step()
    assert time.thread_time() - start_s > 0.005  # of 50,000 operations, on any machine
    assert str(step) == "emulated: calls 50000 small operations"


def test_a_launching_step_is_the_same_work_however_long_it_takes(steps: Any) -> None:
    assert steps.emulated_step("launching", 0.002).operations == 2000
    assert steps.emulated_step("launching", 1e-9).operations == 1


def test_a_launching_step_lets_other_threads_have_the_lock(steps: Any) -> None:
    counted = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    steps.LaunchingStep(20_000)()
    stop.set()
    thread.join()
    assert counted[0] > before


def test_a_kind_that_is_not_known_is_named_with_those_that_are(steps: Any) -> None:
    with pytest.raises(ValueError, match="'dreaming'; there are sleeping, launching"):
        steps.emulated_step("dreaming", 1)
