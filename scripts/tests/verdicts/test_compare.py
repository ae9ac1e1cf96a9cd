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
from gpulift.commands import compare_cells as cells
from gpulift.commands.compare import as_data, rows_table, summary_line
from gpulift.commands.compare_markdown import markdown
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
from gpulift.verdicts import decision
from gpulift.verdicts.explain import explain
from gpulift.verdicts.hardware import slowed_by_hardware
from gpulift.verdicts.two_sets import Comparison, Row, compare, values
from tests import runs_made, sample
from tests.sample import Json

QUIET: Json = {"noise": 1e-4, "launch_noise": 1e-4}
CASE = {"n": 1}


def arms(factor: float = 1.0) -> list[Json]:
    """Two quiet arms; the second takes `factor` times as long."""
    return [sample.arm("slow", 2e-3, **QUIET), sample.arm("fast", 1e-3 * factor, **QUIET)]


def records(factor: float = 1.0, seed: int = 1, count: int = 4, **more: Any) -> list[Json]:
    return sample.launches(count, "a/b", CASE, arms(factor), seed=seed, **more)


def compared(
    tmp_path: Path,
    base: Sequence[Json],
    head: Sequence[Json],
    across: str | None = None,
    common: bool = False,
) -> Comparison:
    folders = [
        sample.write(tmp_path / name, made) for name, made in (("base", base), ("head", head))
    ]
    return compare([read_run(folders[0])], [read_run(folders[1])], across, common)


def refused(tmp_path: Path, base: Sequence[Json], head: Sequence[Json]) -> GpuliftError:
    with pytest.raises(GpuliftError) as caught:
        compared(tmp_path, base, head)
    assert "\n" not in str(caught.value)
    return caught.value


def verdicts(found: Comparison) -> dict[str, str]:
    return {row.arm: row.verdict.verdict for row in found.rows}


def row(found: Comparison, arm: str) -> Row:
    return next(one for one in found.rows if one.arm == arm)


# --- Verdicts ---


@pytest.mark.parametrize(
    ("factor", "verdict", "code"),
    [
        (1.0, decision.EQUIVALENT, OK),
        (1.03, decision.REGRESSED, FAILED),
        (0.97, decision.IMPROVED, OK),
    ],
)
def test_only_the_arm_that_changed_gets_another_verdict(
    tmp_path: Path, factor: float, verdict: str, code: int
) -> None:
    found = compared(tmp_path, records(), records(factor, seed=2))
    assert verdicts(found) == {"slow": decision.EQUIVALENT, "fast": verdict}
    assert found.exit_code == code
    assert row(found, "fast").change == pytest.approx(factor - 1, abs=5e-4)
    assert found.family == 2


def test_ceilings_are_compared_too(tmp_path: Path) -> None:
    made = sample.launches(4, "ceiling/x", CASE, arms())
    slower = sample.launches(4, "ceiling/x", CASE, arms(1.05), seed=2)
    assert verdicts(compared(tmp_path, made, slower))["fast"] == decision.REGRESSED


def test_more_than_a_tenth_inconclusive_is_exit_5(tmp_path: Path) -> None:
    noisy = [sample.arm("x", 1e-3, launch_noise=0.1)]
    made = [sample.launches(3, "a/b", CASE, noisy, seed=seed) for seed in (1, 2)]
    found = compared(tmp_path, made[0], made[1])
    assert verdicts(found) == {"x": decision.INCONCLUSIVE}
    assert found.exit_code == INCONCLUSIVE
    effect = found.rows[0].verdict.smallest_effect
    assert effect is not None
    assert effect > 0.05


def test_a_tenth_inconclusive_is_still_ok(tmp_path: Path) -> None:
    def made(seed: int) -> list[Json]:
        quiet = [
            one
            for n in range(9)
            for one in sample.launches(3, "a/b", {"n": n}, arms()[:1], seed=seed)
        ]
        noisy = [sample.arm("slow", 1e-3, launch_noise=0.1)]
        return [*quiet, *sample.launches(3, "a/b", {"n": 9}, noisy, seed=seed)]

    found = compared(tmp_path, made(1), made(2))
    assert found.counts[decision.INCONCLUSIVE] == 1
    assert found.exit_code == OK


def test_worst_rows_come_first(tmp_path: Path) -> None:
    def made(seed: int, factors: Sequence[float]) -> list[Json]:
        names = [f"arm{index}" for index in range(len(factors))]
        some = [sample.arm(n, 1e-3 * f, **QUIET) for n, f in zip(names, factors, strict=True)]
        return sample.launches(4, "a/b", CASE, some, seed=seed)

    found = compared(tmp_path, made(1, [1, 1, 1, 1]), made(2, [1.02, 0.9, 1.2, 1]))
    assert [one.arm for one in found.rows] == ["arm2", "arm0", "arm1", "arm3"]


# --- Units ---


def test_one_launch_is_inconclusive_however_many_windows(tmp_path: Path) -> None:
    found = compared(tmp_path, records(count=1, blocks=99), records(1.5, seed=2, blocks=99))
    assert set(verdicts(found).values()) == {decision.INCONCLUSIVE}
    fast = row(found, "fast")
    assert fast.verdict.difference is None, "never an interval from windows"
    assert "launches: 1 in base, 4 in head" in fast.verdict.reason
    assert fast.change == pytest.approx(0.5, abs=0.01)
    assert found.exit_code == INCONCLUSIVE


def test_the_unit_is_the_launch_and_not_the_window(tmp_path: Path) -> None:
    found = compared(tmp_path, records(blocks=50), records(seed=2, blocks=50))
    difference = row(found, "fast").verdict.difference
    assert difference is not None
    assert (difference.base_launches, difference.head_launches) == (4, 4)


def runs_of(tmp_path: Path, side: str, shifts: Sequence[float], **more: Any) -> list[Path]:
    return [
        sample.write(tmp_path / f"{side}{n}", records(1 + shift, seed=100 * n + len(side), **more))
        for n, shift in enumerate(shifts)
    ]


