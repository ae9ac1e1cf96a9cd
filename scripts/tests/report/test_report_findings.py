"""What the report says in words, against rows with known truth."""

from __future__ import annotations

import re

import pytest

from gpulift.ground.estimate import Estimate
from gpulift.report import findings, marks
from tests import runs_made, sample
from tests.report.test_report import summary


def sweep(gains: dict[int, float], direction: str = "h2d") -> list[sample.Json]:
    made = []
    for size, gain in gains.items():
        arms = [sample.arm("pageable", 1e-3), sample.arm("pinned", 1e-3 / gain)]
        made += sample.launches(3, "transfer/x", {"direction": direction, "bytes": size}, arms)
    return made


def test_from_which_size_on_an_arm_gains() -> None:
    records = sweep({4096: 0.7, 65536: 1.5, 1 << 20: 5.0})
    (said,) = findings.of_rows(summary(records).worths)
    assert said.startswith("pinned: faster in 2 of 3 cases, slower in 1 of 3 cases: 0.7")
    assert re.search(r"; direction h2d: faster from 64 KiB up, 1\.[45]\d× to [45]\.\d\d×$", said)


def test_a_gain_that_larger_sizes_lose_has_no_start() -> None:
    (said,) = findings.of_rows(summary(sweep({4096: 3.0, 65536: 1.5, 1 << 20: 0.5})).worths)
    assert "up" not in said.split(": ", 1)[1].replace("faster in", "")


def test_each_value_of_the_other_axes_has_its_own_start() -> None:
    records = [
        *sweep({4096: 0.7, 65536: 1.5, 1 << 20: 5.0}),
        *sweep({4096: 2.0, 65536: 2.0, 1 << 20: 2.0}, "d2h"),
    ]
    (said,) = findings.of_rows(summary(records).worths)
    first, second = said.split("; ")[1:]
    assert first.startswith("direction d2h: faster from 4 KiB up, ")
    assert second.startswith("direction h2d: faster from 64 KiB up, ")


def test_an_arm_that_always_gains_needs_no_start() -> None:
    (said,) = findings.of_rows(summary(sweep({4096: 2.0, 65536: 3.0, 1 << 20: 4.0})).worths)
    assert said.startswith("pinned: faster in 3 of 3 cases: ")
    assert "from" not in said


def batches(rates: dict[int, float], model: str) -> list[sample.Json]:
    """Steps of so many rows a second, against one row at 100 a second."""
    made = []
    for batch, rate in rates.items():
        smallest, cost = ({"items": float(rows), "item": "row"} for rows in (1, batch))
        arms = [
            sample.arm("smallest_batch", 1e-2, cost=smallest),
            sample.arm("batch", batch / rate, cost=cost),
        ]
        made += sample.launches(3, "batch/x", {"model": model, "batch": batch}, arms)
    return made


def test_the_knee_is_the_smallest_batch_that_is_nearly_the_best() -> None:
    rates = {1: 100.0, 8: 700.0, 32: 970.0, 64: 1000.0, 128: 990.0}
    *_, said = findings.of_rows(summary(batches(rates, "gpt2")).worths)
    assert re.fullmatch(
        r"knee of batch, the smallest within 5 % of the best rate: model gpt2: 32, 9\d\d rows/s, of"
        r" (9|10)\d\d rows/s at 64",
        said,
    )


def test_a_knee_at_the_largest_batch_is_marked() -> None:
    records = [
        *batches({1: 100.0, 8: 800.0, 32: 3200.0}, "lstm"),
        *batches({1: 100.0, 8: 700.0, 32: 300.0}, "mlp"),
    ]
    *_, said = findings.of_rows(summary(records).worths)
    first, second = said.split(": ", 1)[1].split("; ")
    assert re.fullmatch(r"model lstm: 32, the largest measured, 3[12]\d\d rows/s", first)
    assert re.fullmatch(r"model mlp: 8, [67]\d\d rows/s", second)


