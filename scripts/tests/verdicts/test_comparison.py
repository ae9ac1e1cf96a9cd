"""`gpulift compare`: rows, units, verdicts, refusals and exit codes, on simulated clocks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulift import cli
from gpulift.ground.errors import (
    FAILED,
    INCONCLUSIVE,
    INSTRUMENT_BROKEN,
    NOT_COMPARABLE,
    NOTHING_RAN,
    OK,
    USAGE,
    GpuliftError,
)
from gpulift.records.read import Run, read_results, read_run
from gpulift.verdicts import comparison_table, decision, table
from gpulift.verdicts.comparison import ArmPair, Comparison, compare, values
from gpulift.verdicts.decision import EQUIVALENT, ERROR, IMPROVED, REGRESSED, SKIPPED
from gpulift.verdicts.hardware import slowed_by_hardware
from gpulift.verdicts.row import OPEN, Row
from tests import runs_made, sample
from tests.sample import Json

QUIET: Json = {"noise": 1e-4, "launch_noise": 1e-4}
CASE = {"n": 1}
TOLD = decision.INCONCLUSIVE
SLOWED = "the hardware slowed itself down in every block: nothing can be said"


def arms(factor: float = 1.0) -> list[Json]:
    """Two quiet arms; the second takes `factor` times as long."""
    return [sample.arm("slow", 2e-3, **QUIET), sample.arm("fast", 1e-3 * factor, **QUIET)]


def records(factor: float = 1.0, seed: int = 1, count: int = 4, **more: Any) -> list[Json]:
    return sample.launches(count, "a/b", CASE, arms(factor), seed=seed, **more)


def other_case(seed: int) -> list[Json]:
    return sample.launches(4, "c/d", CASE, arms(), seed=seed)


def runs(folder: Path, *made: Sequence[Json]) -> list[Run]:
    """A run of each list of records."""
    return [read_run(sample.write(folder / str(n), one)) for n, one in enumerate(made)]


def compared(
    tmp_path: Path, base: Sequence[Json], head: Sequence[Json], *more: Any, **asked: Any
) -> Comparison:
    """Of two runs."""
    return compare(runs(tmp_path / "base", base), runs(tmp_path / "head", head), *more, **asked)


def refused(tmp_path: Path, base: Sequence[Json], head: Sequence[Json]) -> GpuliftError:
    with pytest.raises(GpuliftError) as caught:
        compared(tmp_path, base, head)
    assert "\n" not in str(caught.value)
    return caught.value


def verdicts(made: Comparison) -> dict[str, str]:
    return {row.arm: row.verdict.verdict for row in made.rows}


def pair(made: Comparison, arm: str) -> ArmPair:
    return next(one for one in made.rows if one.arm == arm)


def rows(made: Comparison) -> dict[str, Row]:
    return {row.subject: row for row in comparison_table.table(made).rows}


def document(made: Comparison) -> Json:
    found: Json = json.loads(table.FORMS["json"](comparison_table.table(made)))
    return found


def launches(made: Comparison, arm: str = "fast") -> tuple[int, int]:
    difference = pair(made, arm).verdict.difference
    assert difference is not None
    return difference.base_launches, difference.head_launches


# --- Verdicts ---


@pytest.mark.parametrize("technique", ["a/b", "ceiling/x"])
@pytest.mark.parametrize(
    ("factor", "verdict", "code"),
    [(1.0, EQUIVALENT, OK), (1.03, REGRESSED, FAILED), (0.97, IMPROVED, OK)],
)
def test_only_the_arm_that_changed_gets_another_verdict(
    tmp_path: Path, technique: str, factor: float, verdict: str, code: int
) -> None:
    base = sample.launches(4, technique, CASE, arms(), seed=1)
    head = sample.launches(4, technique, CASE, arms(factor), seed=2)
    made = compared(tmp_path, base, head)
    assert verdicts(made) == {"slow": EQUIVALENT, "fast": verdict}
    assert (made.exit_code, made.family, made.unit) == (code, 2, "launch")
    assert pair(made, "fast").change == pytest.approx(factor - 1, abs=5e-4)
    assert launches(made) == (4, 4), "not windows"


@pytest.mark.parametrize(("quiet", "code"), [(0, INCONCLUSIVE), (9, OK)])
def test_more_than_a_tenth_inconclusive_is_exit_5(tmp_path: Path, quiet: int, code: int) -> None:
    def made(seed: int) -> list[Json]:
        noisy = sample.launches(
            3, "a/b", {"n": 9}, [sample.arm("x", 1e-3, launch_noise=0.1)], seed=seed
        )
        for n in range(quiet):
            noisy += sample.launches(3, "a/b", {"n": n}, arms()[:1], seed=seed)
        return noisy

    found = compared(tmp_path, made(1), made(2))
    assert found.counts[TOLD] == 1
    assert found.exit_code == code
    effect = pair(found, "x").verdict.smallest_effect
    assert effect is not None
    assert effect > 0.05


def test_worst_rows_come_first(tmp_path: Path) -> None:
    def made(seed: int, factors: Sequence[float]) -> list[Json]:
        some = [sample.arm(f"arm{n}", 1e-3 * f, **QUIET) for n, f in enumerate(factors)]
        return sample.launches(4, "a/b", CASE, some, seed=seed)

    found = compared(tmp_path, made(1, [1, 1, 1, 1]), made(2, [1.02, 0.9, 1.2, 1]))
    assert [one.arm for one in found.rows] == ["arm2", "arm0", "arm1", "arm3"]


# --- Units ---


def test_one_launch_is_inconclusive_however_many_windows(tmp_path: Path) -> None:
    found = compared(tmp_path, records(count=1, blocks=99), records(1.5, seed=2, blocks=99))
    assert set(verdicts(found).values()) == {TOLD}
    fast = pair(found, "fast")
    assert fast.verdict.difference is None, "never an interval from windows"
    assert "launches: 1 in base, 4 in head" in fast.verdict.reason
    assert fast.change == pytest.approx(0.5, abs=0.01)
    assert found.exit_code == INCONCLUSIVE


def of_runs(folder: Path, shifts: Sequence[float]) -> list[Run]:
    made = (records(1 + shift, 100 * n + len(folder.name)) for n, shift in enumerate(shifts))
    return runs(folder, *made)


def test_with_two_runs_on_both_sides_the_unit_is_the_run(tmp_path: Path) -> None:
    base, head = (of_runs(tmp_path / side, [0.0, 0.02]) for side in ("base", "other"))
    found = compare(base, head)
    assert found.unit == "run"
    fast = pair(found, "fast")
    assert fast.verdict.verdict == TOLD, "runs vary more than their launches"
    assert launches(found) == (2, 2)
    first, second = values(fast.base, "run")
    assert second - first == pytest.approx(0.0198, abs=1e-3)
    assert compare(base[:1], head).unit == "launch"


def gpu(card: str, name: str = "NVIDIA H200") -> Json:
    return sample.gpu_context(gpu={"card": card, "name": name})


def of_cards(folder: Path, shifts: Sequence[float], model: str = "NVIDIA H200") -> list[Run]:
    """Runs of so many cards of one model, each of which is slower by its shift."""
    salt = len(folder.name)
    made = (
        records(1 + shift, 10 * n + salt, context=gpu(f"{n}{salt}", model))
        for n, shift in enumerate(shifts)
    )
    return runs(folder, *made)


@pytest.mark.parametrize(
    ("base", "head", "models", "unit", "verdict", "count"),
    [
        ([0], [-0.5], True, "card", TOLD, "two single cards never stand for two models"),
        ([0, 0, 0], [-0.5, -0.5, -0.5], True, "card", IMPROVED, 3),
        ([0, 0.02, 0.04], [0.01], False, "card", TOLD, "cards: 3 in base, 1 in head: one card is"),
        ([0, 0.02, 0.04], [0.02, 0.04, 0.06], False, "card", TOLD, 3),
        ([0, 0.02, 0.04], [0.6, 0.62, 0.64], False, "card", REGRESSED, 3),
        ([0], [0.02], False, "launch", REGRESSED, 4),
    ],
)
def test_across_cards_and_models_the_card_is_what_counts_where_a_side_has_several(
    tmp_path: Path,
    base: list[float],
    head: list[float],
    models: bool,
    unit: str,
    verdict: str,
    count: int | str,
) -> None:
    sides = (
        of_cards(tmp_path / "base", base),
        of_cards(tmp_path / "others", head, "NVIDIA L4" if models else "NVIDIA H200"),
    )
    found = compare(*sides, "gpu-model" if models else "card")
    assert (found.unit, pair(found, "fast").verdict.verdict) == (unit, verdict)
    if isinstance(count, str):
        assert count in found.rows[0].verdict.reason
    else:
        assert launches(found)[0] == count
    if not models:
        begin = "does this one card differ from that one? Of other cards it tells nothing"
        many = f"do the cards of which head is a sample ({len(head)}) differ from those of base"
        assert found.question.startswith(many if unit == "card" else begin)
        assert found.question in "\n".join(table.lines(comparison_table.table(found)))
        assert document(found)["question"] == found.question
        assert found.question in "\n".join(rows(found)["a/b/n:1/fast"].steps())


def test_several_runs_of_a_card_are_one_value(tmp_path: Path) -> None:
    base = of_cards(tmp_path / "A", [0, 0])
    again = records(1.1, 77, context=base[0].records[0].raw["context"])
    base += runs(tmp_path / "again", again)
    found = compare(base, of_cards(tmp_path / "BB", [0, 0], "NVIDIA L4"), "gpu-model")
    fast = pair(found, "fast").base
    assert len(fast) == 12
    assert [round(value + 6.9078, 2) for value in values(fast, "card")] == [0.05, 0.0]


def test_cards_without_a_known_hash_are_counted_as_the_table_counts_them(tmp_path: Path) -> None:
    base, head = (
        runs(tmp_path / model, records(seed=s, context=gpu("", model)))
        for s, model in enumerate(("NVIDIA A100", "NVIDIA H200"))
    )
    found = compare(base, head, "gpu-model")
    assert "1 and 1 of their cards" in found.question
    assert "cards: 1 in base, 1 in head" in found.rows[0].verdict.reason


# --- Work of which each run found the size ---


def of_size(size: int, worth: float = 2.0, seed: int = 1, **more: Any) -> list[Json]:
    """Launches of `size` rounds, in a time that grows with them; `fast` is `worth` so much."""
    cost = {"bytes": 1e6, "flops": 2e6 * size}
    some = [
        sample.arm("slow", 1e-6 * size, cost=cost, **QUIET),
        sample.arm("fast", 1e-6 * size / worth, cost=cost, **QUIET),
    ]
    notes = {"iterations": str(size), "copy_alone_us": str(seed)}
    return sample.launches(4, "a/b", CASE, some, seed=seed, **{"notes": notes, **more})


def test_one_run_a_side_leaves_work_of_its_own_size_out_and_judges_the_rest(tmp_path: Path) -> None:
    head = [*of_size(1900, seed=2), *other_case(2)]
    found = compared(tmp_path / "one", [*of_size(2000), *other_case(1)], head)
    assert [(one.technique, one.verdict.verdict) for one in found.rows] == [
        *[("c/d", EQUIVALENT)] * 2,
        *[("a/b", SKIPPED)] * 2,
    ]
    assert found.rows[-1].verdict.reason == (
        "each run found the size of its work itself (operations per step 4000000000, then"
        " 3800000000): two runs or more of each side would show what its arms are worth"
    )
    assert found.exit_code == OK
    same = compared(tmp_path / "same", of_size(2000), of_size(2000, seed=2))
    assert verdicts(same) == {"slow": EQUIVALENT, "fast": EQUIVALENT}
    error = refused(tmp_path / "alone", of_size(2000), of_size(1900, seed=2))
    assert error.exit_code == NOT_COMPARABLE
    assert "a/b/n:1/slow and 1 more: each run found the size of its work itself" in str(error)


def of_own_sizes(
    folder: Path, sizes: Sequence[int], changes: Sequence[Json] = ({}, {})
) -> list[Run]:
    """Runs of these sizes; `changes` are of the two arms, `items` of their costs."""
    every = []
    for size in sizes:
        made = of_size(size, seed=size)
        for record in made:
            for one, change in zip(record["arms"], changes, strict=True):
                one["cost"] |= {key: change[key] for key in change.keys() & {"bytes", "items"}}
                one["role"] = change.get("role", one["role"])
        every.append([*made, *other_case(size)])
    return runs(folder / str(sizes[0]), *every)


def test_nothing_is_compared_over_a_baseline_of_another_work_or_of_none(tmp_path: Path) -> None:
    base = of_own_sizes(tmp_path, (2000, 2040))
    head = of_own_sizes(tmp_path, (1900, 1930), ({"bytes": 2e6}, {}))
    fast = next(one for one in compare(base, head, common=True).rows if one.arm == "fast")
    assert (fast.technique, fast.verdict.verdict) == ("c/d", EQUIVALENT)
    row = rows(compare(base, head, common=True))["a/b/n:1/fast"]
    assert row.verdict == SKIPPED
    assert row.reason.startswith("another work of its baseline: ")
    none, none_too = (
        of_own_sizes(tmp_path / "none", sizes, ({"role": "technique"}, {}))
        for sizes in ((2000, 2040), (1900, 1930))
    )
    with pytest.raises(GpuliftError, match="not one baseline: none"):
        compare(none, none_too)
    odd, odd_too = (
        of_own_sizes(tmp_path / "odd", sizes, ({"items": -0.5}, {"items": -1.0}))
        for sizes in ((2000, 2040), (1900, 1930))
    )
    found = document(compare(odd, odd_too))["rows"]
    assert {one["verdict"] for one in found if one["technique"] == "c/d"} == {EQUIVALENT}


@pytest.mark.parametrize(
    ("worth", "verdict"),
    [
        ((2.0, 2.0, 2.0), EQUIVALENT),
        ((1.5, 1.5, 1.5), REGRESSED),
        ((2.0, 1.9, 1.8), TOLD),
    ],
)
def test_with_several_runs_what_its_arms_are_worth_is_compared(
    tmp_path: Path, worth: Sequence[float], verdict: str
) -> None:
    base = runs(tmp_path / "base", *(of_size(2000 + 40 * n, seed=n) for n in range(1, 4)))
    of_head = (of_size(1500 + 30 * n, one, seed=10 + n) for n, one in enumerate(worth))
    found = compare(base, runs(tmp_path / "head", *of_head))
    assert verdicts(found) == {"slow": SKIPPED, "fast": verdict}
    assert pair(found, "slow").verdict.reason.endswith("the other arms are held against it")
    row = rows(found)["a/b/n:1/fast"]
    assert row.note.startswith("time over the baseline's: each run found the size")
    assert row.data()["measure"] == row.note
    change = 2.0 / np.exp(np.mean(np.log(worth))) - 1
    assert row.data()["change"] == pytest.approx(change, abs=1e-3), "and not of the time"


@pytest.mark.parametrize(
    "change",
    [
        {"arms.1.cost.flops": 3e9},
        {"arms.1.cost.bytes": 2e6},
        {"arms.1.check_tolerance": 0.1},
        {"notes": {"iterations": "many"}},
        {"notes": {"iterations": "9" * 5000}},
        {"notes": {}},
        {"regime": "sustained"},
    ],
)
def test_work_that_differs_in_more_than_its_size_is_another(tmp_path: Path, change: Json) -> None:
    head = of_size(1900, seed=2)
    for one in head:
        for path, value in change.items():
            *parents, last = path.split(".")
            inner: Any = one
            for parent in parents:
                inner = inner[int(parent) if parent.isdecimal() else parent]
            inner[last] = value
    text = str(refused(tmp_path, [*of_size(2000), *other_case(1)], [*head, *other_case(2)]))
    assert "/fast: another work: " in text or "/slow and 1 more: another work: " in text


def test_the_largest_batch_that_fits_is_of_its_own_size_per_item(tmp_path: Path) -> None:
    def made(batch: int, seed: int) -> list[Json]:
        def cost(items: int) -> Json:
            return {"flops": 5e9 * items, "items": float(items)}

        some = [
            sample.arm("fp32", 64e-3, cost=cost(64), **QUIET),
            sample.arm("bf16", 2e-4 * batch, cost=cost(batch), **QUIET),
        ]
        notes = {"largest_batch_fp32": "64", "largest_batch_bf16": str(batch)}
        return sample.launches(4, "a/b", CASE, some, seed=seed, notes=notes)

    base = runs(tmp_path / "a", made(278, 10), made(279, 11))
    found = compare(base, runs(tmp_path / "b", made(279, 20), made(281, 21)))
    assert verdicts(found) == {"fp32": EQUIVALENT, "bf16": EQUIVALENT}
    assert [pair(found, arm).own_size for arm in ("fp32", "bf16")] == [False, True]


# --- Cases that are not alike ---


def with_second_arm(change: Json) -> list[Json]:
    made = records(seed=2)
    for one in made:
        one["arms"][1] |= change
    return made


@pytest.mark.parametrize(
    ("head", "words", "common"),
    [
        ([*records(seed=2), *sample.launches(4, "a/b", {"n": 2}, arms(), seed=2)],
         "a/b/n:2: only in head; --common compares the rest", {"fast": EQUIVALENT, "": SKIPPED}),
        (sample.launches(4, "a/b", CASE, [*arms(), sample.arm("new", 1e-3)], seed=2),
         "a/b/n:1/new: only in head", {"fast": EQUIVALENT, "new": SKIPPED}),
        (sample.launches(2, "c/d", CASE, arms()), "no case in common", None),
        (records(seed=2, regime="sustained"), "another work: regime burst, then sustained", None),
        (records(seed=2, check={"meaning": "close"}),
         "another work: check exact bytes, then close", None),
        (with_second_arm({"cost": {"bytes": 0.0, "flops": 2e12, "items": 1.0}}),
         "operations per step 0, then 2000", {"slow": EQUIVALENT, "fast": SKIPPED}),
        (with_second_arm({"check_tolerance": 0.1}), "check tolerance 0, then 0.1",
         {"slow": EQUIVALENT, "fast": SKIPPED}),
        (with_second_arm({"clock": "host"}), "clock device, then host",
         {"slow": EQUIVALENT, "fast": SKIPPED}),
    ],
)  # fmt: skip
def test_what_is_not_alike_is_named_and_left_out_where_that_is_asked(
    tmp_path: Path, head: list[Json], words: str, common: dict[str, str] | None
) -> None:
    error = refused(tmp_path / "without", records(), head)
    assert error.exit_code == NOT_COMPARABLE
    assert words in str(error)
    if common is None:
        with pytest.raises(GpuliftError, match="nothing is left to compare"):
            compared(tmp_path, records(), head, common=True)
        return
    found = compared(tmp_path, records(), head, common=True)
    assert verdicts(found).items() >= common.items()
    assert found.exit_code == OK


def roof(size: float, rate: float, seed: int) -> list[Json]:
    """A ceiling that chose a shape of so many operations."""
    one = sample.arm("bf16", size / rate, cost={"flops": size, "roof": "gemm/bf16"}, **QUIET)
    return sample.launches(4, "ceiling/gemm", CASE, [one], seed=seed, ceiling=True)


@pytest.mark.parametrize(
    ("size", "rate", "verdict"),
    [
        (4e12, 8e14, EQUIVALENT),
        (4e12, 7.7e14, TOLD),
        (1e12, 7.7e14, REGRESSED),
        (4e12, 7e14, REGRESSED),
    ],
)
def test_a_small_change_between_two_shapes_of_a_roof_is_not_told(
    tmp_path: Path, size: float, rate: float, verdict: str
) -> None:
    found = compared(tmp_path, roof(1e12, 8e14, 1), roof(size, rate, 2))
    (one,), row = found.rows, rows(found)["ceiling/gemm/n:1/bf16"]
    assert one.verdict.verdict == verdict
    assert row.data()["measure"] == one.quantity == "time of one operation"
    if verdict == TOLD:
        assert row.reason.startswith("each run chose the shape of its steps itself")
        assert one.verdict.path[-1] == f"Verdict: inconclusive: {row.reason}"
        assert row.smallest_effect == 0.1
        assert found.exit_code == INCONCLUSIVE


def test_several_runs_of_a_roof_show_what_shapes_make(tmp_path: Path) -> None:
    base, head = (
        runs(tmp_path / side, *(roof(size, rate * (1 + seed * 1e-4), seed) for seed, size in made))
        for side, rate, made in (
            ("base", 8e14, [(0, 1e12), (2, 4e12), (4, 4e12)]),
            ("head", 7e14, [(1, 1e12), (3, 4e12), (5, 4e12)]),
        )
    )
    found = compare(base, head)
    assert (found.unit, verdicts(found)) == ("run", {"bf16": REGRESSED})


@pytest.mark.parametrize("cost", [None, {"bytes": 1e9, "roof": "device_memory"}])
def test_operations_are_not_compared_with_bytes_or_steps(tmp_path: Path, cost: Json | None) -> None:
    one = sample.arm("bf16", 1e-3, **({"cost": cost} if cost else {}), **QUIET)
    other = sample.launches(4, "ceiling/gemm", CASE, [one], seed=2, ceiling=True)
    said = str(refused(tmp_path, roof(1e12, 1e15, 1), other))
    assert "kind of work operation, then " in said


@pytest.mark.parametrize(
    ("technique", "cost", "words"),
    [
        ("ceiling/gemm", {"flops": 1e9, "roof": "gemm/bf16"}, "by the time of one operation"),
        ("ceiling/host", {"flops": 1e9, "roof": "host_gemm/fp32"}, "by the time of one operation"),
        ("ceiling/memory", {"bytes": 1e3, "roof": "device_memory"}, "by the time of one byte"),
        ("ceiling/launch", {"items": 100.0}, "times of a step"),
        ("ceiling/much", {"flops": 1e30, "roof": "gemm/bf16"}, "by the time of one operation"),
        ("a/b", {"flops": 1e9, "roof": "gemm/bf16"}, "times of a step"),
    ],
)
def test_steps_name_the_unit_of_the_launch_values(
    tmp_path: Path, technique: str, cost: Json, words: str
) -> None:
    one = sample.arm("best", 1e-3, cost=cost, **QUIET)
    sides = [
        sample.launches(
            4, technique, CASE, [one], seed=seed, ceiling=technique.startswith("ceiling/")
        )
        for seed in (1, 2)
    ]
    (row,) = rows(compared(tmp_path, *sides)).values()
    (line,) = [line for line in row.steps() if "one value per launch" in line]
    assert f" ({words}" in line


# --- Launches without a value ---


def unmeasured(outcome: str, reason: str, *launches: int, **more: Any) -> list[Json]:
    return [sample.unmeasured("a/b", CASE, outcome, reason, launch=n, **more) for n in launches]


OUT_OF_MEMORY = unmeasured("skipped", "out of memory", 0, 1)
WITH_FP8 = [*arms(), sample.skipped_arm("fp8", "no FP8 here")]


@pytest.mark.parametrize(
    ("base", "head", "verdict", "reason", "code"),
    [
        (OUT_OF_MEMORY, records(seed=2), SKIPPED, "base: out of memory", OK),
        (records(), OUT_OF_MEMORY, SKIPPED, "head: out of memory", OK),
        (records(), [*records(seed=2), *unmeasured("failed", "SIGSEGV", 4)], ERROR,
         "head failed: SIGSEGV", FAILED),
        (records(), [*records(seed=2), *unmeasured("error", "SIGSEGV", 4)], ERROR,
         "head error: SIGSEGV", FAILED),
        ([*records(), *unmeasured("error", "timeout", 4)], records(seed=2), SKIPPED,
         "no base: error: timeout", OK),
    ],
)  # fmt: skip
def test_a_launch_without_a_value_says_why_and_on_which_side(
    tmp_path: Path, base: list[Json], head: list[Json], verdict: str, reason: str, code: int
) -> None:
    found = compared(tmp_path, [*base, *other_case(1)], [*head, *other_case(2)])
    of_case = [one for one in found.rows if one.technique == "a/b"]
    assert {one.arm for one in of_case} == {"slow", "fast"}
    assert {(one.verdict.verdict, one.verdict.reason) for one in of_case} == {(verdict, reason)}
    assert found.exit_code == code
    if verdict == SKIPPED:
        alone = compared(tmp_path / "alone", base, head)
        assert alone.exit_code == NOTHING_RAN, "nothing was compared"


def test_an_arm_skipped_on_both_sides_for_one_reason_says_it_once(tmp_path: Path) -> None:
    made = [sample.launches(4, "a/b", CASE, WITH_FP8, seed=seed) for seed in (1, 2)]
    row = rows(compared(tmp_path, *made))["a/b/n:1/fp8"]
    assert row.reason == "base and head: no FP8 here"


# --- The instrument ---


@pytest.mark.parametrize("name", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"])
def test_a_case_that_the_hardware_slowed_in_every_launch_breaks_the_instrument(
    tmp_path: Path, name: str
) -> None:
    head = records(seed=2)
    for one in head:
        one["telemetry"]["throttle"] = ["sw_power_cap", name]
    error = refused(tmp_path, records(), head)
    assert error.exit_code == INSTRUMENT_BROKEN
    assert "every launch of a/b/n:1 in head" in str(error)
    head[0]["telemetry"]["throttle"] = ["sw_power_cap"]
    assert compared(tmp_path / "less", records(), head).exit_code == OK


@pytest.mark.parametrize("side", [0, 1])
def test_launches_of_which_the_hardware_left_nothing_break_the_instrument(
    tmp_path: Path, side: int
) -> None:
    empty = unmeasured("failed", SLOWED, 4, discarded_blocks=9)
    sides = [records(), records(seed=2)]
    sides[side] += empty
    error = refused(tmp_path, *sides)
    assert error.exit_code == INSTRUMENT_BROKEN
    where = ("base", "head")[side]
    assert f"every block of 1 of 5 launches of a/b/n:1 in {where}: nothing" in str(error)
    sides[side] = empty
    assert refused(tmp_path / "all", *sides).exit_code == INSTRUMENT_BROKEN


def test_a_failed_check_and_a_power_cap_are_no_slow_down(tmp_path: Path) -> None:
    bad = unmeasured("failed", "arm fast: error 0.3", 4)
    assert compared(tmp_path / "x", records(), [*records(seed=2), *bad]).exit_code == FAILED
    sample.write(tmp_path, records(discarded_blocks=3))
    assert not any(slowed_by_hardware(one) for one in read_run(tmp_path).records)


# --- What is read ---


def test_a_record_counts_once(tmp_path: Path) -> None:
    error = refused(tmp_path, records(), records())
    assert error.exit_code == USAGE
    assert "is the same record as" in str(error)
    (base,), head = runs(tmp_path / "base", records()), runs(tmp_path / "head", records(seed=2))
    with pytest.raises(GpuliftError, match="a launch counts once"):
        compare([base, base], head)


def test_duets_are_not_part_and_a_set_of_duets_says_what_to_use(tmp_path: Path) -> None:
    error = refused(tmp_path, runs_made.duet(), records())
    assert error.exit_code == USAGE
    assert "base records are all duets: name one RUN alone" in str(error)
    made = compared(tmp_path / "mixed", [*records(), *runs_made.duet()], records(seed=2))
    assert {one.technique for one in made.rows} == {"a/b"}
    assert "base: 10 duet records are not part of this" in made.notes


def test_of_one_launch_twice_the_later_counts_and_a_line_that_was_cut_off_not(
    tmp_path: Path,
) -> None:
    again = sample.record("a/b", CASE, arms(1.0), 0, seed=9)
    (base,) = runs(tmp_path / "base", [*records(), again])
    head = sample.write(tmp_path / "head", records(seed=2))
    file = head / "a.b.jsonl"
    file.write_bytes(file.read_bytes()[:-500])
    made = compare([base], read_results([head]))
    assert (len(pair(made, "fast").base), len(pair(made, "fast").head)) == (4, 3)
    assert any("replaces line 1" in note for note in made.notes)
    assert any("cut off" in note for note in made.notes)
    assert again["arms"][0]["windows"]["device_s"][0] in {
        time for one in pair(made, "slow").base for time in one.arm.windows.device_s
    }


def test_minor_schemas_may_be_mixed(tmp_path: Path) -> None:
    newer = records(seed=2, schema="1.7", context=sample.gpu_context(host={"numa_nodes": 2}))
    made = compared(tmp_path, records(schema="1.0"), newer)
    assert made.exit_code == OK
    assert made.notes == ("host.numa_nodes is known on one side only: not compared",)


def test_a_clock_that_was_set_back_changes_no_verdict(tmp_path: Path) -> None:
    head = records(1.03, seed=2)
    expected = compared(tmp_path / "before", records(), head)
    for launch, one in enumerate(head):
        one["started_at"] = f"2026-11-20T04:00:{50 - launch:02d}Z"
        for arm in one["arms"]:
            count = len(arm["windows"]["device_s"])
            arm["windows"]["start_s"] = [float(count - index) for index in range(count)]
    made = compared(tmp_path / "after", records(), head)
    assert [one.verdict for one in made.rows] == [one.verdict for one in expected.rows]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ({"dirty": True}, "was built from uncommitted changes: its commit"),
        ({"commit": "unknown"}, "was built from an unknown commit: its commit"),
        ({"commit": ""}, "was built from an unknown commit: its commit"),
    ],
)
def test_builds_whose_commit_does_not_tell_their_code_are_told(
    tmp_path: Path, build: dict[str, object], words: str
) -> None:
    context = sample.gpu_context(build=build)
    made = compared(tmp_path, records(context=context), records(seed=2, context=context))
    assert sum(words in note for note in made.notes) == 2


# --- Another source ---


def in_environment(schema: str = "1.7", seed: int = 1, **variables: str) -> list[Json]:
    made = records(seed=seed, schema=schema)
    for one in made:
        if variables:
            one["arms"][1]["environment"] = variables
    return made


A, B = ({"b.py": 64 * letter, "b.cpp": 64 * "c"} for letter in "ab")
OTHER_COMMIT = sample.gpu_context(build={"commit": "fedcba9"})
MAY = "measured work may differ: a/b"


@pytest.mark.parametrize(
    ("base", "head", "across", "said"),
    [
        (records(source=A), records(seed=2, source=B), None, f"{MAY} (b.py)"),
        (records(source=A), records(seed=2, source=B, context=OTHER_COMMIT), "commit",
         "comes with the commit: a/b (b.py)"),
        (records(source=A), records(seed=2, source=A), None, ""),
        (records(source=A), records(seed=2), None, ""),
        (records(source=A, schema="1.13"), records(seed=2, source=B, schema="1.14"), None,
         f"{MAY} (files, which records hash otherwise since schema 1.14)"),
        (in_environment(NCCL_ALGO="Ring"), in_environment(seed=2, NCCL_ALGO="Tree"), None,
         f"{MAY} (NCCL_ALGO of fast: Ring, then Tree)"),
        (in_environment("1.6"), in_environment(seed=2, NCCL_ALGO="Tree"), None, ""),
        (in_environment("1.7"), in_environment(seed=2, NCCL_ALGO="Tree"), None,
         f"{MAY} (NCCL_ALGO of fast: not set, then Tree)"),
    ],
)  # fmt: skip
def test_another_source_or_environment_is_told_and_compared(
    tmp_path: Path, base: list[Json], head: list[Json], across: str | None, said: str
) -> None:
    made = compared(tmp_path, base, head, across)
    assert made.work_lines == ([said] if said else [])
    assert made.family == 2
    shown = list(table.lines(comparison_table.table(made)))
    assert not said or said in shown
    steps = rows(made)["a/b/n:1/fast"].steps()
    assert any("Comparability: the work may differ: " in step for step in steps) == bool(said)
    assert document(made)["work"].keys() == ({"a/b"} if said else set())


# --- As a table ---


def test_json_is_deterministic_and_holds_every_figure(tmp_path: Path) -> None:
    made = [compared(tmp_path / str(n), records(), records(1.03, seed=2)) for n in (0, 1)]
    data, again = map(document, made)
    assert data == again
    assert (data["exit_code"], data["unit"], data["family"]) == (FAILED, "launch", 2)
    assert (data["stats_method"], data["decision_method"]) == ("1", decision.DECISION_METHOD)
    worst = data["rows"][0]
    assert worst["low"] < worst["change"] < worst["high"]
    assert worst["units"] == [4, 4]
    assert [one["windows"] for one in worst["base"]] == [16] * 4
    assert [one["citation"].rpartition("/")[2] for one in worst["base"]] == [
        one["record"] for one in worst["base"]
    ]
    assert {one["file"] for one in worst["base"]} == {"a.b.jsonl"}, "wherever the run lies"
    assert [one["line"] for one in worst["base"]] == [1, 2, 3, 4]
    assert worst["path"][-1] == "Verdict: regressed"
    logs = worst["unit_logs"]
    assert [len(logs[side]) for side in ("base", "head")] == [4, 4]
    assert np.mean(logs["head"]) - np.mean(logs["base"]) == pytest.approx(worst["log_mean"])
    attributed = worst["attribution"]
    lines = [one for one in rows(made[0])["a/b/n:1/fast"].steps() if "Attribution" in one]
    for name in (one["name"] for one in attributed["measures"]):
        assert any(name in line for line in lines)
    assert len(lines) == len(attributed["measures"]) + 2 + bool(attributed["cause"])


def test_json_of_what_is_not_known_is_null(tmp_path: Path) -> None:
    base = records(count=1)
    del base[0]["telemetry"]["throttle"]
    row = document(compared(tmp_path, base, records(seed=2)))["rows"][0]
    assert [row[key] for key in ("low", "units", "smallest_effect")] == [None] * 3
    assert [one["throttle"] for one in (*row["base"], row["head"][0])] == [None, ["sw_power_cap"]]


def noisy(seed: int, noise: float) -> list[Json]:
    made = [sample.arm(f"arm{n}", 1e-3, launch_noise=noise, noise=1e-4) for n in range(4)]
    return sample.launches(3, "a/b", CASE, made, seed=seed)


@pytest.mark.parametrize(
    ("noise", "told"),
    [
        (0.03, r"(\d+) launches a side would tell 5 % in 3 of them: measure both with --launches"),
        (0.005, r"(\d+) launches a side would tell 2 % in 3 of them: measure both with --launches"),
        (1.0, r"(32) launches a side would not tell 20 % in most"),
    ],
)
def test_what_could_not_be_told_is_a_count_and_how_many_launches_would_tell_it(
    tmp_path: Path, noise: float, told: str
) -> None:
    made = comparison_table.table(compared(tmp_path, noisy(1, noise), noisy(2, noise)))
    count, further = made.notes
    assert table.counted(made) == "4 rows: 4 inconclusive"
    assert re.fullmatch(r"4 could not be told: launches vary too much( \(\d look .*\))?", count)
    asked = re.match(told, further)
    assert asked
    assert 3 < int(asked[1]) <= 32
    assert not any(row.notable for row in made.rows)


@pytest.mark.parametrize("count", [(4, 4), (1, 4)])
def test_no_inconclusive_row_is_without_a_reason(tmp_path: Path, count: tuple[int, int]) -> None:
    """Nor one whose own interval shows a change, which its family does not."""
    sides = [
        [
            one
            for n in range(40)
            for one in sample.launches(
                launches, "a/b", {"n": n}, [sample.arm("x", 1e-3 * factor, launch_noise=2e-3)],
                seed=seed,
            )
        ]
        for launches, factor, seed in zip(count, (1.0, 1.015), (1, 2), strict=True)
    ]  # fmt: skip
    untold = [row for row in rows(compared(tmp_path, *sides)).values() if row.kind == OPEN]
    assert untold
    assert all(table.why(row) for row in untold)
    looks = any(row.reason == "looks slower, but not among 40 comparisons" for row in untold)
    assert looks == (count[0] > 1)


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_side_whose_run_is_not_finished_is_said(tmp_path: Path, side: str) -> None:
    folders = {
        name: sample.write(tmp_path / name, records(seed=seed))
        for name, seed in (("base", 1), ("head", 2))
    }
    said = f"{side} is not finished: nvidia-h200/{side} is still running, or was broken off"
    for state, unfinished in (("complete", []), ("running", [said])):
        (folders[side] / "run.json").write_text(json.dumps({"state": state}))
        made = compare([read_run(folders["base"])], [read_run(folders["head"])])
        assert list(made.unfinished) == document(made)["unfinished"] == unfinished
    assert said in comparison_table.table(made).notes


def test_both_sides_stand_before_the_ratio_and_names_are_harmless(tmp_path: Path) -> None:
    nasty = {"kind": "a\x1b[31m|b\nc"}
    sides = [
        sample.launches(4, "a/b", nasty, [sample.arm("x", time, launch_noise=1e-4)], seed=seed)
        for seed, time in ((1, 1.5e-3), (2, 3e-3))
    ]
    made = comparison_table.table(compared(tmp_path, *sides))
    for form in ("lines", "markdown"):
        said = table.FORMS[form](made)
        assert "\x1b" not in said
        assert "1.50 ms" in said.partition("3.00 ms")[0]
    assert ": 1.50 ms -> 3.00 ms; head/base " in table.FORMS["lines"](made)


# --- The command ---

SIDES = (("base", 1.0, 1), ("head", 1.02, 2))


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Folders in which one arm is 2 % slower, beside a case that did not change."""
    other = [sample.arm("x", 1e-3, **QUIET), sample.arm("<b>", 1e-3, **QUIET)]
    return [
        str(sample.write(tmp_path / name, [
            *records(f, s), *sample.launches(4, "c/d", CASE, other, seed=s)
        ]))
        for name, f, s in SIDES
    ]  # fmt: skip