def test_with_two_runs_on_both_sides_the_unit_is_the_run(tmp_path: Path) -> None:
    base = runs_of(tmp_path, "base", [0.0, 0.02])
    head = runs_of(tmp_path, "other", [0.0, 0.02])
    found = compare(read_results(base), read_results(head))
    assert found.unit == "run"
    fast = row(found, "fast")
    assert fast.verdict.verdict == decision.INCONCLUSIVE, "runs vary more than their launches"
    difference = fast.verdict.difference
    assert difference is not None
    assert difference.base_launches == 2
    first, second = values(fast.base, "run")
    assert second - first == pytest.approx(0.0198, abs=1e-3)
    one_sided = compare(read_results(base[:1]), read_results(head))
    assert one_sided.unit == "launch"


def gpu(card: str, name: str = "NVIDIA H200") -> Json:
    return sample.gpu_context(gpu={"card": card, "name": name})


def cards(tmp_path: Path, name: str, count: int, factor: float = 1.0) -> list[Path]:
    return [
        sample.write(
            tmp_path / name / str(n),
            records(factor, seed=10 * n + len(name), context=gpu(f"{n}{len(name)}", name)),
        )
        for n in range(count)
    ]


def test_across_models_two_single_cards_never_stand_for_two_models(tmp_path: Path) -> None:
    base, head = cards(tmp_path, "A", 1), cards(tmp_path, "BB", 1, 0.5)
    found = compare(read_results(base), read_results(head), "gpu-model")
    assert found.unit == "card"
    assert set(verdicts(found).values()) == {decision.INCONCLUSIVE}
    assert "two single cards never stand for two models" in found.rows[0].verdict.reason
    assert found.exit_code == INCONCLUSIVE


def test_across_models_the_card_is_the_unit(tmp_path: Path) -> None:
    base, head = cards(tmp_path, "A", 3), cards(tmp_path, "BB", 3, 0.5)
    found = compare(read_results(base), read_results(head), "gpu-model")
    assert row(found, "fast").verdict.verdict == decision.IMPROVED
    difference = row(found, "fast").verdict.difference
    assert difference is not None
    assert difference.base_launches == 3, "three cards, twelve launches"


def test_several_runs_of_a_card_are_one_value(tmp_path: Path) -> None:
    again = records(1.1, seed=77, context=gpu("01", "A"))
    base = [*cards(tmp_path, "A", 2), sample.write(tmp_path / "A" / "again", again)]
    head = cards(tmp_path, "BB", 2)
    found = compare(read_results(base), read_results(head), "gpu-model")
    launches = row(found, "fast").base
    assert len(launches) == 12
    assert [round(value + 6.9078, 2) for value in values(launches, "card")] == [0.05, 0.0]


def sampled(tmp_path: Path, side: str, shifts: Sequence[float]) -> list[Path]:
    """Runs of so many cards of one model, each of which is slower by its shift."""
    return [
        sample.write(
            tmp_path / side / str(n),
            records(1 + shift, seed=10 * n + len(side), context=gpu(f"{n}{len(side)}")),
        )
        for n, shift in enumerate(shifts)
    ]


def test_across_cards_several_a_side_are_a_sample_of_which_the_card_is_the_unit(
    tmp_path: Path,
) -> None:
    base = sampled(tmp_path, "base", [0.0, 0.02, 0.04])
    like = compare(read_results(base), read_results(sampled(tmp_path, "other", [0.01])), "card")
    assert like.unit == "card"
    assert "cards: 3 in base, 1 in head: one card is no sample" in like.rows[0].verdict.reason
    slower = sampled(tmp_path, "slower", [0.02, 0.04, 0.06])
    found = compare(read_results(base), read_results(slower), "card")
    assert row(found, "slow").verdict.verdict == decision.EQUIVALENT
    fast = row(found, "fast").verdict
    assert fast.verdict == decision.INCONCLUSIVE, "the cards differ by more than the two groups do"
    assert fast.difference is not None
    assert fast.difference.base_launches == 3, "three cards, twelve launches"
    assert found.question.startswith("do the cards of which head is a sample (3) differ from")
    much = sampled(tmp_path, "muchslower", [0.6, 0.62, 0.64])
    found = compare(read_results(base), read_results(much), "card")
    assert row(found, "fast").verdict.verdict == decision.REGRESSED


def test_one_card_a_side_is_a_question_about_these_two(tmp_path: Path) -> None:
    base, head = sampled(tmp_path, "base", [0.0]), sampled(tmp_path, "other", [0.02])
    found = compare(read_results(base), read_results(head), "card")
    assert found.unit == "launch"
    assert row(found, "fast").verdict.verdict == decision.REGRESSED
    assert (
        found.question == "does this one card differ from that one? Of other cards it tells nothing"
    )


def test_explain_bears_any_amount_of_work(tmp_path: Path) -> None:
    one = sample.arm("best", 1e-6, cost={"flops": 1e30, "roof": "gemm/bf16"}, **QUIET)
    for side, seed in (("base", 1), ("head", 2)):
        made = sample.launches(4, "ceiling/gemm", CASE, [one], seed=seed, ceiling=True)
        sample.write(tmp_path / side, made)
    sides = [str(tmp_path / "base"), str(tmp_path / "head")]
    assert cli.main(["compare", *sides, "--explain", "best"]) == OK


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


def other_case(seed: int) -> list[Json]:
    return sample.launches(4, "c/d", CASE, arms(), seed=seed)


def test_one_run_a_side_leaves_work_of_its_own_size_out_and_judges_the_rest(tmp_path: Path) -> None:
    head = [*of_size(1900, seed=2), *other_case(2)]
    found = compared(tmp_path, [*of_size(2000), *other_case(1)], head)
    skipped = [one for one in found.rows if one.technique == "a/b"]
    assert {one.verdict.verdict for one in skipped} == {decision.SKIPPED}
    assert skipped[0].verdict.reason == (
        "each run found the size of its work itself (operations per step 4000000000, then"
        " 3800000000): two runs or more of each side would show what its arms are worth"
    )
    assert {one.verdict.verdict for one in found.rows if one.technique == "c/d"} == {
        decision.EQUIVALENT
    }
    assert found.exit_code == OK


def test_nothing_but_work_of_its_own_size_is_not_comparable(tmp_path: Path) -> None:
    error = refused(tmp_path, of_size(2000), of_size(1900, seed=2))
    assert error.exit_code == NOT_COMPARABLE
    assert "a/b/n:1/slow and 1 more: each run found the size of its work itself" in str(error)


