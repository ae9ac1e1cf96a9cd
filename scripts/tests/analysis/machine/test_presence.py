"""GPUs that are there, expected, hidden or lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.analysis.machine.presence import gpus_on_bus, judge_presence
from gpulift.records.model import Context, Host

THERE = Context(Host("Xeon"))
LOST = Context(Host("Xeon"), gpu_missing="no driver", gpu_remedy="install it")


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    """Two GPUs of NVIDIA, their audio, and another's GPU."""
    devices = {
        "0000:17:00.0": ("0x10de", "0x030200"),
        "0000:65:00.0": ("0x10de", "0x030000"),
        "0000:65:00.1": ("0x10de", "0x040300"),
        "0000:00:02.0": ("0x1a03", "0x030000"),
        "0000:00:03.0": ("", ""),
    }
    for name, texts in devices.items():
        (tmp_path / name).mkdir()
        for file, text in zip(("vendor", "class"), texts, strict=True):
            if text:
                (tmp_path / name / file).write_text(f"{text}\n", encoding="utf-8")
    return tmp_path


def test_gpus_are_counted_without_a_driver(bus: Path, tmp_path: Path) -> None:
    assert gpus_on_bus(bus) == 2
    assert gpus_on_bus(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("usable", "expected", "on_bus", "environment", "verdicts"),
    [
        (0, None, 0, {}, []),
        (0, 0, 0, {}, []),
        (0, None, 2, {}, ["fail"]),
        (0, None, 2, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (0, 2, 2, {"CUDA_VISIBLE_DEVICES": ""}, ["fail"]),
        (1, None, 2, {}, []),  # a container sees those of its host
        (7, 8, 8, {}, ["fail"]),
        (8, 8, 0, {}, ["pass"]),
        (2, 1, 2, {}, ["pass"]),
        (0, 8, 0, {}, ["fail"]),
    ],
)
def test_a_gpu_that_cannot_be_used_fails_where_there_should_be_one(
    usable: int, expected: int | None, on_bus: int, environment: dict[str, str], verdicts: list[str]
) -> None:
    context = LOST if usable == 0 else THERE
    found = judge_presence(context, usable, expected, on_bus, environment)
    assert [one.verdict for one in found] == verdicts
    assert all(one.id == "health/gpus" for one in found)


def test_the_reason_and_what_to_do() -> None:
    (lost,) = judge_presence(LOST, 0, None, 2, {})
    assert lost.reason == "2 on the bus, and none can be used: no driver"
    assert lost.remedy.startswith("install it; to judge the processor alone, set CUDA_VISIBLE_DEV")
    (few,) = judge_presence(THERE, 7, 8, 8, {})
    assert few.reason == "7 of 8 expected GPUs can be used"
