"""What a case is expected to take, by the records that are nearest to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.costs import BETWEEN_S, Cost, Costs
from gpulift.analysis.today import UNKNOWN, Declared, Today
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from tests import sample

H200, H100 = "nvidia-h200", "nvidia-h100"


def taken(
    case: int, total_s: float, gpu: str = "NVIDIA H200", day: int = 1, **how: Any
) -> list[Record]:
    """Two launches of a case with two arms, in a run of its own."""
    options = {"quick": how.pop("quick", False)}
    context = sample.gpu_context(gpu={"name": gpu}, options=options)
    arms = [sample.arm("plain", 1e-3), sample.arm("new", 1e-3), *how.pop("arms", [])]
    made = sample.launches(
        2, "a/b", {"n": case}, arms, context=context, time_s={"total": total_s}, **how
    )
    told = [{**one, "started_at": f"2026-11-{day:02d}T04:00:00Z"} for one in made]
    return [replace(read_record(one), file=Path(f"{day}-{case}/a.b.jsonl")) for one in told]


@pytest.mark.parametrize(
    ("records", "cost"),
    [
        ([], None),
        ([*taken(1, 8.0), *taken(1, 6.0, day=2), *taken(2, 100.0, day=3)], Cost(6 + BETWEEN_S)),
        ([*taken(2, 9.0), *taken(1, 4.0, "NVIDIA H100", 2)], Cost(9 + BETWEEN_S, "other cases")),
        ([*taken(1, 5.0, "NVIDIA H100")], Cost(5 + BETWEEN_S, H100)),
        ([*taken(2, 5.0, "NVIDIA H100")], Cost(5 + BETWEEN_S, f"other cases, {H100}")),
        ([*taken(1, 9.0), *taken(1, 1.0, day=2, quick=True)], Cost(9 + BETWEEN_S)),
        ([*taken(1, 1.0, quick=True)], Cost(1 + BETWEEN_S, "a quick run")),
    ],
)
def test_the_nearest_records_tell(records: list[Record], cost: Cost | None) -> None:
    assert Costs(records, UNKNOWN).launch("a/b", "n:1", 2, H200) == cost


def test_a_launch_takes_what_its_arms_take() -> None:
    skipped = sample.skipped_arm("fp8", "no such units") | {"role": "technique"}
    costs = Costs(taken(1, 6.0, arms=[skipped]), UNKNOWN)
    assert costs.launch("a/b", "n:1", 3, H200) == Cost(9 + BETWEEN_S)


def test_a_host_says_less_of_a_gpu_than_another_gpu_does() -> None:
    host = sample.launches(
        1, "a/b", {"n": 1}, [sample.arm("plain", 1.0)], context=sample.CPU_CONTEXT
    )
    costs = Costs([*map(read_record, host), *taken(2, 5.0, "NVIDIA H100")], UNKNOWN)
    found = costs.launch("a/b", "n:1", 2, H200)
    assert found
    assert found.of == f"other cases, {H100}"


def test_an_older_case_stands_for_todays() -> None:
    today = Today({"a/b": Declared(("plain", "new"), {"n": (1,), "form": ("eager",)})})
    costs = Costs(taken(1, 6.0), today)
    assert costs.launch("a/b", "n:1/form:eager", 2, H200) == Cost(6 + BETWEEN_S)


def test_a_skipped_case_tells_nothing() -> None:
    skipped = read_record(sample.unmeasured("a/b", {"n": 1}, "skipped", "no memory"))
    assert Costs([skipped], UNKNOWN).launch("a/b", "n:1", 2, H200) is None