def of_own_sizes(
    folder: Path, sizes: Sequence[int], changes: Sequence[Json] = ({}, {})
) -> list[Run]:
    """Runs of these sizes; `changes` are of the two arms, `items` of their costs."""
    for size in sizes:
        made = of_size(size, seed=size)
        for record in made:
            for one, change in zip(record["arms"], changes, strict=True):
                one["cost"] |= {key: change[key] for key in change.keys() & {"bytes", "items"}}
                one["role"] = change.get("role", one["role"])
        sample.write(folder / str(size), [*made, *other_case(size)])
    return read_results(folder / str(size) for size in sizes)


def test_nothing_is_held_against_a_baseline_of_another_work(tmp_path: Path) -> None:
    base = of_own_sizes(tmp_path, (2000, 2040))
    head = of_own_sizes(tmp_path, (1900, 1930), ({"bytes": 2e6}, {}))
    found = compare(base, head, common=True)
    fast = next(one for one in found.rows if one.name == "a/b/n:1/fast")
    assert fast.verdict.verdict == decision.SKIPPED
    assert fast.verdict.reason.startswith("another work of its baseline: ")


def test_nothing_is_compared_over_a_baseline_that_is_not_there(tmp_path: Path) -> None:
    base, head = (
        of_own_sizes(tmp_path, sizes, ({"role": "technique"}, {}))
        for sizes in ((2000, 2040), (1900, 1930))
    )
    with pytest.raises(GpuliftError, match="not one baseline: none"):
        compare(base, head)


def test_items_that_no_step_has_take_nothing_from_other_cases(tmp_path: Path) -> None:
    base, head = (
        of_own_sizes(tmp_path, sizes, ({"items": -0.5}, {"items": -1.0}))
        for sizes in ((2000, 2040), (1900, 1930))
    )
    found = compare(base, head)
    json.dumps(as_data(found), allow_nan=False)
    others = {one.verdict.verdict for one in found.rows if one.technique == "c/d"}
    assert others == {decision.EQUIVALENT}


def test_the_same_size_in_both_runs_is_the_same_work(tmp_path: Path) -> None:
    found = compared(tmp_path, of_size(2000), of_size(2000, seed=2))
    assert verdicts(found) == {"slow": decision.EQUIVALENT, "fast": decision.EQUIVALENT}


@pytest.mark.parametrize(
    ("worth", "verdict"),
    [
        ((2.0, 2.0, 2.0), decision.EQUIVALENT),
        ((1.5, 1.5, 1.5), decision.REGRESSED),
        ((2.0, 1.9, 1.8), decision.INCONCLUSIVE),
    ],
)
def test_with_several_runs_what_its_arms_are_worth_is_compared(
    tmp_path: Path, worth: Sequence[float], verdict: str
) -> None:
    base = [
        sample.write(tmp_path / f"base{n}", of_size(2000 + 40 * n, seed=n)) for n in range(1, 4)
    ]
    head = [
        sample.write(tmp_path / f"head{n}", of_size(1500 + 30 * n, one, seed=10 + n))
        for n, one in enumerate(worth)
    ]
    found = compare(read_results(base), read_results(head))
    assert verdicts(found) == {"slow": decision.SKIPPED, "fast": verdict}
    assert row(found, "slow").verdict.reason.endswith("the other arms are held against it")
    fast = row(found, "fast")
    assert [one.measure.partition(":")[0] for one in found.rows if one.base] == [
        "time over the baseline's"
    ]
    shown = [one["measure"] for one in as_data(found)["rows"] if one["arm"] == "fast"]
    assert shown == [fast.measure]
    reasons = [str(cell) for cell in rows_table(found, show_all=True).columns[-1].cells]
    assert any(reason.startswith(fast.measure) for reason in reasons)
    change = 2.0 / np.exp(np.mean(np.log(worth))) - 1
    assert fast.change == pytest.approx(change, abs=1e-3), "and not of the time, which is a fourth"


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

    def runs(side: str, batches: Sequence[int]) -> list[Path]:
        return [
            sample.write(tmp_path / f"{side}{n}", made(batch, 10 * len(side) + n))
            for n, batch in enumerate(batches)
        ]

    found = compare(read_results(runs("a", [278, 279])), read_results(runs("bb", [279, 281])))
    assert verdicts(found) == {"fp32": decision.EQUIVALENT, "bf16": decision.EQUIVALENT}
    assert [one.own_size for one in (row(found, "fp32"), row(found, "bf16"))] == [False, True]


# --- Cases that are not alike ---


def test_cases_of_one_side_only_are_named(tmp_path: Path) -> None:
    more = sample.launches(4, "a/b", {"n": 2}, arms(), seed=2)
    error = refused(tmp_path, records(), [*records(seed=2), *more])
    assert error.exit_code == NOT_COMPARABLE
    assert "a/b/n:2: only in head; --common compares the rest" in str(error)


def test_common_lists_what_is_on_one_side(tmp_path: Path) -> None:
    more = sample.launches(4, "a/b", {"n": 2}, arms())
    found = compared(tmp_path, [*records(), *more], records(seed=2), common=True)
    (skipped,) = [one for one in found.rows if one.verdict.verdict == decision.SKIPPED]
    assert (skipped.case_id, skipped.verdict.reason) == ("n:2", "only in base")
    assert found.exit_code == OK


def test_an_arm_of_one_side_only_is_named(tmp_path: Path) -> None:
    extra = [*arms(), sample.arm("new", 1e-3)]
    error = refused(tmp_path, records(), sample.launches(4, "a/b", CASE, extra, seed=2))
    assert error.exit_code == NOT_COMPARABLE
    assert "a/b/n:1/new: only in head" in str(error)


def test_nothing_in_common_is_refused_even_with_common(tmp_path: Path) -> None:
    other = sample.launches(2, "c/d", CASE, arms())
    with pytest.raises(GpuliftError, match="no case in common"):
        compared(tmp_path, records(), other, common=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"regime": "sustained"}, "another work: regime burst, then sustained"),
        ({"check": {"meaning": "close"}}, "another work: check exact bytes, then close"),
    ],
)
def test_another_work_is_not_comparable(tmp_path: Path, change: Json, words: str) -> None:
    error = refused(tmp_path, records(), records(seed=2, **change))
    assert error.exit_code == NOT_COMPARABLE
    assert words in str(error)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cost": {"bytes": 0.0, "flops": 2e12, "items": 1.0}}, "operations per step 0, then 2000"),
        ({"check_tolerance": 0.1}, "check tolerance 0, then 0.1"),
        ({"clock": "host"}, "clock device, then host"),
    ],
)
def test_another_work_of_an_arm_is_not_comparable(tmp_path: Path, change: Json, words: str) -> None:
    head = records(seed=2)
    for one in head:
        one["arms"][1] |= change
    assert words in str(refused(tmp_path, records(), head))
    found = compared(tmp_path / "common", records(), head, common=True)
    assert verdicts(found) == {"slow": decision.EQUIVALENT, "fast": decision.SKIPPED}


