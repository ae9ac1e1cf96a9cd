"""GPUs that are there, expected, hidden or lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.engine.presence import gpus_on_bus, why_lost
from gpulift.records.model import Context, Host

THERE = Context(Host("Xeon"))
LOST = Context(Host("Xeon"), gpu_missing="no driver", gpu_remedy="install it")
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}


def test_gpus_are_counted_without_a_driver(tmp_path: Path) -> None:
    """Two of NVIDIA, their audio, another's GPU, and what does not say what it is."""
    for number, (vendor, kind) in enumerate(
        [
            ("0x10de", "0x030200"),
            ("0x10de", "0x030000"),
            ("0x10de", "0x040300"),
            ("0x1a03", "0x030000"),
            ("", "0x030000"),
        ]
    ):
        device = tmp_path / f"0000:17:00.{number}"
        device.mkdir()
        (device / "class").write_text(f"{kind}\n", encoding="utf-8")
        if vendor:
            (device / "vendor").write_text(f"{vendor}\n", encoding="utf-8")
    assert gpus_on_bus(tmp_path) == 2
    assert gpus_on_bus(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("usable", "expected", "on_bus", "environment", "why"),
    [
        (0, None, 0, {}, ""),
        (0, 0, 0, {}, ""),
        (0, None, 2, {}, "2 on the bus, and none can be used: no driver"),
        (0, None, 2, HIDDEN, ""),
        (0, 2, 2, HIDDEN, "0 of 2 expected GPUs can be used: no driver"),
        (1, None, 2, {}, ""),  # a container sees those of its host
        (7, 8, 8, {}, "7 of 8 expected GPUs can be used"),
        (8, 8, 0, {}, ""),
        (2, 1, 2, {}, ""),
    ],
)
def test_a_gpu_that_cannot_be_used_is_lost_where_there_should_be_one(
    usable: int, expected: int | None, on_bus: int, environment: dict[str, str], why: str
) -> None:
    context = LOST if usable == 0 else THERE
    reason, remedy = why_lost(context, usable, expected, on_bus, environment) or ("", "")
    assert reason == why
    if on_bus and not usable and why:
        alone = "; to judge the processor alone, set CUDA_VISIBLE_DEVICES=" if not expected else ""
        assert remedy == f"install it{alone}"
