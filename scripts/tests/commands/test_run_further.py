"""Whole steps with wide intervals have further launches."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.commands import run_further
from gpulift.engine import machine, measuring, runs
from gpulift.ground.errors import OK
from gpulift.records.parse import read_record
from tests import sample

TECHNIQUE = "precision/mixed"
CASE = {"model": "gpt2"}


def steps(launches: int, noise: float, *, whole_steps: bool = True) -> list[sample.Json]:
    arms = [sample.arm("tf32", 0.02, launch_noise=noise), sample.arm("bf16", 0.01)]
    return sample.launches(launches, TECHNIQUE, CASE, arms, whole_steps=whole_steps)


@pytest.mark.parametrize(
    ("launches", "noise", "whole_steps", "wide"),
    [
        (3, 0.05, True, True),
        (3, 1e-5, True, False),
        (3, 0.05, False, False),
        (5, 0.05, True, False),  # that was all
        (1, 0.05, True, False),  # an interval was not asked for
    ],
)
def test_wide_are_whole_steps_of_few_launches_that_differ(
    launches: int, noise: float, whole_steps: bool, wide: bool
) -> None:
    records = [read_record(one) for one in steps(launches, noise, whole_steps=whole_steps)]
    found = run_further.wide_cases(records)
    assert [case.case_id for case in found] == ["model:gpt2"] * wide


def test_two_more_launches_of_all_arms_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = steps(3, 0.05)
    for one in made:
        one["arms"].append(sample.skipped_arm("fp8", "no such units") | {"role": "technique"})
    sample.write(tmp_path, made)
    asked: list[list[str]] = []

    def measured(_: Path, flags: list[str]) -> int:
        asked.append(flags)
        return OK

    monkeypatch.setattr(machine, "find_bench", lambda: Path("bench"))
    monkeypatch.setattr(machine, "measure", measured)
    told: list[str] = []
    assert run_further.measure(tmp_path, measuring.Options(filter="mixed"), told.append) == OK
    (flags,) = asked
    assert flags[flags.index("--launches") + 1] == "5"
    rows = (tmp_path / runs.ROWS_FILE).read_text().splitlines()
    assert rows == [f"{TECHNIQUE}\tmodel:gpt2\t{arm}" for arm in ("tf32", "bf16")]
    assert told == [
        "intervals wider than 2 %: measured on, 5 launches in all: precision/mixed/model:gpt2"
    ]


def test_narrow_ones_are_left(tmp_path: Path) -> None:
    sample.write(tmp_path, steps(3, 1e-5))
    assert run_further.measure(tmp_path, measuring.Options(), lambda _: None) is None