def test_a_ceiling_that_chose_another_shape_is_compared_by_its_rate(tmp_path: Path) -> None:
    def roof(size: float, seed: int) -> list[Json]:
        cost = {"flops": size, "roof": "gemm/bf16"}
        one = sample.arm("bf16", size / 8e14, cost=cost, **QUIET)
        return sample.launches(4, "ceiling/gemm", CASE, [one], seed=seed, ceiling=True)

    found = compared(tmp_path, roof(1e12, 1), roof(4e12, 2))
    assert verdicts(found) == {"bf16": decision.EQUIVALENT}


def test_a_small_change_between_two_shapes_of_a_roof_is_not_told(tmp_path: Path) -> None:
    def roof(size: float, rate: float, seed: int) -> list[Json]:
        one = sample.arm("bf16", size / rate, cost={"flops": size, "roof": "gemm/bf16"}, **QUIET)
        return sample.launches(4, "ceiling/gemm", CASE, [one], seed=seed, ceiling=True)

    found = compared(tmp_path / "other", roof(1e12, 8e14, 1), roof(4e12, 7.7e14, 2))
    (one,) = found.rows
    assert one.verdict.verdict == decision.INCONCLUSIVE
    assert one.verdict.reason.startswith("each run chose the shape of its steps itself")
    assert one.verdict.path[-1] == f"Verdict: inconclusive: {one.verdict.reason}"
    assert one.verdict.smallest_effect == 0.1
    assert one.quantity == "time of one operation"
    assert as_data(found)["rows"][0]["measure"] == one.quantity
    assert "each run chose the shape" in str([*rows_table(found, show_all=True).columns[-1].cells])
    assert found.exit_code == INCONCLUSIVE
    alike = compared(tmp_path / "same", roof(1e12, 8e14, 1), roof(1e12, 7.7e14, 2))
    assert verdicts(alike) == {"bf16": decision.REGRESSED}
    large = compared(tmp_path / "large", roof(1e12, 8e14, 1), roof(4e12, 7e14, 2))
    assert verdicts(large) == {"bf16": decision.REGRESSED}

    sides: dict[str, list[Path]] = {"base": [], "head": []}
    for seed, (side, rate) in enumerate([("base", 8e14), ("head", 7e14)] * 3):
        made = roof(1e12 if seed < 2 else 4e12, rate * (1 + seed * 1e-4), seed)
        sides[side].append(sample.write(tmp_path / f"run-{seed}", made))
    runs = compare(read_results(sides["base"]), read_results(sides["head"]))
    assert (runs.unit, verdicts(runs)) == ("run", {"bf16": decision.REGRESSED})


@pytest.mark.parametrize("cost", [None, {"bytes": 1e9, "roof": "device_memory"}])
def test_operations_are_not_compared_with_bytes_or_steps(tmp_path: Path, cost: Json | None) -> None:
    def roof(cost: Json | None, seed: int) -> list[Json]:
        one = sample.arm("bf16", 1e-3, **({"cost": cost} if cost else {}), **QUIET)
        return sample.launches(4, "ceiling/gemm", CASE, [one], seed=seed, ceiling=True)

    said = str(refused(tmp_path, roof({"flops": 1e12, "roof": "gemm/bf16"}, 1), roof(cost, 2)))
    assert "kind of work operation, then " in said


@pytest.mark.parametrize(
    ("technique", "cost", "words"),
    [
        (
            "ceiling/gemm",
            {"flops": 1e9, "roof": "gemm/bf16"},
            "by the time of one operation",
        ),
        (
            "ceiling/host_gemm",
            {"flops": 1e9, "roof": "host_gemm/fp32"},
            "by the time of one operation",
        ),
        (
            "ceiling/memory",
            {"bytes": 1e3, "roof": "device_memory"},
            "by the time of one byte",
        ),
        ("ceiling/launch", {"items": 100.0}, "times of a step"),
        ("a/b", {"flops": 1e9, "roof": "gemm/bf16"}, "times of a step"),
    ],
)
def test_explain_names_the_unit_of_the_launch_values(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    technique: str,
    cost: Json,
    words: str,
) -> None:
    one = sample.arm("best", 1e-3, cost=cost, **QUIET)
    for side, seed in (("base", 1), ("head", 2)):
        ceiling = technique.startswith("ceiling/")
        made = sample.launches(4, technique, CASE, [one], seed=seed, ceiling=ceiling)
        sample.write(tmp_path / side, made)
    arguments = ["compare", str(tmp_path / "base"), str(tmp_path / "head"), "--explain", "best"]
    assert cli.main(arguments) == OK
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "one value per launch" in x]
    assert f" ({words}" in line


@pytest.mark.parametrize("side", ["base", "head"])
def test_skipped_on_one_side_is_a_skipped_row_with_the_side(tmp_path: Path, side: str) -> None:
    skipped = [sample.unmeasured("a/b", CASE, "skipped", "out of memory", launch=n) for n in (0, 1)]
    kept = sample.launches(4, "c/d", CASE, arms())
    more = sample.launches(4, "c/d", CASE, arms(), seed=2)
    sides = {"base": [*records(), *kept], "head": [*records(seed=2), *more]}
    sides[side] = [*skipped, *sides[side][4:]]
    found = compared(tmp_path, sides["base"], sides["head"])
    rows = [one for one in found.rows if one.technique == "a/b"]
    assert {one.verdict.verdict for one in rows} == {decision.SKIPPED}
    assert {one.arm for one in rows} == {"slow", "fast"}
    assert rows[0].verdict.reason == f"{side}: out of memory"
    assert found.exit_code == OK