def test_the_command_shows_the_rows_and_exits_as_they_say(
    folders: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *folders]) == FAILED
    first, row, *_ = shown = capfd.readouterr().out.splitlines()
    assert (
        first == "base nvidia-h200/base, head nvidia-h200/head: 4 rows: 1 regressed, 3 equivalent"
    )
    assert row.startswith("regressed    a/b/n:1/fast: 1.00 ms -> 1.02 ms; head/base 1.0")
    assert "family of 4 over launches: chance of any false regression 1 %" in "\n".join(shown)
    assert cli.main(["compare", *folders, "--json"]) == FAILED
    assert json.loads(capfd.readouterr().out)["counts"]["regressed"] == 1
    junit = Path(folders[0], "junit.xml")
    assert cli.main(["compare", *folders, "--markdown", "--format", f"junit={junit}"]) == FAILED
    told = capfd.readouterr()
    assert told.out.startswith("**gpulift compare: ❌ 4 rows: 1 regressed, 3 ")
    assert "--markdown is called --format markdown now" in told.err
    assert 'failures="1"' in junit.read_text("utf-8")
    assert cli.main(["compare", *folders, "--explain", "fast"]) == FAILED
    assert capfd.readouterr().out.startswith("a/b/n:1/fast: regressed\n  Comparability: ")


