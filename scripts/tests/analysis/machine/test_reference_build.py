"""Building a reference from runs: values, tolerances, refusals, and the file that is written."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulift.analysis.machine.checks import judge_run
from gpulift.analysis.machine.reference_build import (
    build,
    rounded_tolerance,
    to_json,
    tolerance_of_cards,
    write,
)
from gpulift.analysis.machine.results import PASS, SKIPPED
from gpulift.analysis.reference import Peak, Published, Reference, read_reference
from gpulift.analysis.summary import summarise
from gpulift.ground.errors import GpuliftError
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests.sample import Json, arm, gpu_context, launches

SIZE = float(1 << 30)
MEMORY = "roof/device_memory/burst"
STEP = "time/launch/cuda_graph/n:1/stream"
EXISTING = Reference(
    "NVIDIA H200",
    {"device_memory": Peak("device_memory", 4.8e12, "B/s", "peak", "datasheet", "2026-11-21")},
    published=(
        Published(4e12, "B/s", "triad", "as told", "someone", "2026-08-22", roof="device_memory"),
    ),
)


def run(card: str, rate: float, noise: float = 0.0, seed: int = 1, **changes: Any) -> Run:
    """A run on one card whose device memory has this rate in B/s and whose step takes 1 ms."""
    context = gpu_context(gpu={"card": card})
    count = changes.pop("count", 3)
    clock = changes.pop("clock", "device")
    top: dict[str, Any] = {
        key: changes.pop(key) for key in ("method", "started_at") if key in changes
    }
    for key, value in changes.items():
        context[key] = context[key] | value if isinstance(value, dict) else value
    how: dict[str, Any] = {"noise": 0.0, "launch_noise": noise}
    read = arm("read", SIZE / rate, cost={"bytes": SIZE, "roof": "device_memory"}, **how)
    ctx: dict[str, Any] = {"context": context, "seed": seed, **top}
    made: list[Json] = [
        *launches(count, "ceiling/device_memory", {"bytes": 1 << 30}, [read], **ctx),
        *launches(
            count, "launch/cuda_graph", {"n": 1}, [arm("stream", 1e-3, clock=clock, **how)], **ctx
        ),
    ]
    return Run(Path(f"run-{card}"), tuple(read_record(one) for one in made))


def test_one_card_is_counted_as_one_card_and_has_the_default_tolerance() -> None:
    made = build([run("a", 4e12), run("a", 4e12, seed=2)], EXISTING)
    entry = made.measured[MEMORY]
    assert entry.value == pytest.approx(4e12)
    assert (entry.cards, entry.launches) == (1, 6)
    assert (entry.tolerance, entry.tolerance_from) == (0.05, "default")
    assert entry.conditions.power_limit_w == 700
    assert entry.conditions.commit == "abc1234"
    assert entry.source.count("gpulift:nvidia-h200/") == 6
    assert entry.date == "2026-11-21"
    assert (made.peaks, made.published) == (EXISTING.peaks, EXISTING.published)
    assert made.measured[STEP].unit == "s"


def test_the_value_is_the_median_of_the_cards_not_of_the_launches() -> None:
    runs = [run("a", 4.0e12), run("a", 4.0e12, seed=2), run("b", 4.1e12), run("c", 4.2e12)]
    assert build(runs).measured[MEMORY].value == pytest.approx(4.1e12)


def test_an_entry_is_of_the_clock_that_judged_it_last() -> None:
    before = [run(card, 4e12, clock="host", seed=seed) for seed, card in enumerate("ab", 3)]
    made = build([*before, run("c", 4e12, started_at="2026-11-22T00:00:00Z")])
    assert made.measured[STEP].cards == 1
    assert made.measured[MEMORY].cards == 3, "which both judged by the same clock"


def test_noise_between_launches_widens_the_default() -> None:
    noisy = run("a", 4e12, noise=0.05, count=20)
    entry = build([noisy]).measured[MEMORY]
    assert 0.10 < entry.tolerance <= 0.20
    assert entry.judges


def test_what_varies_too_much_informs_and_judges_none() -> None:
    runs = [run(str(i), 4e12 * factor) for i, factor in enumerate((0.5, 0.8, 1.0, 1.2, 1.5))]
    for made in (build([run("a", 4e12, noise=0.5, count=20)]), build(runs)):
        entry = made.measured[MEMORY]
        assert (entry.tolerance, entry.tolerance_from, entry.judges) == (0.30, "varies", False)
    found = {one.id: one for one in judge_run(summarise(run("b", 1e12)), build(runs))}
    assert (found[MEMORY].verdict, found[MEMORY].cards) == (SKIPPED, 5)
    assert found[MEMORY].tolerance is None
    assert found[MEMORY].reason == "sound machines differ by more than 30 %"
    assert found[STEP].verdict == PASS


def test_five_cards_give_their_own_tolerance() -> None:
    rates = [4e12 * factor for factor in (0.99, 0.995, 1.0, 1.005, 1.01)]
    runs = [run(str(i), rate) for i, rate in enumerate(rates)]
    entry = build(runs).measured[MEMORY]
    assert (entry.cards, entry.tolerance_from) == (5, "cards")
    deviation = float(np.std(np.log(rates), ddof=1))
    # Two checks: Student's t for 0.975 and 4 degrees of freedom is 2.776.
    k = 2.7764 * math.sqrt(1 + 1 / 5)
    expected = 1 - math.exp(float(np.mean(np.log(rates))) - k * deviation) / 4e12
    assert entry.tolerance == rounded_tolerance(expected)
    same = build([run(str(i), 4e12) for i in range(5)]).measured[MEMORY]
    assert (same.tolerance, same.tolerance_from) == (0.01, "cards")


def test_the_limit_of_times_is_above() -> None:
    logs = [math.log(1e-3 * factor) for factor in (0.98, 1.0, 1.0, 1.0, 1.02)]
    deviation = float(np.std(logs, ddof=1))
    above = tolerance_of_cards(logs, 1e-3, higher_is_better=False, checks=1)
    mean = float(np.mean(logs))
    k = 2.1318 * math.sqrt(1 + 1 / 5)
    assert above == pytest.approx(math.exp(mean + k * deviation) / 1e-3 - 1, rel=1e-3)
    assert above > tolerance_of_cards(logs, 1e-3, higher_is_better=True, checks=1)


@pytest.mark.world
def test_at_most_one_sound_card_in_twenty_fails_any_check() -> None:
    random = np.random.default_rng(7)
    failed = 0
    for _ in range(2000):
        known, new = random.normal(0.0, 0.02, (30, 6)), random.normal(0.0, 0.02, 30)
        limits = [1 - tolerance_of_cards(list(logs), 1.0, True, checks=30) for logs in known]
        failed += bool((new < np.log(limits)).any())
    assert 0.035 < failed / 2000 < 0.06


@pytest.mark.parametrize(
    ("tolerance", "rounded"), [(0.05, 0.05), (0.0501, 0.055), (0.0, 0.0), (0.9, 0.9)]
)
def test_rounding(tolerance: float, rounded: float) -> None:
    assert rounded_tolerance(tolerance) == rounded


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"build": {"dirty": True}}, "run-b: built from uncommitted changes"),
        ({"build": {"commit": "unknown"}}, "run-b: built from an unknown commit"),
        ({"build": {"type": "Debug"}}, "run-b: a build of type Debug"),
        ({"gpu": {"name": "NVIDIA H100"}}, "several models: NVIDIA H100, NVIDIA H200"),
        ({"gpu": {"power_limit_w": 500.0}}, "more than one power limit: 500.0, 700.0"),
        ({"cuda_runtime": "12.8"}, "more than one CUDA major version: 12, 13"),
        ({"method": "2"}, "more than one method version: 1, 2"),
    ],
)
def test_what_must_not_be_a_reference_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(GpuliftError, match=words):
        build([run("a", 4e12), run("b", 4e12, **change)])


def test_a_card_that_changes_in_the_midst_of_a_run_is_no_reference() -> None:
    first, second = run("aaaa", 4e12), run("bbbb", 4e12)
    mixed = replace(first, records=(*first.records[:4], *second.records[4:]))
    with pytest.raises(GpuliftError, match="run-aaaa: records of several cards: aaaa, bbbb"):
        build([mixed])


def test_a_card_that_the_hardware_slowed_down_is_no_reference() -> None:
    sound = run("aaaa", 4e12)
    last = sound.records[-1]
    assert last.telemetry is not None
    hot = replace(last.telemetry, throttle=("hw_thermal_slowdown",))
    slowed = replace(sound, records=(*sound.records[:-1], replace(last, telemetry=hot)))
    with pytest.raises(GpuliftError, match="the hardware slowed itself down in this launch"):
        build([slowed])


def test_other_refusals() -> None:
    with pytest.raises(GpuliftError, match="no records"):
        build([])
    with pytest.raises(GpuliftError, match="one launch is no reference"):
        build([run("a", 4e12, count=1)])
    with pytest.raises(GpuliftError, match="the reference is of NVIDIA B200"):
        build([run("a", 4e12)], Reference("NVIDIA B200", {}))


def test_checks_of_one_launch_are_left_out_and_the_others_built() -> None:
    once = run("a", 4e12, count=1)
    step = [one for one in run("a", 4e12).records if one.technique == "launch/cuda_graph"]
    memory = [one for one in once.records if one.technique != "launch/cuda_graph"]
    said: list[str] = []
    made = build([Run(Path("mixed"), (*memory, *step))], EXISTING, said.append)
    assert set(made.measured) == {STEP}
    assert said == [f"left out for having one launch: 1, the first {MEMORY}"]


def test_entries_that_the_runs_do_not_measure_are_kept() -> None:
    before = build([run("a", 4e12), run("b", 4e12)], EXISTING)
    step = [one for one in run("a", 4e12).records if one.technique == "launch/cuda_graph"]
    made = build([Run(Path("step"), tuple(step))], before)
    assert made.measured[MEMORY] == before.measured[MEMORY]
    assert (made.measured[STEP].cards, before.measured[STEP].cards) == (1, 2)


def test_the_file_is_deterministic_and_reads_back(tmp_path: Path) -> None:
    runs = [run("a", 4e12, noise=0.001), run("b", 4.1e12, noise=0.001)]
    made = build(runs, EXISTING)
    file = tmp_path / "reference" / "nvidia-h200.json"
    write(made, file)
    assert read_reference(file) == made
    assert file.read_text(encoding="utf-8") == to_json(build(runs[::-1], EXISTING))
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert judge_run(summarise(runs[0]), read_reference(file))[0].verdict == PASS


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuliftError, match="cannot be written"):
        write(EXISTING, tmp_path / "file" / "x.json")