def test_an_arm_skipped_on_both_sides_for_one_reason_says_it_once(tmp_path: Path) -> None:
    some = [*arms(), sample.skipped_arm("fp8", "no FP8 here")]
    made = [sample.launches(4, "a/b", CASE, some, seed=seed) for seed in (1, 2)]
    assert (
        row(compared(tmp_path, made[0], made[1]), "fp8").verdict.reason
        == "base and head: no FP8 here"
    )


@pytest.mark.parametrize("outcome", ["failed", "error"])
def test_an_error_on_head_is_an_error_even_in_one_launch(tmp_path: Path, outcome: str) -> None:
    bad = sample.unmeasured("a/b", CASE, outcome, "signal SIGSEGV", launch=4)
    found = compared(tmp_path, records(), [*records(seed=2), bad])
    assert set(verdicts(found).values()) == {decision.ERROR}
    assert found.rows[0].verdict.reason == f"head {outcome}: signal SIGSEGV"
    assert found.exit_code == FAILED


def test_an_error_on_base_only_leaves_no_base(tmp_path: Path) -> None:
    bad = sample.unmeasured("a/b", CASE, "error", "timeout", launch=4)
    found = compared(tmp_path, [*records(), bad], records(seed=2))
    assert found.rows[0].verdict.reason == "no base: error: timeout"
    assert found.exit_code == NOTHING_RAN, "nothing was compared"


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


def test_all_blocks_discarded_breaks_the_instrument(tmp_path: Path) -> None:
    reason = "the hardware slowed itself down in every block: nothing can be said"
    bad = [
        sample.unmeasured("a/b", CASE, "failed", reason, launch=n, discarded_blocks=9)
        for n in (0, 1)
    ]
    assert refused(tmp_path, bad, records()).exit_code == INSTRUMENT_BROKEN


@pytest.mark.parametrize("side", ["base", "head"])
def test_one_launch_of_which_the_hardware_left_nothing_breaks_the_instrument(
    tmp_path: Path, side: str
) -> None:
    reason = "the hardware slowed itself down in every block: nothing can be said"
    bad = sample.unmeasured("a/b", CASE, "failed", reason, launch=4, discarded_blocks=9)
    sides = {"base": records(), "head": records(seed=2)}
    sides[side] = [*sides[side], bad]
    error = refused(tmp_path, sides["base"], sides["head"])
    assert error.exit_code == INSTRUMENT_BROKEN
    assert f"every block of 1 of 5 launches of a/b/n:1 in {side}: nothing" in str(error)


def test_a_failed_check_is_no_slow_down(tmp_path: Path) -> None:
    bad = sample.unmeasured("a/b", CASE, "failed", "arm fast: error 0.3", launch=4)
    assert compared(tmp_path, records(), [*records(seed=2), bad]).exit_code == FAILED


def test_a_power_cap_is_a_state_and_not_a_slowdown(tmp_path: Path) -> None:
    sample.write(tmp_path, records(discarded_blocks=3))
    assert not any(slowed_by_hardware(one) for one in read_run(tmp_path).records)


# --- What is read ---


def test_the_same_record_on_both_sides_is_refused(tmp_path: Path) -> None:
    made = records()
    error = refused(tmp_path, made, made)
    assert error.exit_code == USAGE
    assert "is the same record as" in str(error)


def test_a_run_given_twice_is_refused(tmp_path: Path) -> None:
    base = sample.write(tmp_path / "base", records())
    head = sample.write(tmp_path / "head", records(seed=2))
    with pytest.raises(GpuliftError, match="a launch counts once"):
        compare(read_results([base, base]), read_results([head]))


def test_duets_are_not_part_and_a_set_of_duets_says_what_to_use(tmp_path: Path) -> None:
    error = refused(tmp_path, runs_made.duet(), records())
    assert error.exit_code == USAGE
    assert "base records are all duets: use ./gpulift duet" in str(error)
    found = compared(tmp_path / "mixed", [*records(), *runs_made.duet()], records(seed=2))
    assert {one.technique for one in found.rows} == {"a/b"}
    assert "base: 10 duet records are not part of this" in found.notes


def test_of_one_launch_twice_the_later_counts_and_is_told(tmp_path: Path) -> None:
    again = sample.record("a/b", CASE, arms(1.0), 0, seed=9)
    found = compared(tmp_path, [*records(), again], records(seed=2))
    assert len(row(found, "fast").base) == 4
    assert any("replaces line 1" in note for note in found.notes)
    assert again["arms"][0]["windows"]["device_s"][0] in {
        time for one in row(found, "slow").base for time in one.arm.windows.device_s
    }


def test_a_last_line_that_was_cut_off_is_a_launch_less_and_told(tmp_path: Path) -> None:
    base = sample.write(tmp_path / "base", records())
    head = sample.write(tmp_path / "head", records(seed=2))
    file = head / "a.b.jsonl"
    file.write_bytes(file.read_bytes()[:-500])
    found = compare(read_results([base]), read_results([head]))
    assert len(row(found, "fast").head) == 3
    assert any("cut off" in note for note in found.notes)


def test_minor_schemas_may_be_mixed(tmp_path: Path) -> None:
    context = sample.gpu_context(host={"numa_nodes": 2})
    newer = records(seed=2, schema="1.7", context=context)
    found = compared(tmp_path, records(schema="1.0"), newer)
    assert found.exit_code == OK
    assert found.notes == ("host.numa_nodes is known on one side only: not compared",)


def test_a_clock_that_was_set_back_changes_no_verdict(tmp_path: Path) -> None:
    head = records(1.03, seed=2)
    expected = compared(tmp_path / "before", records(), head)
    for launch, one in enumerate(head):
        one["started_at"] = f"2026-11-20T04:00:{50 - launch:02d}Z"
        for arm in one["arms"]:
            count = len(arm["windows"]["device_s"])
            arm["windows"]["start_s"] = [float(count - index) for index in range(count)]
    found = compared(tmp_path / "after", records(), head)
    assert [one.verdict for one in found.rows] == [one.verdict for one in expected.rows]


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
    found = compared(tmp_path, records(context=context), records(seed=2, context=context))
    assert sum(words in note for note in found.notes) == 2


# --- Another source ---