def test_of_many_rows_those_that_changed_are_shown_or_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    many = [sample.arm(f"arm{n}", 1e-3, **QUIET) for n in range(13)]
    sides = [
        str(sample.write(tmp_path / str(seed), sample.launches(2, "a/b", CASE, many, seed=seed)))
        for seed in (1, 2)
    ]
    for more, count in ([], 0), (["--all"], 13):
        assert cli.main(["compare", *sides, *more]) == OK
        lines = capfd.readouterr().out.splitlines()
        assert sum(line.startswith("equivalent ") for line in lines) == count
        assert lines[-1].startswith("--all lists every row") == (not more)


def test_further_runs_of_a_side(
    tmp_path: Path, folders: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    more = [
        str(sample.write(tmp_path / f"m{n}", [*records(seed=30 + n), *other_case(30 + n)]))
        for n in range(3)
    ]
    sides = ["--more-base", more[0], "--more-base", more[1], "--more-head", more[2]]
    assert cli.main(["compare", *folders, *sides, "--filter", "a/b", "--json"]) == INCONCLUSIVE
    data = json.loads(capfd.readouterr().out)
    assert (data["unit"], len(data["base"])) == ("run", 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--across", "card"], "do not differ in card"),
        (["--across", "moon"], "--across knows driver"),
        (["--more-head", ""], "the name of a file or folder is empty"),
        (["--explain", ""], "--explain needs a part of technique/case/arm"),
        (["--explain", "a/b", "--format", "json"], "--explain is for lines"),
        (["--format", "markdown", "--json"], "--format markdown stands alone"),
        (["--format", "lame"], "--format knows lines, json, markdown, "),
        (["--explain", "fats"], "no row of the comparison holds 'fats'; near it: a/b/n:1/fast"),
        (["--filter", "none"], "no case of the records matches the filter 'none'"),
        (["--filter", "fats"], "matches the filter 'fats'; near it: fast"),
        (["--filter", "("], "is not a regular expression"),
    ],
)
def test_wrong_usage_is_one_line(
    folders: list[str], capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert cli.main(["compare", *folders, *arguments]) == USAGE
    said = capfd.readouterr()
    assert words in said.err
    assert said.out == ""
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no records"),
        (b'{"schema": "2.0"}\n', "schema is 2.0"),
        (b'{"schema": "1.0", "launch": NaN}\n', "NaN is not a number"),
        (b"\x00\xff\n", "not a line of JSON"),
    ],
)
def test_what_is_no_record_file_is_one_line_with_its_place(
    tmp_path: Path,
    folders: list[str],
    capfd: pytest.CaptureFixture[str],
    content: bytes,
    words: str,
) -> None:
    file = tmp_path / "other.jsonl"
    file.write_bytes(content)
    assert cli.main(["compare", folders[0], str(file)]) == USAGE
    said = capfd.readouterr().err
    assert words in said
    assert said.startswith("gpulift: error: ")
    assert said.count("\n") == 1


