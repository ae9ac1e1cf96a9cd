"""Whatever fails or is inconclusive says what to do about it and, in figures, what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.checks import judge_run
from gpulift.analysis.machine.health import judge_health, read_health
from gpulift.analysis.machine.qualification import judge_together
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, CheckResult
from gpulift.analysis.machine.siblings import compare_siblings, judge_siblings
from gpulift.analysis.reference import Reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.records.parse import read_record
from gpulift.records.read import read_run
from tests import runs_made, sample
from tests.analysis.machine.test_health import health, measured
from tests.analysis.machine.test_qualification import (
    MEMORY,
    STEP,
    context,
    entry,
    memory,
    reference,
    result,
    run_of,
    steps,
)
from tests.analysis.machine.test_siblings import card
from tests.sample import Json, arm, launches, record, unmeasured

PEAK = 2 * 3.201e9 * 6016 / 8
KNOWN = reference(entry(MEMORY, 4.5e12), entry(STEP, 1e-3))
HOST = {"conditions": {"host": "Other CPU, 4 cores"}}
UNSOUND: list[dict[str, Any]] = [
    {"ecc": {"enabled": False}},
    {"ecc": {"pending": False}},
    {"ecc": {"uncorrected_volatile": 2}},
    {"ecc": {"uncorrected_aggregate": 5}},
    {"row_remapping": {"pending": True}},
    {"row_remapping": {"failure": True}},
    {"retired_pages_pending": True},
    {"power": {"limit_w": 500.0}},
    {"mig": True},
    {"cuda_driver": "12.4"},
    {"affinity_covers_node": False},
    {"processes": [{"pid": 42}]},
    {"memory": {"free_bytes": 100e9}},
    {"temperature": {"slowdown_c": 64.0}},
    {"nvlinks": [{"link": 0, "active": False}]},
    {"nvlinks": [{"link": 0, "active": False}, {"link": 1, "active": True}]},
]
TELEMETRY: list[tuple[Json, str]] = [
    ({"pcie_generation": 4}, "burst"),
    ({"throttle": ["hw_slowdown"]}, "burst"),
    ({"throttle": ["other_0x200"]}, "burst"),
    ({"sm_clock_hz": {"min": 1e9, "median": 1.2e9, "max": 1.7e9}}, "burst"),
    ({"sm_clock_hz": {"min": 1e9, "median": 1.2e9, "max": 1.2e9}}, "burst"),
    ({"temperature_slope_c_per_s": 0.5}, "sustained"),
]


def broken(outcome: str, n: int = 3) -> list[Json]:
    """A case that ended so and for which nobody knows a remedy."""
    return [unmeasured("precision/matmul", {"n": n}, outcome, "no idea", context=context())]


def broken_arm() -> list[Json]:
    made = launches(3, "precision/matmul", {"n": 1}, [arm("a", 1e-3), arm("b", 1e-3)])
    for one in made:
        one["arms"][1] = {"name": "b", "role": "technique", "outcome": "failed", "reason": "no"}
        one["order"]["blocks"] = [[0, 0]] * 8
    return made


def of_speed() -> Iterator[CheckResult]:
    cases: list[tuple[list[Json], Reference | None]] = [
        (memory(1.2 * PEAK), None),
        (memory(0.79 * PEAK), None),
        (memory(0.3 * PEAK), None),
        (memory(0.5 * PEAK, count=1), None),
        ([*memory(4.2e12), *steps(2e-3)], KNOWN),
        ([*memory(4.5e12, noise=0.05), *steps(2e-3, "host")], KNOWN),
        (memory(4.5e12, count=1), KNOWN),
        (memory(4.5e12, count=1, blocks=1), KNOWN),
        (memory(4.5e12, context=context(cuda_runtime="12.8")), KNOWN),
        (memory(4.5e12, count=1, context=context(cuda_runtime="12.8")), KNOWN),
        (steps(1e-3, "host"), reference(entry(STEP, 1e-3, **HOST))),
        ([*memory(4.5e12), *broken("failed"), *broken("error", 4), *broken_arm()], KNOWN),
        (broken("error"), reference(entry("time/precision/matmul/n:3/a", 1e-3))),
        ([*memory(4.5e12), unmeasured("integrity/repeats", {"n": 1}, "failed", "bits")], None),
    ]
    for records, known in cases:
        yield from judge_run(run_of(*records), known)


def of_health() -> Iterator[CheckResult]:
    for change in UNSOUND:
        yield from judge_health(health(**change), None, [measured()])
    for telemetry, regime in TELEMETRY:
        made = [measured(telemetry, regime)]
        yield from judge_health(health(), None, made)
    grown = health(
        ecc={"corrected_volatile": 5},
        pcie={"replays": 3},
        nvlinks=[{"link": i, "active": True, "errors": i} for i in range(4)],
    )
    yield from judge_health(health(), grown, [measured()])
    yield from judge_health(health(), read_health(b'{"gpu_missing": "gone"}'), [])
    idle = record("precision/matmul", {"n": 1}, [arm("a", 1e-3)], context=context())
    idle["context"]["gpu"] |= {"pcie_max_generation": 5, "pcie_max_width": 16}
    idle["telemetry"] |= {"pcie_generation": 1, "pcie_width": 16}
    yield from judge_health(health(), None, [read_record(idle)])
    for outcome in ("failed", "error"):
        bad = unmeasured("integrity/repeats", {"n": 1}, outcome, "bits differ")
        yield from judge_health(health(), None, [read_record(bad)])


def of_several_cards() -> Iterator[CheckResult]:
    for rate in (3.7e12, 3.92e12):
        cards = {"a": card(4.0e12), "b": card(4.001e12), "c": card(3.999e12), "d": card(rate)}
        yield from judge_siblings(compare_siblings(cards))
    yield from judge_together("0a1b2c3d", run_of(*runs_made.with_troubles()))


@pytest.mark.parametrize(
    ("made", "failing", "open_ones"),
    [(of_speed, 10, 7), (of_health, 12, 15), (of_several_cards, 3, 1)],
)
def test_what_fails_or_is_inconclusive_has_a_remedy(
    made: Callable[[], Iterator[CheckResult]], failing: int, open_ones: int
) -> None:
    found = list(made())
    verdicts = [one.verdict for one in found]
    assert verdicts.count(FAIL) >= failing, "the kinds that are to be looked at are there"
    assert verdicts.count(INCONCLUSIVE) >= open_ones
    told = [one for one in found if one.verdict in (FAIL, INCONCLUSIVE)]
    assert not [(one.id, one.reason) for one in told if not one.remedy]


def test_what_is_inconclusive_in_speed_shows_an_effect_or_why_none_is_known() -> None:
    told = [one for one in of_speed() if one.verdict == INCONCLUSIVE]
    effects = [one.smallest_effect for one in told]
    assert any(effects)
    assert not all(effects)
    for one in told:
        assert (one.smallest_effect is None) == ("no smallest effect is known" in one.reason)


def test_other_conditions_keep_the_smallest_effect() -> None:
    changed = result(run_of(*memory(4.5e12, context=context(cuda_runtime="12.8"))), KNOWN, MEMORY)
    alike = result(run_of(*memory(4.5e12)), KNOWN, MEMORY)
    assert changed.reason.startswith("other conditions: ")
    assert changed.smallest_effect == alike.smallest_effect is not None


def test_what_broke_without_a_remedy_names_its_record_and_repeats_it(tmp_path: Path) -> None:
    made = [*memory(4.5e12), *broken("error")]
    summary: Summary = summarise(read_run(sample.write(tmp_path, made)))
    one = result(summary, KNOWN, "case/precision/matmul/n:3")
    assert one.remedy == (
        "read line 1 of precision.matmul.jsonl among the records;"
        " ./gpulift run '^precision/matmul/n:3$' repeats it"
    )


def test_a_skip_needs_no_remedy() -> None:
    one = result(run_of(*memory(4.5e12), *broken("skipped")), KNOWN, "case/precision/matmul/n:3")
    assert (one.verdict, one.remedy) == ("skipped", "")


def test_a_link_between_cards_and_the_way_through_the_host_have_remedies_of_their_own() -> None:
    direct, through_host = "roof/gpu_link/burst", "roof/gpu_link/host/burst"
    arms = [
        arm("a", 1e-3, cost={"bytes": 4e8, "roof": "gpu_link"}),
        arm("b", 1e-3, cost={"bytes": 2e7, "roof": "gpu_link/host"}),
    ]
    made = launches(3, "ceiling/collectives", {"n": 1}, arms, context=context())
    known = reference(entry(direct, 450e9), entry(through_host, 26e9))
    found = [result(run_of(*made), known, id) for id in (direct, through_host)]
    assert [one.verdict for one in found] == [FAIL, FAIL]
    assert "NVLinks" in found[0].remedy
    assert "PCIe width of both cards" in found[1].remedy