def changed_source(tmp_path: Path, across: str | None = None) -> Comparison:
    """A technique whose file is another one on the head, at another commit where that is asked."""
    context = sample.gpu_context(build={"commit": "fedcba9"} if across else {})
    base = records(source={"b.py": 64 * "a", "b.cpp": 64 * "c"})
    head = records(seed=2, source={"b.py": 64 * "b", "b.cpp": 64 * "c"}, context=context)
    return compared(tmp_path, base, head, across)


def test_another_source_is_told_and_compared(tmp_path: Path) -> None:
    found = changed_source(tmp_path)
    assert found.work_lines == ["measured work may differ: a/b (b.py)"]
    assert as_data(found)["work"] == {"a/b": ["b.py"]}
    assert (found.exit_code, found.family) == (OK, 2)


def test_another_source_of_another_commit_comes_with_it(tmp_path: Path) -> None:
    found = changed_source(tmp_path, "commit")
    assert found.work_lines == ["comes with the commit: a/b (b.py)"]


def test_the_same_source_and_one_that_a_side_does_not_tell_are_no_difference(
    tmp_path: Path,
) -> None:
    same: Json = {"source": {"b.py": 64 * "a"}}
    for number, head in enumerate((records(seed=2, **same), records(seed=2))):
        found = compared(tmp_path / str(number), records(**same), head)
        assert found.work_lines == []


def test_hashes_of_two_rules_are_not_held_against_each_other(tmp_path: Path) -> None:
    base = records(source={"b.py": 64 * "a"}, schema="1.13")
    head = records(seed=2, source={"b.py": 64 * "b"}, schema="1.14")
    assert compared(tmp_path, base, head).work_lines == [
        "measured work may differ: a/b (files, which records hash otherwise since schema 1.14)"
    ]


def in_environment(schema: str = "1.7", seed: int = 1, **variables: str) -> list[Json]:
    made = records(seed=seed, schema=schema)
    for one in made:
        if variables:
            one["arms"][1]["environment"] = variables
    return made


def test_another_environment_of_an_arm_is_told_and_compared(tmp_path: Path) -> None:
    base, head = in_environment(NCCL_ALGO="Ring"), in_environment(seed=2, NCCL_ALGO="Tree")
    found = compared(tmp_path, base, head)
    assert found.work_lines == [
        "measured work may differ: a/b (NCCL_ALGO of fast: Ring, then Tree)"
    ]
    assert found.family == 2


@pytest.mark.parametrize(("schema", "told"), [("1.6", 0), ("1.7", 1)])
def test_an_arm_without_environment_is_known_from_schema_1_7_on(
    tmp_path: Path, schema: str, told: int
) -> None:
    found = compared(tmp_path, in_environment(schema), in_environment(seed=2, NCCL_ALGO="Tree"))
    lines = found.work_lines
    assert len(lines) == told
    assert all("NCCL_ALGO of fast: not set, then Tree" in line for line in lines)


# --- Output ---


def test_json_is_deterministic_and_holds_every_figure(tmp_path: Path) -> None:
    made = [compared(tmp_path / str(n), records(), records(1.03, seed=2)) for n in (0, 1)]
    texts = [json.dumps(as_data(found), allow_nan=False) for found in made]
    assert texts[0] == texts[1]
    data = json.loads(texts[0])
    assert (data["exit_code"], data["unit"], data["family"]) == (FAILED, "launch", 2)
    assert data["decision_method"] == decision.DECISION_METHOD
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
    (told,) = [one for one in made[0].rows if one.verdict.verdict == decision.REGRESSED]
    lines = [line for line in explain(told.base, told.head, told.verdict) if "Attribution" in line]
    attributed = worst["attribution"]
    for name in (one["name"] for one in attributed["measures"]):
        assert any(name in line for line in lines)
    assert len(lines) == len(attributed["measures"]) + 2 + bool(attributed["cause"])


def test_json_of_throttling_that_was_not_read_is_null(tmp_path: Path) -> None:
    base = records()
    del base[0]["telemetry"]["throttle"]
    base[1]["telemetry"]["throttle"] = []
    told = as_data(compared(tmp_path, base, records(seed=2)))["rows"][0]["base"]
    assert [one["throttle"] for one in told[:3]] == [None, [], ["sw_power_cap"]]


def test_json_of_rows_without_figures_has_nulls(tmp_path: Path) -> None:
    found = compared(tmp_path, records(count=1), records(seed=2, count=1))
    data = json.loads(json.dumps(as_data(found), allow_nan=False))
    assert [data["rows"][0][key] for key in ("low", "units", "smallest_effect")] == [None] * 3


def test_the_table_has_what_changed_and_with_all_every_row(tmp_path: Path) -> None:
    found = compared(tmp_path, records(), records(1.03, seed=2))
    for show_all, rows in ((False, 1), (True, 2)):
        table = rows_table(found, show_all)
        assert table.row_count == rows
        assert ("reason" in [column.header for column in table.columns]) == show_all


def test_base_and_head_stand_beside_the_change_and_names_are_harmless(tmp_path: Path) -> None:
    nasty = {"kind": "a\x1b[31m|b\nc"}
    base, head = (
        sample.launches(4, "a/b", nasty, [sample.arm("x", time, launch_noise=1e-4)], seed=seed)
        for seed, time in ((1, 1.5e-3), (2, 3e-3))
    )
    found = compared(tmp_path, base, head)
    table = rows_table(found, show_all=False)
    told = {str(one.header): str(next(iter(one.cells))) for one in table.columns}
    assert (told["base"], told["head"], told["change"][:4]) == ("1.50 ms", "3.00 ms", "+100")
    assert told["case"] == r"kind a\x1b[31m|b\nc"
    (line,) = [line for line in markdown(found).splitlines() if "regressed" in line]
    assert "| 1.50 ms | 3.00 ms | +" in line
    assert "\x1b" not in line


def noisy(seed: int, noise: float, launches: int = 3, arms: int = 4) -> list[Json]:
    made = [sample.arm(f"arm{n}", 1e-3, launch_noise=noise, noise=1e-4) for n in range(arms)]
    return sample.launches(launches, "a/b", CASE, made, seed=seed)


