"""Verdicts at their limits, and whole runs judged by a reference and by computed peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.checks import basis, coverage, decided_by_launches, judge, judge_run
from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.results import FAIL, INCONCLUSIVE, PASS, SKIPPED, CheckResult
from gpulift.analysis.machine.rows import table_of
from gpulift.analysis.machine.tables import reference_table
from gpulift.analysis.machine.unmeasured import LEFT_OUT
from gpulift.analysis.machine.verdict import overall
from gpulift.analysis.reference import Conditions, Measured, Peak, Published, Reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground.errors import FAILED
from gpulift.ground.estimate import Estimate
from gpulift.ground.terminal import console
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.verdicts import table
from tests.sample import (
    CPU_CONTEXT,
    Json,
    arm,
    gpu_context,
    launches,
    skipped_arm,
    unmeasured,
)

SIZE = float(1 << 30)
MEMORY = "roof/device_memory/burst"
STEP = "time/launch/cuda_graph/n:1/stream"
FACTS: dict[str, Any] = {
    "max_sm_clock_hz": 1.98e9,
    "max_memory_clock_hz": 3.201e9,
    "memory_bus_bits": 6016,
}


def context(**changes: Any) -> Json:
    """The context of an H200 whose facts allow its peaks to be computed."""
    return gpu_context(**{**changes, "gpu": FACTS | changes.get("gpu", {})})


def run_of(*records: Json) -> Summary:
    return summarise(Run(Path("run"), tuple(read_record(one) for one in records)))


def memory(rate: float, count: int = 3, noise: float = 1e-4, **top: Any) -> list[Json]:
    cost = {"bytes": SIZE, "roof": "device_memory"}
    one = arm("read", SIZE / rate, cost=cost, noise=noise, launch_noise=noise)
    top.setdefault("context", context())
    return launches(count, "ceiling/device_memory", {"bytes": 1 << 30}, [one], **top)


def steps(seconds: float, clock: str = "device", **top: Any) -> list[Json]:
    top.setdefault("context", context())
    one = arm("stream", seconds, clock=clock, noise=1e-4, launch_noise=1e-4)
    return launches(3, "launch/cuda_graph", {"n": 1}, [one], **top)


def entry(check: str, value: float, **changes: Any) -> Measured:
    conditions = {"cuda_runtime": "13.0", "power_limit_w": 700.0, **changes.pop("conditions", {})}
    made: dict[str, Any] = {
        "check": check,
        "value": value,
        "unit": "s" if check.startswith("time") else "B/s",
        "tolerance": 0.05,
        "tolerance_from": "default",
        "cards": 2,
        "launches": 6,
        "conditions": Conditions(**{"method": "1", **conditions}),
        "source": "gpulift:nvidia-h200/0123456789ab",
        "date": "2026-11-21",
    }
    return Measured(**(made | changes))


@pytest.mark.parametrize("paced_by_host", [{"clock": "host"}, {"held": False}])
def test_a_figure_that_the_pace_of_another_host_is_in_is_not_judged(paced_by_host: Json) -> None:
    known = entry(STEP, 1.0, conditions={"host": "Other CPU, 4 cores"})
    records = steps(1.0)
    for record in records:
        record["arms"][0].update(paced_by_host)
    judged = result(run_of(*records), reference(known), known.check)
    assert judged.verdict == SKIPPED
    assert "the reference's Other CPU, 4 cores" in judged.reason
    assert not decided_by_launches(judged)


def reference(*entries: Measured, peaks: dict[str, Peak] | None = None) -> Reference:
    return Reference("NVIDIA H200", peaks or {}, {one.check: one for one in entries})


def result(summary: Summary, known: Reference | None, id: str, **how: Any) -> CheckResult:
    return next(one for one in judge_run(summary, known, **how) if one.id == id)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (95.0, 99.0, PASS),  # on the limit is on the good side
        (94.999, 99.0, INCONCLUSIVE),
        (90.0, 95.0, INCONCLUSIVE),
        (90.0, 94.999, FAIL),
        (120.0, 130.0, PASS),
    ],
)
@pytest.mark.parametrize(("of_rates", "limit"), [(True, 95.0), (False, 105.0)])
def test_rates_and_times_at_their_limit(
    low: float, high: float, word: str, of_rates: bool, limit: float
) -> None:
    if not of_rates:  # as far on the other side of the reference
        low, high = 200.0 - high, 200.0 - low
    found = Estimate((low + high) / 2, low, high, 3)
    verdict = judge(found, 100.0, 0.05, higher_is_better=of_rates)
    assert (verdict.verdict, verdict.limit) == (word, limit)


def test_the_smallest_effect_is_what_would_just_fail() -> None:
    rate = judge(Estimate(100.0, 90.0, 110.0, 3), 100.0, 0.05)
    assert rate.smallest_effect is not None
    slow = 100.0 * (1 - rate.smallest_effect)
    assert slow * 1.1 == pytest.approx(95.0), "the upper end of such a card is on the limit"
    time = judge(Estimate(100.0, 90.0, 110.0, 3), 100.0, 0.05, higher_is_better=False)
    assert time.smallest_effect is not None
    assert 100.0 * (1 + time.smallest_effect) * 0.9 == pytest.approx(105.0)


@pytest.mark.parametrize("value", [50.0, 99.0])
def test_one_launch_never_decides(value: float) -> None:
    one = judge(Estimate(value, value - 0.1, value + 0.1, 1), 100.0, 0.05)
    assert one.verdict == INCONCLUSIVE
    assert one.reason.startswith("one launch:")
    none = judge(Estimate(value, None, None, 1), 100.0, 0.05)
    assert (none.verdict, none.reason[:11]) == (INCONCLUSIVE, "one launch:")
    assert judge(Estimate(value), 100.0, 0.05).verdict == INCONCLUSIVE


def test_the_ids_of_checks() -> None:
    launch = arm("stream", 2e-4, cost={"items": 100.0})
    summary = run_of(
        *memory(4.5e12),
        *launches(3, "ceiling/launch", {"kernels": 100}, [launch], context=context()),
        *steps(1e-3),
        *launches(3, "integrity/repeats", {"n": 1}, [arm("a", 1e-3)], context=context()),
    )
    checks = {check.id: check for check in measured_checks(summary)}
    assert list(checks) == [MEMORY, "cost/ceiling/launch/kernels:100/stream", STEP]
    for check in checks.values():
        assert len(check.launch_values) == 3
        assert check.launch_values[0] == pytest.approx(check.estimate.value, rel=0.01)


def test_a_sound_a_slow_and_a_noisy_card() -> None:
    known = reference(entry(MEMORY, 4.5e12), entry(STEP, 1e-3))
    sound = judge_run(run_of(*memory(4.49e12), *steps(1.01e-3)), known)
    assert [(one.id, one.verdict) for one in sound] == [(MEMORY, PASS), (STEP, PASS)]
    slow = judge_run(run_of(*memory(4.2e12), *steps(1.06e-3)), known)
    assert [one.verdict for one in slow] == [FAIL, FAIL]
    assert slow[0].fraction == pytest.approx(4.2 / 4.5, rel=1e-3)
    assert (slow[0].cards, slow[0].launches, slow[0].tolerance) == (2, 6, 0.05)
    assert slow[0].remedy
    noisy = result(run_of(*memory(4.5e12, noise=0.05)), known, MEMORY)
    assert noisy.verdict == INCONCLUSIVE
    assert noisy.smallest_effect is not None
    assert noisy.smallest_effect > 0.05


def test_what_the_host_times_has_the_host_as_its_remedy() -> None:
    known = reference(entry(STEP, 1e-3))
    by_host = result(run_of(*steps(1.5e-3, "host")), known, STEP)
    by_device = result(run_of(*steps(1.5e-3)), known, STEP)
    assert (by_host.verdict, by_device.verdict) == (FAIL, FAIL)
    assert "host" in by_host.remedy
    assert "host" not in by_device.remedy


@pytest.mark.parametrize(
    ("change", "entry_change", "words"),
    [
        ({"gpu": {"power_limit_w": 600.0}}, {}, "power limit 600 W, the reference has 700 W"),
        ({"cuda_runtime": "12.8"}, {}, "CUDA 12.8, the reference has 13.0"),
        ({"build": {"type": "Debug"}}, {}, "a Debug build"),
        ({}, {"conditions": {"method": "2"}}, "method 1, the reference has 2"),
        ({}, {"unit": "GB/s"}, "this is in B/s, the reference in GB/s"),
    ],
)
def test_other_conditions_are_inconclusive(
    change: dict[str, Any], entry_change: dict[str, Any], words: str
) -> None:
    summary = run_of(*memory(4.5e12, context=context(**change)))
    one = result(summary, reference(entry(MEMORY, 4.5e12, **entry_change)), MEMORY)
    assert one.verdict == INCONCLUSIVE
    assert one.reason == f"other conditions: {words}"
    assert one.remedy


def test_another_minor_version_and_driver_fit() -> None:
    changed = context(cuda_runtime="13.2", driver="590.1")
    known = reference(entry(MEMORY, 4.5e12))
    assert result(run_of(*memory(4.5e12, context=changed)), known, MEMORY).verdict == PASS


def test_more_than_physics_allows_fails_even_against_a_reference() -> None:
    peak = 2 * 3.201e9 * 6016 / 8
    known = reference(entry(MEMORY, 4.5e12))
    one = result(run_of(*memory(1.06 * peak)), known, MEMORY)
    assert (one.verdict, one.reason) == (FAIL, "implausible: 106 % of the computed peak")
    assert result(run_of(*memory(1.04 * peak)), known, MEMORY).verdict == PASS


def test_without_a_computed_peak_the_datasheet_bounds() -> None:
    peaks = {"device_memory": Peak("device_memory", 4.8e12, "B/s", "", "datasheet", "2026-11-21")}
    blind = context()
    del blind["gpu"]["memory_bus_bits"]
    summary = run_of(*memory(6e12, context=blind))
    one = result(summary, reference(peaks=peaks), MEMORY)
    assert (one.verdict, one.kind) == (FAIL, "datasheet's peak")
    assert "implausible" in one.reason


@pytest.mark.parametrize("measured", [(), (entry(MEMORY, 4.5e12),)])
@pytest.mark.parametrize("rate", [4.5e12, 3.0e12])
@pytest.mark.parametrize("times", [0.01, 1.0, 100.0])
def test_published_figures_change_no_verdict(
    measured: tuple[Measured, ...], rate: float, times: float
) -> None:
    about = ({"roof": "device_memory"}, {"check": MEMORY})
    figures = [Published(times * rate, "B/s", "m", "c", "s", "2026-01-01", **one) for one in about]
    known = reference(*measured)
    summary = run_of(*memory(rate))
    told = judge_run(summary, replace(known, published=tuple(figures)))
    assert told == judge_run(summary, known)
    assert overall(told) == overall(judge_run(summary, None if not measured else known))


@pytest.mark.parametrize(
    ("share", "word"), [(0.97, PASS), (0.79, INCONCLUSIVE), (0.41, INCONCLUSIVE), (0.39, FAIL)]
)
def test_without_a_reference_computed_peaks_judge(share: float, word: str) -> None:
    peak = 2 * 3.201e9 * 6016 / 8
    one = result(run_of(*memory(share * peak)), None, MEMORY)
    assert (one.verdict, one.kind) == (word, "computed peak")
    assert one.fraction == pytest.approx(share, rel=1e-3)
    summary = run_of(*memory(share * peak))
    assert basis(summary) == "judged by computed peaks: no reference for this model"


def test_one_launch_does_not_decide_against_a_peak_either() -> None:
    one = result(run_of(*memory(4.6e12, count=1)), None, MEMORY)
    assert one.verdict == INCONCLUSIVE
    assert one.reason.startswith("one launch:")


def test_without_a_reference_step_times_are_skipped_and_listed() -> None:
    one = result(run_of(*steps(1e-3)), None, STEP)
    assert (one.verdict, one.reason) == (SKIPPED, "no reference for it")
    known = reference(entry(MEMORY, 4.5e12))
    assert result(run_of(*steps(1e-3)), known, STEP).reason == "no reference value"


def test_what_was_not_measured_is_listed_with_its_reason() -> None:
    known = reference(
        entry(MEMORY, 4.5e12),
        entry("roof/gemm/fp8/burst", 1.5e15, unit="FLOP/s"),
        entry("roof/gemm/bf16/sustained", 7e14, unit="FLOP/s"),
        entry(STEP, 1e-3),
        entry("time/launch/cuda_graph/n:1/graph", 1e-3),
        entry("time/launch/cuda_graph/n:2/stream", 1e-3),
        entry("time/precision/matmul/n:512/bf16", 1e-3),
    )
    flops = {"flops": 1e12, "roof": "gemm/bf16"}
    gemm = [arm("bf16", 1.2e-3, cost=flops), skipped_arm("fp8", "no FP8 here", "a newer card")]
    graph = [arm("stream", 1e-3), skipped_arm("graph", "graphs are off", "turn them on")]
    ctx: dict[str, Any] = {"context": context()}
    summary = run_of(
        *launches(3, "ceiling/gemm", {"regime": "burst"}, gemm, **ctx),
        *launches(3, "launch/cuda_graph", {"n": 1}, graph, **ctx),
        unmeasured("launch/cuda_graph", {"n": 2}, "skipped", "out of memory", **ctx),
        unmeasured("precision/matmul", {"n": 512}, "failed", "arm bf16: error 0.3 > 0.01", **ctx),
        unmeasured("precision/matmul", {"n": 1024}, "error", "signal SIGSEGV", **ctx),
    )
    results = {one.id: one for one in judge_run(summary, known)}
    told = {id: (one.verdict, one.reason) for id, one in results.items()}
    absent = "not measured: filtered out, or not in this build"
    assert told[MEMORY] == (SKIPPED, absent)
    assert told["roof/gemm/bf16/sustained"] == (SKIPPED, absent)
    assert told["roof/gemm/fp8/burst"] == (SKIPPED, "skipped in this run: no FP8 here")
    assert told["time/launch/cuda_graph/n:1/graph"][1] == "skipped in this run: graphs are off"
    assert told["time/launch/cuda_graph/n:2/stream"][1] == "skipped in this run: out of memory"
    assert told["time/precision/matmul/n:512/bf16"] == (
        FAIL,
        "failed in this run: arm bf16: error 0.3 > 0.01",
    )
    assert told["case/precision/matmul/n:1024"] == (FAIL, "error in this run: signal SIGSEGV")
    assert results["roof/gemm/fp8/burst"].remedy == "a newer card"
    limited = {one.id: one for one in judge_run(summary, known, filter="gemm")}
    assert MEMORY not in limited
    told_of_rest = "2 checks of the reference not measured: the run was limited to 'gemm'"
    assert limited[LEFT_OUT].reason == told_of_rest
    assert limited["roof/gemm/fp8/burst"].verdict == SKIPPED, "what it tried keeps its row"


def test_what_a_quick_run_never_meant_to_measure_is_one_row() -> None:
    quick = context(options={"quick": True})
    entries = [entry(f"time/launch/cuda_graph/n:{n}/stream", 1e-3) for n in range(100)]
    known = reference(entry(MEMORY, 4.5e12), *entries)
    results = judge_run(run_of(*memory(4.5e12, context=quick)), known)
    assert [(one.id, one.verdict) for one in results] == [(MEMORY, PASS), (LEFT_OUT, SKIPPED)]
    assert results[1].reason.startswith("100 checks of the reference not measured: a quick run")
    assert "without --quick" in results[1].remedy


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.93e-3, "7 % better than the reference"), (0.96e-3, ""), (1.04e-3, ""), (1.1e-3, None)],
)
def test_what_is_far_better_than_its_reference_asks_for_another(
    seconds: float, told: str | None
) -> None:
    one = result(run_of(*steps(seconds)), reference(entry(STEP, 1e-3)), STEP)
    assert one.verdict == (FAIL if told is None else PASS)
    if told is not None:
        assert one.reason.replace("7.0 %", "7 %") == told
        assert ("refresh the reference" in one.remedy) == bool(told)


def test_a_rate_far_better_than_its_reference_asks_for_another_too() -> None:
    one = result(run_of(*memory(4.8e12)), reference(entry(MEMORY, 4.5e12)), MEMORY)
    assert one.verdict == PASS
    assert "refresh the reference" in one.remedy


def test_without_a_gpu_nothing_is_a_pass() -> None:
    copies = [arm("copy", 0.02, cost={"bytes": 256.0, "roof": "host_memory"})]
    ctx: dict[str, Any] = {"context": CPU_CONTEXT}
    summary = run_of(*launches(3, "ceiling/host_memory", {"bytes": 256}, copies, **ctx))
    results = judge_run(summary, None)
    assert overall(results) == SKIPPED
    assert coverage(results) == "0 pass, 0 fail, 0 inconclusive, 1 skipped"
    assert "peak" not in basis(summary)
    assert basis(summary).startswith("not judged: no reference values")


def test_without_a_gpu_no_cards_are_counted() -> None:
    """A reference can be made of a processor, too; how many machines it was is not known."""
    copies = [arm("copy", 0.02, cost={"bytes": 256.0, "roof": "host_memory"}, noise=1e-4)]
    ctx: dict[str, Any] = {"context": CPU_CONTEXT}
    summary = run_of(*launches(3, "ceiling/host_memory", {"bytes": 256}, copies, **ctx))
    host, other = "roof/host_memory/burst", "time/allocator/host_malloc/n:1/glibc"
    rate = next(one.estimate.value for one in measured_checks(summary) if one.id == host)
    unknown = {"conditions": {"cuda_runtime": "", "power_limit_w": None}}
    known = reference(entry(host, rate, **unknown), entry(other, 1e-3, **unknown))
    results = {one.id: one for one in judge_run(summary, known)}
    assert results[host].verdict == PASS
    assert (results[host].cards, results[other].cards) == (0, 0)
    judged = replace(summary, reference=known)
    assert basis(judged) == "judged by what was measured with this processor before"


def test_health_is_part_of_the_verdict() -> None:
    sick = CheckResult("health/ecc", FAIL, "bad memory")
    results = judge_run(run_of(*memory(4.5e12)), reference(entry(MEMORY, 4.5e12)), [sick])
    assert coverage(results) == "1 pass, 1 fail, 0 inconclusive, 0 skipped"


def test_integrity_is_judged_once() -> None:
    ctx: dict[str, Any] = {"context": context()}
    bad = unmeasured("integrity/repeats", {"n": 1}, "failed", "bits differ", **ctx)
    summary = run_of(*memory(4.5e12), bad)
    told = CheckResult("health/integrity", FAIL, "silent corruption: bits differ")
    assert [one.id for one in judge_run(summary, None, [told])] == [MEMORY, "health/integrity"]
    assert [one.verdict for one in judge_run(summary, None)] == [PASS, FAIL]


def test_tables(kept: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows have what failed first, and count what passes or is skipped alike."""
    monkeypatch.setattr(table, "SHORT", 0)
    entries = [entry("roof/gemm/fp8/burst", 1e15), entry("roof/gemm/fp16/burst", 1e15)]
    varies = entry("cost/x/n:1/a", 1e-6, tolerance_from="varies", source="first; second")
    known = reference(entry(MEMORY, 4.5e12), entry(STEP, 1e-3), varies, *entries)
    results = [
        *judge_run(run_of(*memory(4.2e12), *steps(1e-3)), known),
        *judge_run(run_of(*memory(4.5e12, noise=0.05)), known, filter="memory"),
        *judge_run(run_of(*memory(4.6e12)), None),
        CheckResult("health/ecc", PASS, "ECC is on", kind="health"),
    ]
    made = table_of(replace(run_of(*memory(4.2e12)), reference=known), results, "run")
    assert made.exit_code == FAILED
    screen = console()
    with screen.capture() as shown:
        screen.print(reference_table(known))
    kept("\n".join((*table.lines(made), "", *table.lines(made, every=True), "", shown.get())))
