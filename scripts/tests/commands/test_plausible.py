"""What cannot be so in records that a certificate holds; runs of a command: test_sealed.py."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("windows", "cost", "said"),
    [
        ({}, {}, ""),
        ({"device_s": 1e-3}, {}, "its device tells"),  # a tenth of what the host does
        ({}, {"bytes": 9e9}, "of device_memory, and the card can 4.92e+12"),
        ({"sm_clock_hz": 2.5e9}, {}, "its clock is above the card's 1980 MHz"),
        ({"start_s": 0.0}, {}, "a window begins before the one ahead of it has ended"),
    ],
)
def test_windows_that_cannot_be_are_told(
    windows: dict[str, float], cost: dict[str, float], said: str
) -> None:
    made = record()
    arm = made["arms"][0]
    arm["cost"] |= cost
    count = len(arm["windows"]["host_s"])
    arm["windows"] |= {name: [value] * count for name, value in windows.items()}
    read = read_record(made)
    wrong = _wrong_arm(read, read.arms[0])
    assert said in wrong
    assert bool(wrong) == bool(said)