@pytest.mark.parametrize(("noise", "effect"), [(0.03, 5), (0.005, 2)])
def test_what_could_not_be_told_is_a_count_and_how_many_launches_would_tell_it(
    tmp_path: Path, noise: float, effect: int
) -> None:
    found = compared(tmp_path, noisy(1, noise), noisy(2, noise))
    assert cells.counted(found) == "0 slower, 0 faster, 4 could not be told"
    count, told = cells.untold(found)
    assert re.fullmatch(r"4 could not be told: launches vary too much( \(\d look .*\))?", count)
    asked = re.fullmatch(
        rf"(\d+) launches a side would tell {effect} % in 3 of them: measure both with"
        r" --launches \1",
        told,
    )
    assert asked
    assert 3 < int(asked[1]) <= cells.MOST_LAUNCHES
    assert rows_table(found, show_all=False).row_count == 0


def test_rows_that_vary_too_much_for_any_number_of_launches_are_not_promised_any(
    tmp_path: Path,
) -> None:
    found = compared(tmp_path, noisy(1, 1.0), noisy(2, 1.0))
    assert list(cells.untold(found))[1] == "32 launches a side would not tell 20 % in most"


def test_equal_skips_are_one_line_and_no_row(tmp_path: Path) -> None:
    more = [sample.unmeasured("a/b", {"n": n}, "skipped", "no GPU [/here]") for n in range(2, 9)]
    more += [sample.unmeasured("a/b", {"n": n}, "skipped", f"too {n}") for n in range(20, 26)]
    other = [{**one, "started_at": "2026-11-22T04:00:00Z"} for one in more]
    found = compared(tmp_path, [*records(), *more], [*records(seed=2), *other])
    assert cells.counted(found) == "0 slower, 0 faster, 2 same, 13 skipped"
    first, *_, last = cells.untold(found)
    assert first == "7 skipped: base and head: no GPU [/here]"
    assert last == "2 skipped for 2 other reasons"
    assert rows_table(found, show_all=False).row_count == 0
    assert rows_table(found, show_all=True).row_count == 15


@pytest.mark.parametrize("launches", [(4, 4), (1, 4)])
def test_no_inconclusive_row_is_without_a_reason(tmp_path: Path, launches: tuple[int, int]) -> None:
    """Nor one whose own interval shows a change, which its family does not."""
    base, head = (
        [
            one
            for n in range(40)
            for one in sample.launches(
                count, "a/b", {"n": n}, [sample.arm("x", 1e-3 * factor, launch_noise=2e-3)], seed=s
            )
        ]
        for count, factor, s in zip(launches, (1.0, 1.015), (1, 2), strict=True)
    )
    found = compared(tmp_path, base, head)
    untold = [one for one in found.rows if one.verdict.verdict == decision.INCONCLUSIVE]
    reasons = [cells.reason(one, found.family) for one in untold]
    assert untold
    assert all(reasons)
    if launches[0] > 1:
        assert any(one.startswith("looks slower, but among 40 comparisons only") for one in reasons)


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_side_whose_run_is_not_finished_is_said(
    tmp_path: Path, side: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {
        name: sample.write(tmp_path / name, records(seed=seed))
        for name, seed in (("base", 1), ("head", 2))
    }
    said = f"{side} is not finished: nvidia-h200/{side} is still running, or was broken off"
    for state, unfinished in (("complete", []), ("running", [said])):
        (folders[side] / "run.json").write_text(json.dumps({"state": state}))
        found = compare([read_run(folders["base"])], [read_run(folders["head"])])
        assert list(found.unfinished) == as_data(found)["unfinished"] == unfinished
    for more in ([], ["--markdown"]):
        assert cli.main(["compare", *map(str, folders.values()), *more]) == OK
        assert said in capsys.readouterr().out.splitlines()[1]


def test_the_summary_names_the_methods(tmp_path: Path) -> None:
    line = summary_line(compared(tmp_path, records(), records(1.03, seed=2)))
    assert "2 rows, 2 comparisons in the family, unit launch" in line
    assert f"stats method 1, decision method {decision.DECISION_METHOD}" in line


# --- The command ---


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    base = sample.write(tmp_path / "base", records())
    head = sample.write(tmp_path / "head", records(1.03, seed=2))
    return str(base), str(head)


def test_the_command_shows_the_table_and_exits_as_the_rows_say(
    folders: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *folders]) == FAILED
    shown = capfd.readouterr().out
    first, title, headings, row, *_ = shown.splitlines()
    assert first == "1 slower, 0 faster, 1 same"
    assert title.startswith("Time of head against base")
    assert headings.startswith("verdict ")
    assert row.startswith("regressed ")
    assert "base: nvidia-h200/base" in shown
    assert cli.main(["compare", *folders, "--json"]) == FAILED
    assert json.loads(capfd.readouterr().out)["counts"]["regressed"] == 1