def test_two_batches_have_no_knee() -> None:
    records = batches({1: 100.0, 8: 800.0}, "lstm")
    assert not [s for s in findings.of_rows(summary(records).worths) if "knee" in s]


def test_one_case_is_named() -> None:
    (said,) = findings.of_rows(summary(sweep({4096: 2.0})).worths)
    assert said.startswith("pinned: ▲ faster, 2.0")
    assert said.endswith("(h2d, 4 KiB)")


def test_few_cases_without_an_axis_are_named_each_with_its_memory() -> None:
    made = []
    for model, gain, share in (("gpt2", 4.0, 0.83), ("resnet50", 5.0, 0.53), ("mlp", 10.0, 1.0)):
        arms = [
            sample.arm("fp32", 1e-2, memory=1 << 30),
            sample.arm("bf16", 1e-2 / gain, memory=round(share * (1 << 30))),
        ]
        made += sample.launches(3, "precision/x", {"model": model}, arms)
    (said,) = findings.of_rows(summary(made).worths)
    assert re.fullmatch(
        r"bf16: faster in 3 of 3 cases: \S+× \(mlp\), \S+× \(resnet50; 0\.530× the memory\),"
        r" \S+× \(gpt2; 0\.830× the memory\)",
        said,
    )


def test_cases_with_other_axes_do_no_harm() -> None:
    arms = [sample.arm("pageable", 1e-3), sample.arm("pinned", 5e-4)]
    records = [
        *sweep({4096: 0.7, 65536: 1.5, 1 << 20: 5.0}),
        *sample.launches(3, "transfer/x", {"mode": "graph"}, arms),
    ]
    (said,) = findings.of_rows(summary(records).worths)
    assert "direction h2d: faster from 64 KiB up" in said


def test_of_many_arms_the_rest_is_counted() -> None:
    arms = [sample.arm("slow", 1e-3), *(sample.arm(f"a{i}", 5e-4) for i in range(15))]
    said = findings.of_rows(summary(sample.launches(3, "a/b", {"n": 1}, arms)).worths)
    assert len(said) == findings.MOST_ARMS + 1
    assert said[-1] == "3 more arms: see the table"


def test_a_mark_has_a_shape_for_its_verdict_and_one_is_on_the_axis() -> None:
    up, down, same = (
        Estimate(2.0, 1.9, 2.1, 3),
        Estimate(0.5, 0.4, 0.6, 3),
        Estimate(1, 0.9, 1.2, 3),
    )
    axis = marks.scale([up, down, same])
    drawn = marks.draw([up, down, same], axis)
    assert 'class="faster"' in drawn
    assert 'class="slower"' in drawn
    assert 'class="neither"' in drawn
    assert axis.x(0.4) < axis.x(1.0) < axis.x(2.1) <= marks.WIDTH - marks.MARGIN
    assert "aria-hidden" in drawn


def test_what_is_far_off_stands_at_the_edge_and_the_axis_says_so() -> None:
    axis = marks.scale([Estimate(12454.0, 11990.0, 12935.0, 3), Estimate(1.1, 1.05, 1.2, 3)])
    assert axis.x(12454.0) == marks.WIDTH - marks.MARGIN
    assert "the rest at its edge" in axis.label


def test_equal_ratios_have_an_axis() -> None:
    axis = marks.scale([Estimate(1.0, 1.0, 1.0, 3)])
    assert axis.low < 1.0 < axis.high
    assert marks.scale([]).x(1.0) == pytest.approx(marks.WIDTH / 2, abs=1)


def test_no_interval_is_no_line() -> None:
    drawn = marks.draw([Estimate(2.0, None, None, 1)], marks.scale([Estimate(2.0)]))
    assert "H" not in drawn
    assert 'class="neither"' in drawn


def test_findings_of_a_whole_run_name_the_best_arm_first() -> None:
    rows = [r for r in summary(runs_made.full_gpu()).worths if r.technique == "precision/matmul"]
    said = findings.of_rows(rows)
    assert [one.partition(":")[0] for one in said] == ["fp8", "bf16", "tf32"]
    assert "27.0×" in said[0]
