"""From windows to the verdict on a check, as lines and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.explain import as_data
from gpulift.analysis.machine.results import FAIL, CheckResult
from gpulift.analysis.machine.rows import row
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.analysis.reference import Peak, Reference
from gpulift.analysis.summary import summarise
from gpulift.ground.steps import SECTIONS
from gpulift.records.read import read_run
from gpulift.verdicts import table
from gpulift.verdicts.comparison import Launch
from gpulift.verdicts.explain import launch_line, run_launch_data
from tests import sample
from tests.analysis.machine.test_qualification import (
    MEMORY,
    STEP,
    context,
    entry,
    memory,
    reference,
    result,
    steps,
)
from tests.analysis.machine.test_siblings import card
from tests.sample import Json

NOISY = memory(4.5e12, noise=0.05)


def judged(folder: Path, records: list[Json], known: Reference | None, id: str) -> CheckResult:
    """The check of a run that lies in files, as one that was measured does."""
    return result(summarise(read_run(sample.write(folder, records))), known, id)


def explanation(one: CheckResult) -> str:
    return "\n".join(table.explained([row(one)]))


def held(one: CheckResult) -> list[Launch]:
    assert one.check is not None
    arms = [(record, record.arm(one.check.arm)) for record in one.check.records]
    return [Launch(str(record.file.parent), record, arm) for record, arm in arms if arm]


def test_the_path_begins_with_each_launch_as_compare_shows_it(tmp_path: Path) -> None:
    one = judged(tmp_path / "run", NOISY, reference(entry(MEMORY, 4.5e12)), MEMORY)
    name, *lines = explanation(one).splitlines()
    assert name == f"{MEMORY}: inconclusive"
    assert lines[:3] == [
        f"  {launch_line(f'measured launch {number}', launch)}"
        for number, launch in enumerate(held(one))
    ]
    assert len(lines) > 3
    assert f"{tmp_path}/run/ceiling.device_memory.jsonl:2" in lines[1]
    assert "16 windows of 10 steps in 8 blocks" in lines[1]


def every_kind(folder: Path) -> list[CheckResult]:
    """Checks whose paths differ: by entries, by peaks, of times, of nothing, of siblings, by what
    judges none, of one launch."""
    peaks = {"device_memory": Peak("device_memory", 4.8e12, "B/s", "", "a datasheet", "2026-11-21")}
    known = entry(MEMORY, 4.5e12, tolerance=0.01, cards=5, launches=18, source="one; two")
    varies = entry(MEMORY, 4.5e12, tolerance=0.4, tolerance_from="varies")
    blind = context()
    del blind["gpu"]["memory_bus_bits"]
    cards = {name: card(rate) for name, rate in (("a", 4e12), ("b", 4e12), ("c", 3.7e12))}
    return [
        judged(folder / "1", NOISY, reference(known), MEMORY),
        judged(folder / "2", memory(4.5e12), None, MEMORY),
        judged(folder / "3", memory(6e12, context=blind), reference(peaks=peaks), MEMORY),
        judged(folder / "4", steps(1e-3), reference(entry(STEP, 1e-3)), STEP),
        judged(folder / "5", steps(1e-3), reference(entry(MEMORY, 4.5e12)), MEMORY),
        judged(folder / "6", memory(4.5e12), reference(varies), MEMORY),
        judged(folder / "7", memory(4.5e12, count=1), reference(known), MEMORY),
        CheckResult("health/ecc", "pass", "ECC is on", kind="health"),
        judge_siblings(compare_siblings(cards))[-1],
    ]


def test_every_line_begins_with_its_section(tmp_path: Path, kept: Callable[[str], None]) -> None:
    """From the estimate over what judges it to the remedy."""
    paths = list(map(explanation, every_kind(tmp_path)))
    for _, *lines in map(str.splitlines, paths):
        assert lines
        assert not [line for line in lines if not line.removeprefix("  ").startswith(SECTIONS)]
    told = "\n".join(paths).replace(str(tmp_path), "runs")
    kept(re.sub("[0-9a-f]{12}", "ID", told) + "\n")  # of last digits, which processors differ in


@pytest.mark.parametrize(
    ("id", "kind", "section"),
    [
        ("health/clock", "health", "Health"),
        ("health/integrity", "health", "Integrity"),
        ("roof/gemm/bf16/burst", "computed peak", "Computed peaks"),
        ("siblings/roof/gemm/bf16/burst (0a1b2c3d)", "", "Siblings"),
        ("time/x/y/z", "measured", "Qualification"),
    ],
)
def test_the_verdict_names_the_section_of_its_rule(id: str, kind: str, section: str) -> None:
    one = CheckResult(id, FAIL, "seen", "do this", kind=kind)
    assert explanation(one).splitlines()[1:] == [
        f"  {section}: fail: seen",
        f"  {section}: remedy: do this",
    ]


def test_the_json_holds_all_of_the_path(tmp_path: Path) -> None:
    known = entry(MEMORY, 4.5e12, cards=5, launches=18)
    one = judged(tmp_path / "run", NOISY, reference(known), MEMORY)
    assert one.estimate is not None
    assert one.check is not None
    data: dict[str, Any] = json.loads(json.dumps(as_data(one), allow_nan=False))
    assert data["against"] == 4.5e12
    assert data["estimate"]["low"] == one.estimate.low
    assert data["smallest_effect"] == one.smallest_effect
    assert (data["reference"]["date"], data["reference"]["source"]) == (known.date, known.source)
    assert data["reference"]["conditions"]["power_limit_w"] == 700.0
    assert data["launch_values"] == list(one.check.launch_values)
    for told, launch in zip(data["measured_launches"], held(one), strict=True):
        assert run_launch_data(launch).items() <= told.items(), "named as in the JSON of compare"
        assert told["citation"] == launch.record.citation
        assert (told["file"], told["line"]) == ("ceiling.device_memory.jsonl", launch.record.line)
    assert str(tmp_path) not in json.dumps(data), "a path is private"


def test_the_json_of_a_sibling_holds_its_launches(tmp_path: Path) -> None:
    *_, slow = every_kind(tmp_path)
    data = json.loads(json.dumps(as_data(slow), allow_nan=False))
    (standing,) = data["standings"]
    assert set(standing) == {
        *("card", "check", "setting", "value", "unit", "median", "distance", "nearest", "far"),
        *("least", "higher_is_better", "deviation", "outlier", "launch_values"),
        "measured_launches",
    }
    assert (standing["card"], standing["outlier"]) == ("c", True)
    assert standing["deviation"] == pytest.approx(-0.075)
    assert len(standing["measured_launches"]) == 3
    assert standing["launch_values"] == pytest.approx([3.7e12] * 3)