def test_further_runs_of_a_side(
    tmp_path: Path, folders: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    more = [str(sample.write(tmp_path / f"m{n}", records(seed=30 + n))) for n in range(4)]
    sides = ["--more-base", more[0], "--more-base", more[1], "--more-head", more[2]]
    assert cli.main(["compare", *folders, *sides, "--json"]) == INCONCLUSIVE
    data = json.loads(capfd.readouterr().out)
    assert data["unit"] == "run"
    assert len(data["base"]) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--across", "card"], USAGE, "do not differ in card"),
        (["--across", "moon"], USAGE, "--across knows driver"),
        (["--more-head", ""], USAGE, "the name of a file or folder is empty"),
        (["--explain", ""], USAGE, "--explain needs a part of technique/case/arm"),
        (["--explain", "a/b", "--json"], USAGE, "leave --explain or --json out"),
        (["--markdown", "--json"], USAGE, "--markdown stands alone"),
        (["--markdown", "--explain", "fast"], USAGE, "--markdown stands alone"),
        (
            ["--explain", "fats"],
            USAGE,
            "no row of the comparison holds 'fats'; near it: a/b/n:1/fast",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    folders: tuple[str, str],
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    assert cli.main(["compare", *folders, *arguments]) == code
    said = capfd.readouterr()
    assert words in said.err
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_another_source_stands_under_the_table_and_in_the_explanation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = sample.write(tmp_path / "base", records(source={"b.py": 64 * "a"}))
    head = sample.write(tmp_path / "head", records(seed=2, source={"b.py": 64 * "b"}))
    assert cli.main(["compare", str(base), str(head)]) == OK
    assert "\nmeasured work may differ: a/b (b.py)\n" in capsys.readouterr().out
    cli.main(["compare", str(base), str(head), "--explain", "fast"])
    assert "Comparability: the work may differ: b.py\n" in capsys.readouterr().out


def test_the_question_stands_in_table_json_and_explanation(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base, head = (sampled(tmp_path, side, [0.0, 0.01]) for side in ("base", "other"))
    sides = [str(base[0]), str(head[0]), "--more-base", str(base[1]), "--more-head", str(head[1])]
    for more in ([], ["--json"], ["--explain", "fast"]):
        cli.main(["compare", *sides, "--across", "card", *more])
        shown = capfd.readouterr().out
        assert "do the cards of which head is a sample (2) differ from those of base (2)?" in shown
    cli.main(["compare", *sides, "--across", "card", "--json"])
    assert json.loads(capfd.readouterr().out)["unit"] == "card"


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
    folders: tuple[str, str],
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


def test_a_threshold_of_a_row_is_what_counts_there_and_nowhere_else(tmp_path: Path) -> None:
    base, head = ([read_run(sample.write(tmp_path / n, records(f, s)))] for n, f, s in SIDES)
    assert verdicts(compare(base, head))["fast"] == decision.REGRESSED
    lax = compare(base, head, least_changes={"fast": 0.05})
    assert verdicts(lax) == {"slow": decision.EQUIVALENT, "fast": decision.EQUIVALENT}
    assert lax.exit_code == OK
    told = as_data(lax)
    assert told["thresholds"] == {"fast": 0.05}
    margins = {one["arm"]: one["margins"]["least"] for one in told["rows"]}
    assert margins == {"slow": decision.TWO_RUNS.least, "fast": 0.05}
    assert verdicts(compare(base, head, least_changes={"slow": 0.05}))["fast"] == decision.REGRESSED
    with pytest.raises(GpuliftError, match="'fats' matches no row"):
        compare(base, head, least_changes={"fats": 0.05})


SIDES = (("base", 1.0, 1), ("head", 1.02, 2))


def both_sides(tmp_path: Path) -> list[str]:
    """Folders in which one arm is 2 % slower, beside a case that did not change."""
    other = [sample.arm("x", 1e-3, **QUIET), sample.arm("<b>", 1e-3, **QUIET)]
    return [
        str(
            sample.write(
                tmp_path / name,
                [*records(f, s), *sample.launches(4, "c/d", CASE, other, seed=s)],
            )
        )
        for name, f, s in SIDES
    ]


def test_a_filter_selects_rows_as_that_of_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = both_sides(tmp_path)
    for filter, rows in [
        ("^a/b/n:1/fast", ["a/b/n:1/fast"]),
        ("-^c/", ["a/b/n:1/fast", "a/b/n:1/slow"]),
        ("c/d", ["c/d/n:1/<b>", "c/d/n:1/x"]),
    ]:
        cli.main(["compare", *sides, "--filter", filter, "--json"])
        told = json.loads(capsys.readouterr().out)
        found = sorted(f"{one['technique']}/{one['case']}/{one['arm']}" for one in told["rows"])
        assert found == rows
        assert told["family"] == len(rows)
        assert told["filter"] == filter
    for filter, words in [
        ("none", "no case of the records matches the filter 'none'"),
        ("fats", "matches the filter 'fats'; near it: fast"),
        ("(", "is not a regular expression"),
    ]:
        assert cli.main(["compare", *sides, "--filter", filter]) == USAGE
        assert words in capsys.readouterr().err


def test_what_a_filter_leaves_out_ends_no_comparison(tmp_path: Path) -> None:
    base = [read_run(sample.write(tmp_path / "base", records()))]
    more = [*records(seed=2), *sample.launches(4, "c/d", CASE, arms())]
    head = [read_run(sample.write(tmp_path / "head", more))]
    with pytest.raises(GpuliftError, match="only in head"):
        compare(base, head)
    assert compare(base, head, filter="^a/b/n:1/").exit_code == OK


def test_a_file_of_thresholds_is_told_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = both_sides(tmp_path)
    file = tmp_path / "limits.toml"
    file.write_text('[rows."a/b/.*fast"]\nleast_change = 0.05\n')
    assert cli.main(["compare", *sides]) == FAILED
    capsys.readouterr()
    assert cli.main(["compare", *sides, "--thresholds", str(file), "--filter", "a/b"]) == OK
    told = capsys.readouterr().out
    assert "least change: 5 % in a/b/.*fast" in told
    assert "filter: a/b" in told


def test_markdown_is_a_verdict_what_changed_and_the_rest_folded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *both_sides(tmp_path), "--markdown"]) == FAILED
    told = capsys.readouterr().out
    lines = told.splitlines()
    assert lines[0].startswith("**gpulift: ❌ 1 slower, 0 faster, 3 same**")
    first, rest, conditions = told.split("<details>")
    assert first.count("regressed | `a/b/n:1/fast` |") == 1
    assert "+2.0" in first
    assert rest.startswith("<summary>3 rows without a known change</summary>\n\n| ")
    assert rest.count("equivalent |") == 3
    assert "Thresholds and conditions" in conditions
    assert "a change is more than 0.5 %" in conditions
    assert told.count("<details>") == told.count("</details>") == 2
    assert "<b>" not in told, "names are no markup"
    for table in (first, rest):
        cells = {line.count(" | ") for line in table.splitlines() if line.startswith("| ")}
        assert len(cells) == 1


def test_markdown_of_many_rows_stays_a_comment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [sample.arm(f"arm{n}", 1e-3, **QUIET) for n in range(130)]
    sides = [
        str(
            sample.write(tmp_path / str(s), sample.launches(2, "a/b", CASE, many, seed=s, blocks=1))
        )
        for s in (1, 2)
    ]
    cli.main(["compare", *sides, "--markdown"])
    told = capsys.readouterr().out
    assert "And 30 more: `./gpulift compare --all` shows them." in told
    assert len(told) < 65_536


def test_cards_without_a_known_hash_are_counted_as_the_table_counts_them(tmp_path: Path) -> None:
    base, head = (
        [read_run(sample.write(tmp_path / model, records(seed=s, context=gpu("", model))))]
        for s, model in enumerate(("NVIDIA A100", "NVIDIA H200"))
    )
    found = compare(base, head, "gpu-model")
    assert "1 and 1 of their cards" in found.question
    assert "cards: 1 in base, 1 in head" in found.rows[0].verdict.reason
