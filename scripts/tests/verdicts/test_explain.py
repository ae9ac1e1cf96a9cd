"""From windows to a verdict: every step is told, and causes are told apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.analysis.machine import computed_peaks, health, outliers, results, telemetry
from gpulift.analysis.machine.checks import IMPLAUSIBLE
from gpulift.ground import steps
from gpulift.ground.errors import FAILED
from gpulift.records.read import read_run
from gpulift.verdicts import decision
from gpulift.verdicts.comparison import ArmPair, Launch, compare
from gpulift.verdicts.decision import Verdict, percent
from gpulift.verdicts.explain import attribution, explain, path_to
from tests import sample
from tests.sample import Json

OPEN = "Verdict: inconclusive"
QUIET: Json = {"noise": 1e-4, "launch_noise": 1e-4}


def records(
    seed: int,
    step_s: float = 1e-3,
    clock: str = "device",
    held: bool = True,
    cost: Json | None = None,
    context: Json = sample.GPU_CONTEXT,
    **windows: Any,
) -> list[Json]:
    """Three launches of one arm; windows that are given replace all of that kind, per step."""
    one = sample.arm("x", step_s, clock=clock, held=held, cost=cost or {}, **QUIET)
    made = sample.launches(3, "a/b", {"n": 1}, [one], seed=seed, context=context)
    for record in made:
        arm = record["arms"][0]
        for key, value in windows.items():
            scale = 1 if key == "sm_clock_hz" else arm["steps_per_window"]
            arm["windows"][key] = [value * scale] * len(arm["windows"]["host_s"])
    return made


def row(tmp_path: Path, base: list[Json], head: list[Json]) -> ArmPair:
    runs = [
        read_run(sample.write(tmp_path / name, made))
        for name, made in (("base", base), ("head", head))
    ]
    (found,) = compare(runs[:1], runs[1:]).rows
    return found


def section(line: str) -> str:
    """The section of the method that a line begins with; empty for none."""
    return next((one for one in steps.SECTIONS if line.startswith(f"{one}: ")), "")


def cause(found: ArmPair) -> str:
    return explain(found.base, found.head, found.verdict)[-1]


def test_every_section_of_a_step_is_one_of_the_method() -> None:
    method = (Path(decision.__file__).parents[1] / "METHOD.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", method, re.MULTILINE)
    assert set(steps.SECTIONS) <= set(headings)


@pytest.mark.parametrize(
    ("title", "words"),
    [
        (steps.HEALTH, f"less than {percent(health.FREE_SHARE)} of what the driver"),
        (steps.HEALTH, f"below {percent(telemetry.CLOCK_FAILS)} of the card's highest"),
        (steps.HEALTH, f"| it is below {percent(telemetry.CLOCK_PASSES)} |"),
        (steps.HEALTH, f"within {telemetry.NEAR_SLOWDOWN_C:g} °C of where"),
        (steps.HEALTH, f"leads there in {telemetry.LOOK_AHEAD_S:g} s"),
        *(
            (steps.COMPUTED_PEAKS, f"| {percent(share)} |")
            for share in sorted(set(computed_peaks.SHARES.values()))
        ),
        (steps.COMPUTED_PEAKS, f"More than {percent(IMPLAUSIBLE)} of a peak"),
        (steps.SIBLINGS, f"Of {outliers.ENOUGH} or more cards"),
        (steps.SIBLINGS, f"max(1.4826 x MAD, {percent(outliers.FLOOR)})"),
        (steps.SIBLINGS, f"more than {outliers.FAR:g} and"),
        (steps.SIBLINGS, f"more than {percent(outliers.LEAST_DEVIATION)} from the median"),
        (steps.SIBLINGS, f"more than {percent(results.WORTH_FAILING)} below"),
    ],
)
def test_the_method_has_the_limits_of_the_code(title: str, words: str) -> None:
    method = (Path(decision.__file__).parents[1] / "METHOD.md").read_text(encoding="utf-8")
    _, _, rest = method.partition(f"\n## {title}\n")
    assert words in " ".join(rest.partition("\n## ")[0].split())


def test_every_step_has_its_section(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2))
    lines = explain(found.base, found.head, found.verdict)
    assert list(dict.fromkeys(map(section, lines))) == [
        "Launch value",
        "Independent launches",
        "Family",
        "Equivalence",
        "Verdict",
        "Smallest effect",
        "Attribution",
    ]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict(decision.SKIPPED, reason="no GPU"), ["Verdict: skipped: no GPU"]),
        (
            Verdict(decision.INCONCLUSIVE, None, 0.02, "only 2 % or more", (OPEN,)),
            [
                OPEN,
                "Smallest effect: changes of 2 % or more would have been seen with 90 % power",
            ],
        ),
        (
            Verdict(decision.INCONCLUSIVE, reason="too few", path=("Gate: screen: slower", OPEN)),
            ["Gate: screen: slower", f"{OPEN}: too few"],
        ),
        (
            Verdict(decision.ERROR, reason="signal", path=("Verdict: error: signal",)),
            ["Verdict: error: signal"],
        ),
        (
            Verdict(decision.INCONCLUSIVE, reason="one run", path=("Family: one run", OPEN)),
            ["Family: one run", OPEN],
        ),
    ],
)
def test_a_path_ends_with_its_verdict_and_a_reason_that_nothing_else_told(
    verdict: Verdict, said: list[str]
) -> None:
    assert path_to(verdict, [], None) == said


def test_a_launch_line_holds_what_the_value_stands_on(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2))
    lines = [line for line in explain(found.base, found.head, found.verdict) if "Launch v" in line]
    assert len(lines) == 6
    first = found.base[0].record
    for part in (
        f"base launch 0 (gpulift:nvidia-h200/{first.id}, ",
        "a.b.jsonl:1)",
        "median step 1.00 ms by the device clock",
        "16 windows of 10 steps in 8 blocks",
        "SM clock 1980 MHz",
        "throttle sw_power_cap",
        "check error 0 of 0 allowed",
    ):
        assert part in lines[0]


def test_slower_code_takes_more_cycles(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2, step_s=1.05e-3))
    assert found.verdict.verdict == decision.REGRESSED
    assert "the code: of 4.9" in cause(found)


def test_a_slower_clock_takes_as_many_cycles(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2, step_s=1.05e-3, sm_clock_hz=1.98e9 / 1.05))
    assert "the clock, not the code" in cause(found)


def test_code_and_clock_together(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2, step_s=1.1e-3, sm_clock_hz=1.98e9 / 1.05))
    assert "code and clock: of 9.9" in cause(found)


def test_without_cycles_no_cause_is_claimed(tmp_path: Path) -> None:
    made = [records(1), records(2, step_s=1.05e-3)]
    for one in made[1]:
        del one["arms"][0]["windows"]["sm_clock_hz"]
    assert "throttle in head" in cause(row(tmp_path, *made))


def test_no_cause_is_claimed_of_what_is_no_change(tmp_path: Path) -> None:
    assert "throttle in head" in cause(row(tmp_path, records(1), records(2)))


@pytest.mark.parametrize(
    ("enqueue_s", "device_s", "words"),
    [
        (2.5e-4, 8e-4, "Attribution: issuing work on the host: a step takes +50."),
        (2e-4, 8.5e-4, "Attribution: the device's work: a step takes +50."),
        (2.5e-4, 8.5e-4, "Attribution: the device's work or issuing work on the host: a step"),
        (2e-4, 8e-4, "Attribution: the host, outside issuing: a step takes +50."),
    ],
)
def test_where_the_host_judges_its_parts_are_told_apart(
    tmp_path: Path, enqueue_s: float, device_s: float, words: str
) -> None:
    base = records(1, clock="host", enqueue_s=2e-4, device_s=8e-4)
    head = records(2, 1.05e-3, clock="host", enqueue_s=enqueue_s, device_s=device_s)
    assert cause(row(tmp_path, base, head)).startswith(words)


@pytest.mark.parametrize(
    ("base_enqueue_s", "head_enqueue_s", "words"),
    [
        (2e-4, 1.9e-3, "issuing work on the host: a step"),
        (0.95e-3, 1.9e-3, "the device's work or issuing work on the host: a step"),
        (2e-4, 1.2e-3, "the device's work or issuing work on the host: a step"),
    ],
)
def test_a_host_that_starts_to_set_the_pace_is_the_cause_and_not_the_device_that_waits_for_it(
    tmp_path: Path, base_enqueue_s: float, head_enqueue_s: float, words: str
) -> None:
    base = records(1, 1e-3, clock="host", enqueue_s=base_enqueue_s, device_s=1e-3)
    head = records(2, 2e-3, clock="host", enqueue_s=head_enqueue_s, device_s=2e-3)
    said = cause(row(tmp_path, base, head))
    assert said.startswith(f"Attribution: {words}")
    assert re.search(
        r"its calls fill (19\.8|94\.\d) % of it in base, (94\.\d|59\.\d) % in head", said
    )


def test_events_of_a_device_that_waited_for_the_host_tell_no_slower_code(tmp_path: Path) -> None:
    base = records(1, 1e-3, held=False, enqueue_s=8e-4)
    head = records(2, 2e-3, held=False, enqueue_s=2e-3)
    assert cause(row(tmp_path, base, head)).startswith("Attribution: issuing work on the host")


def test_without_a_device_it_is_the_host_s_work(tmp_path: Path) -> None:
    cpu: Json = {"clock": "host", "context": sample.CPU_CONTEXT}
    found = row(tmp_path, records(1, 1e-3, **cpu), records(2, 2e-3, **cpu))
    assert cause(found) == (
        "Attribution: the host's work: a step takes +1.01 ms, and no device took part"
    )
    assert not [line for line in explain(found.base, found.head, found.verdict) if "share" in line]


def test_the_shape_that_a_ceiling_chose_is_no_cause(tmp_path: Path) -> None:
    def roof(size: float, seed: int, clock_hz: float) -> list[Json]:
        cost = {"flops": size, "roof": "gemm/bf16"}
        one = sample.arm("bf16", size / 8e14 * 1.98e9 / clock_hz, cost=cost, **QUIET)
        made = sample.launches(3, "ceiling/gemm", {"n": 1}, [one], seed=seed, ceiling=True)
        for record in made:
            arm = record["arms"][0]
            arm["windows"]["sm_clock_hz"] = [clock_hz] * len(arm["windows"]["host_s"])
            arm["held"] = True
        return made

    sides = [
        [read_run(sample.write(tmp_path / f"{seed}", roof(size, seed, hz))) for seed in seeds]
        for size, hz, seeds in ((2e12, 1.98e9, (1, 2)), (1e12, 1.98e9 / 1.05, (3, 4)))
    ]
    (found,) = compare(sides[0], sides[1]).rows
    assert found.verdict.verdict == decision.REGRESSED
    said = r"the clock, not the code: of 5(\.0\d)? % in time, -?0\.0\d+ % is in cycles"
    assert re.search(said, cause(found)), "and not of half the time of a step"
    lines = explain(found.base, found.head, found.verdict)
    assert not [line for line in lines if "of a step:" in line or "issuing" in line]
    assert "Attribution: arithmetic that a step needs, over its time: 800 TFLOP/s in base, 76" in (
        "\n".join(lines)
    )


def test_more_cycles_for_an_operation_may_be_of_the_shape(tmp_path: Path) -> None:
    def launches_of(size: float, rate: float) -> list[Launch]:
        one = sample.arm("bf16", size / rate, cost={"flops": size, "roof": "gemm/bf16"}, **QUIET)
        made = sample.launches(3, "ceiling/gemm", {"n": 1}, [one], ceiling=True)
        for record in made:
            windows = record["arms"][0]["windows"]
            windows["sm_clock_hz"] = [1.98e9] * len(windows["host_s"])
            record["arms"][0]["held"] = True
        run = read_run(sample.write(tmp_path / f"{size:.0e}-{rate:.0e}", made))
        return [Launch("", one, one.arms[0]) for one in run.records]

    regressed = Verdict(decision.REGRESSED)
    base = launches_of(2e12, 8e14)
    for head, cause in (
        (launches_of(1e12, 7e14), "the code or the shape that each run chose: of 14.3 % in time"),
        (launches_of(2e12, 7e14), "the code: of 14.3 % in time"),
    ):
        found = attribution(base, head, regressed)
        assert found is not None
        assert found.cause.startswith(cause)


def test_the_time_over_the_baseline_s_has_no_cause_in_times_of_unequal_work(tmp_path: Path) -> None:
    def made(size: int, seed: int) -> list[Json]:
        cost = {"flops": 1e6 * size}
        some = [
            sample.arm("slow", 1e-6 * size, cost=cost, **QUIET),
            sample.arm("x", 5e-7 * size, cost=cost, **QUIET),
        ]
        notes = {"iterations": str(size)}
        return sample.launches(3, "a/b", {"n": 1}, some, seed=seed, notes=notes)

    sides = [
        [
            read_run(sample.write(tmp_path / str(10 * seed + n), made(size + n, 10 * seed + n)))
            for n in (0, 1)
        ]
        for seed, size in ((1, 2000), (2, 1900))
    ]
    (found,) = [one for one in compare(sides[0], sides[1]).rows if one.arm == "x"]
    lines = explain(found.base, found.head, found.verdict, "run")
    assert "Attribution" not in "".join(lines)
    (values,) = [line for line in lines if "one value per run" in line]
    assert values == (
        "Independent launches: one value per run: base 0.500, 0.500; head 0.500, 0.500 (time over"
        " the baseline's: each run found the size of its work itself)"
    )


def test_work_over_time_is_shown_where_the_record_counts_it(tmp_path: Path) -> None:
    cost: Json = {"bytes": 1e9, "flops": 2e9}
    found = row(tmp_path, records(1, cost=cost), records(2, step_s=2e-3, cost=cost))
    lines = "\n".join(explain(found.base, found.head, found.verdict))
    assert (
        "bytes that a step needs, over its time: 1.00 TB/s in base, 500 GB/s in head (-50" in lines
    )
    assert (
        "arithmetic that a step needs, over its time: 2.00 TFLOP/s in base, 1.00 TFLOP/s" in lines
    )
    without = row(tmp_path / "without", records(1), records(2, step_s=2e-3))
    assert not [
        line
        for line in explain(without.base, without.head, without.verdict)
        if "over its time" in line
    ]


def test_numbers_of_the_measures_are_in_si_units(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2, step_s=1.05e-3))
    attributed = attribution(found.base, found.head, found.verdict)
    assert attributed is not None
    numbers = {one.name: (one.unit, one.base, one.head) for one in attributed.measures}
    unit, base, head = numbers["SM clock cycles of a step"]
    assert unit == "cycles"
    assert (base, head) == pytest.approx((1.98e6, 1.05 * 1.98e6), rel=1e-3)
    assert numbers["SM clock"][0] == "Hz"
    assert numbers["SM clock"][1:] == pytest.approx((1.98e9, 1.98e9))
    assert attributed.head_throttle.reasons == ("sw_power_cap",)


def test_throttling_that_was_not_read_is_not_taken_for_none(tmp_path: Path) -> None:
    made = [records(1), records(2)]
    for one in made[0]:
        del one["telemetry"]["throttle"]
    made[1][0]["telemetry"]["throttle"] = []
    found = row(tmp_path, *made)
    lines = explain(found.base, found.head, found.verdict)
    launches = [line for line in lines if "Launch v" in line]
    for line, words in zip(launches, ["not read"] * 3 + ["none seen"], strict=False):
        assert f"; throttle {words};" in line
    assert "Attribution: throttle in base: not read" in lines
    attributed = attribution(found.base, found.head, found.verdict)
    assert attributed is not None
    assert attributed.data["throttle"] == {"base": None, "head": ["sw_power_cap"]}


def test_throttling_read_in_some_launches_only_is_said_of_those(tmp_path: Path) -> None:
    made = [records(1), records(2)]
    for one in (made[0][1], made[1][1]):
        del one["telemetry"]["throttle"]
    for one in (made[0][0], made[0][2]):
        one["telemetry"]["throttle"] = []
    found = row(tmp_path, *made)
    attributed = attribution(found.base, found.head, found.verdict)
    assert attributed is not None
    assert attributed.lines[-2:] == [
        "throttle in base: none seen, not read in 1 of 3 launches",
        "throttle in head: sw_power_cap, not read in 1 of 3 launches",
    ]
    assert attributed.data["throttle"] == {"base": None, "head": ["sw_power_cap"]}


def test_nothing_is_attributed_to_a_side_that_is_not_there(tmp_path: Path) -> None:
    found = row(tmp_path, records(1), records(2))
    assert attribution(found.base, (), found.verdict) is None
    lines = explain((), (), Verdict(decision.SKIPPED, reason="base: no GPU"))
    assert lines == ["Verdict: skipped: base: no GPU"]


def test_the_command_explains_from_comparability_to_the_verdict(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    row(tmp_path, records(1), records(2, step_s=1.05e-3))
    folders = [str(tmp_path / name) for name in ("base", "head")]
    assert cli.main(["compare", *folders, "--explain", "N:1/X"]) == FAILED
    shown = capfd.readouterr().out
    assert shown.startswith("a/b/n:1/x: regressed\n  Comparability: ")
    assert all(section(line.removeprefix("  ")) for line in shown.splitlines()[1:])
    assert "Independent launches: one value per launch: base 1.00 ms, " in shown
    assert "Attribution: the code" in shown