# --- What is asked ---


def test_a_threshold_of_a_row_is_what_counts_there_and_nowhere_else(tmp_path: Path) -> None:
    base, head = (runs(tmp_path / name, records(f, s)) for name, f, s in SIDES)
    lax = compare(base, head, least_changes={"fast": 0.05})
    assert verdicts(lax) == {"slow": EQUIVALENT, "fast": EQUIVALENT}
    assert lax.exit_code == OK
    told = document(lax)
    assert told["thresholds"] == {"fast": 0.05}
    margins = {one["arm"]: one["margins"]["least"] for one in told["rows"]}
    assert margins == {"slow": decision.TWO_RUNS.least, "fast": 0.05}
    assert verdicts(compare(base, head, least_changes={"slow": 0.05}))["fast"] == REGRESSED
    with pytest.raises(GpuliftError, match="'fats' matches no row"):
        compare(base, head, least_changes={"fats": 0.05})


@pytest.mark.parametrize(
    ("filter", "selected"),
    [
        ("^a/b/n:1/fast", ["a/b/n:1/fast"]),
        ("-^c/", ["a/b/n:1/fast", "a/b/n:1/slow"]),
        ("c/d", ["c/d/n:1/<b>", "c/d/n:1/x"]),
    ],
)
def test_a_filter_selects_rows_as_that_of_run_does(
    folders: list[str], filter: str, selected: list[str]
) -> None:
    base, head = (read_results([Path(folder)]) for folder in folders)
    made = compare(base, head, filter=filter)
    assert sorted(rows(made)) == selected
    assert (made.family, document(made)["filter"]) == (len(selected), filter)


def test_what_a_filter_leaves_out_ends_no_comparison(tmp_path: Path) -> None:
    head = [*records(seed=2), *other_case(2)]
    with pytest.raises(GpuliftError, match="only in head"):
        compared(tmp_path, records(), head)
    assert compared(tmp_path / "a", records(), head, filter="^a/b/n:1/").exit_code == OK


def test_a_file_of_thresholds_is_told(
    tmp_path: Path, folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "limits.toml"
    file.write_text('[rows."a/b/.*fast"]\nleast_change = 0.05\n')
    assert cli.main(["compare", *folders, "--thresholds", str(file), "--filter", "a/b"]) == OK
    told = capsys.readouterr().out
    assert "least change: 5 % in a/b/.*fast" in told
    assert "filter: a/b" in told
