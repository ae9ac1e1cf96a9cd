"""What cannot be so in records that a certificate holds; runs of a command: test_sealed.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpulift.commands.plausible import _wrong_arm
from gpulift.records.parse import read_record
from tests import sample

Json = dict[str, Any]
CARD = {"max_sm_clock_hz": 1.98e9, "max_memory_clock_hz": 3.2e9, "memory_bus_bits": 6144}


def record() -> Json:
    """A copy at 3 TB/s."""
    cost = {"bytes": 3e9, "roof": "device_memory"}
    context = sample.gpu_context(gpu=CARD)
    arms = [sample.arm("plain", 1e-3, cost=cost), sample.arm("fast", 1e-3)]
    return sample.record("transfer/x", {"n": 1}, arms, context=context)


def windows(made: Json) -> Json:
    found: Json = made["arms"][0]["windows"]
    return found


def below_the_host(made: Json) -> None:
    windows(made)["device_s"] = [one / 10 for one in windows(made)["host_s"]]


def above_the_roof(made: Json) -> None:
    made["arms"][0]["cost"]["bytes"] = 9e9


def above_the_clock(made: Json) -> None:
    windows(made)["sm_clock_hz"] = [2.5e9 for _ in windows(made)["host_s"]]


def at_once(made: Json) -> None:
    windows(made)["start_s"] = [0.0 for _ in windows(made)["host_s"]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: None, ""),
        (below_the_host, "its device tells"),
        (above_the_roof, "of device_memory, and the card can 4.92e+12"),
        (above_the_clock, "its clock is above the card's 1980 MHz"),
        (at_once, "a window begins before the one ahead of it has ended"),
    ],
)
def test_windows_that_cannot_be_are_told(change: Callable[[Json], None], said: str) -> None:
    made = record()
    change(made)
    read = read_record(made)
    wrong = _wrong_arm(read, read.arms[0])
    assert said in wrong
    assert bool(wrong) == bool(said)
