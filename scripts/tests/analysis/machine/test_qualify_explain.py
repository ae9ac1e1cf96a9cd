"""From windows to the verdict on a check, as lines and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.explain import as_data
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, SKIPPED, CheckResult
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


def test_the_path_goes_from_the_estimate_over_the_reference_to_the_remedy(tmp_path: Path) -> None:
    known = entry(MEMORY, 4.5e12, tolerance=0.01, cards=5, launches=18, source="one; two")
    one = judged(tmp_path, NOISY, reference(known), MEMORY)
    assert one.check is not None
    told = explanation(one)
    found = [
        "Launch value: one value per launch: ",
        "Qualification: measured 4.",
        "Qualification: limit 4.46 TB/s: 4.50 TB/s of the reference x (1 - 1 %)",
        "Qualification: reference 4.50 TB/s: 5 cards, 18 launches, of 2026-11-21; tolerance 1 %"
        " (from: default)",
        "Qualification: conditions of the reference: method 1, CUDA 13.0, power limit 700 W",
        "Qualification: sources of the reference: one; two",
        "% of what it is held against",
        "Qualification: smallest deviation that would surely have failed: ",
        "Qualification: inconclusive: the interval holds the limit",
        "Qualification: remedy: measure again with nothing else running; look at the health",
    ]
    places = [told.find(words) for words in found]
    assert -1 not in places, told
    assert places == sorted(places)
    assert "over 3 launches, 98.3 % interval " in told


def every_kind(folder: Path) -> list[CheckResult]:
    """Checks whose paths differ: by entries, by peaks, of times, of nothing, of siblings."""
    peaks = {"device_memory": Peak("device_memory", 4.8e12, "B/s", "", "a datasheet", "2026-11-21")}
    blind = context()
    del blind["gpu"]["memory_bus_bits"]
    cards = {name: card(rate) for name, rate in (("a", 4e12), ("b", 4e12), ("c", 3.7e12))}
    return [
        judged(folder / "1", NOISY, reference(entry(MEMORY, 4.5e12)), MEMORY),
        judged(folder / "2", memory(4.5e12), None, MEMORY),
        judged(folder / "3", memory(6e12, context=blind), reference(peaks=peaks), MEMORY),
        judged(folder / "4", steps(1e-3), reference(entry(STEP, 1e-3)), STEP),
        judged(folder / "5", steps(1e-3), reference(entry(MEMORY, 4.5e12)), MEMORY),
        CheckResult("health/ecc", "pass", "ECC is on", kind="health"),
        *judge_siblings(compare_siblings(cards)),
    ]


def test_every_line_begins_with_its_section(tmp_path: Path) -> None:
    for one in every_kind(tmp_path):
        _, *lines = explanation(one).splitlines()
        assert lines
        assert not [line for line in lines if not line.removeprefix("  ").startswith(SECTIONS)]


def test_a_peak_is_named_with_its_share_and_its_source(tmp_path: Path) -> None:
    _, computed, datasheet, *_ = map(explanation, every_kind(tmp_path))
    assert "limit 3.85 TB/s: 80 % of the computed peak of 4.81 TB/s" in computed
    assert "limit 5.04 TB/s: 105 % of the datasheet's peak of 4.80 TB/s" in datasheet
    assert "datasheet's peak: a datasheet; 2026-11-21" in datasheet


def test_the_limit_of_a_time_is_above_its_reference(tmp_path: Path) -> None:
    one = judged(tmp_path, steps(1e-3), reference(entry(STEP, 1e-3)), STEP)
    assert "limit 1.05 ms: 1.00 ms of the reference x (1 + 5 %)" in explanation(one)


def test_an_entry_that_judges_none_is_told_as_such(tmp_path: Path) -> None:
    known = entry(MEMORY, 4.5e12, tolerance=0.4, tolerance_from="varies")
    one = judged(tmp_path, memory(4.5e12), reference(known), MEMORY)
    assert one.verdict == SKIPPED
    told = explanation(one)
    assert "tolerance 40 % (from: varies), so that it informs and judges none" in told
    assert "limit" not in told.replace("power limit", "")


def test_the_reference_of_what_was_not_measured_is_told(tmp_path: Path) -> None:
    one = judged(tmp_path, steps(1e-3), reference(entry(MEMORY, 4.5e12)), MEMORY)
    told = explanation(one)
    assert "sources of the reference: gpulift:nvidia-h200/0123456789ab" in told
    assert "skipped: not measured" in told


def test_one_launch_says_that_no_effect_is_known(tmp_path: Path) -> None:
    one = judged(tmp_path, memory(4.5e12, count=1), reference(entry(MEMORY, 4.5e12)), MEMORY)
    assert (one.verdict, one.smallest_effect) == (INCONCLUSIVE, None)
    told = explanation(one)
    assert "over 1 launch, 97.5 % interval " in told
    assert " of the windows of this launch alone" in told
    assert "no smallest effect is known" in told


def test_a_card_among_its_siblings_is_told_by_roof(tmp_path: Path) -> None:
    *_, slow = every_kind(tmp_path)
    told = explanation(slow)
    assert told.startswith("siblings/c: fail\n  Launch value: measured launch 0 ")
    assert "roof/device_memory/burst alone: 3.70 TB/s against a median of 4.00 TB/s" in told
    assert "-7.50 %, -31.2 robust standard deviations" in told
    assert "the end nearest the median is -7.50 % off: an outlier" in told
    assert "more than 4 deviations and its whole interval more than 1 % off" in told
    assert "fails where a roof is more than 5 % below" in told
    assert "launch/cuda_graph" not in told, "step times do not decide"


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
