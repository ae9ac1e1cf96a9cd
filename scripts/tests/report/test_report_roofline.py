"""The roofline: where points lie, what is drawn and said, and what cannot be placed."""

from __future__ import annotations

import numpy as np
import pytest

from gpulift.report import planned, roofline
from gpulift.report.limits import USUAL
from gpulift.verdicts.cases import group_cases
from tests import runs_made, sample
from tests.figures import HOSTILE, machine_views, summary

FLOPS = 2.0 * 8192**3


def product(
    roof: str = "gemm/bf16", flops: float = FLOPS, shape: str = "8192x8192x8192"
) -> list[sample.Json]:
    """A ceiling of 800 TFLOP/s, and a technique that reaches half of it."""
    cost = {"flops": flops, "roof": roof}
    ceiling = [sample.arm("bf16", flops / 800e12, cost=cost, launch_noise=0.0, noise=0.0)]
    arms = [
        sample.arm("fp32", flops / 40e12, cost={"flops": flops, "roof": "gemm/fp32"}),
        sample.arm("bf16", flops / 400e12, cost=cost, launch_noise=0.0, noise=0.0),
    ]
    return [
        *sample.launches(3, "ceiling/gemm", {"regime": "burst"}, ceiling),
        *sample.launches(3, "precision/matmul", {"shape": shape}, arms),
    ]


def test_a_product_is_placed_at_its_least_traffic_and_measured_against_its_own_roof() -> None:
    (point,) = [p for p in roofline.points(summary(product())) if not p.ceiling]
    assert point.intensity == pytest.approx(FLOPS / (3 * 8192**2 * 2))
    assert point.share == pytest.approx(0.5)
    assert point.rate.value == pytest.approx(400e12)


@pytest.mark.parametrize(
    ("roof", "bytes_moved"),
    [
        ("gemm/fp32", 4 * (6 + 15) + 4 * 10),
        ("gemm/fp8", (6 + 15) + 2 * 10),
        ("gemm/int8", (6 + 15) + 4 * 10),
    ],
)
def test_least_traffic_counts_each_matrix_once(roof: str, bytes_moved: int) -> None:
    cost = {"flops": 60.0, "roof": roof}
    made = summary(
        sample.launches(1, "precision/matmul", {"shape": "2x5x3"}, [sample.arm("a", 1, cost=cost)])
    )
    case = group_cases(made.run.records, "technique")[0]
    assert roofline.least_traffic(case, case.first.arms[0]) == bytes_moved


@pytest.mark.parametrize("shape", ["8192x8192", "8192x8192x4096", "0x1x1", "9" * 9000, "$x_{"])
def test_without_a_shape_that_gives_its_operations_a_product_has_no_intensity(shape: str) -> None:
    found = [p for p in roofline.points(summary(product(shape=shape))) if not p.ceiling]
    assert [p.intensity for p in found] == [None]


def steps() -> list[sample.Json]:
    """Training steps at half of the product's ceiling."""
    cost = {"bytes": 0.0, "flops": 8e12, "items": 32.0, "item": "image", "roof": "gemm/bf16"}
    arms = [sample.arm(name, 0.02, cost=cost, noise=0.0, launch_noise=0.0) for name in ("a", "b")]
    return sample.launches(2, "training/step", {"batch": 32, "shape": "3x224x224"}, arms)


def test_a_whole_step_has_its_share_of_the_roof_and_no_intensity() -> None:
    records = [*product(), *steps()]
    found = [p for p in roofline.points(summary(records)) if p.technique == "training/step"]
    assert [(p.arm, p.intensity) for p in found] == [("a", None), ("b", None)]
    assert [p.share for p in found] == pytest.approx([0.5, 0.5])
    drawn = roofline.drawing(summary(records), 0)
    assert drawn is not None
    assert len(drawn.figure.axes) == 2
    assert "Shares by roof: gemm/bf16 50 %; training steps of gemm/bf16 50 %." in drawn.alt


def test_steps_of_a_run_without_roofs_are_held_against_those_of_its_machine() -> None:
    roofs, others = summary(product()), summary(steps(), "2026-11-22-abc1234")
    assert roofline.drawing(others, 1) is None
    alone, together = roofline.drawing(roofs, 0), roofline.drawing(roofs, 0, [others])
    assert alone is not None
    assert together is not None
    assert "training steps" not in alone.alt
    assert "gemm/bf16 50 %; training steps of gemm/bf16 50 %." in together.alt


def test_a_report_draws_them_with_the_first_run_that_has_roofs() -> None:
    found = [summary(product()), summary(product(), "again"), summary(steps(), "of-steps")]
    machines = machine_views(found)
    drawn = [one for one in planned.of_machines(machines, USUAL) if one]
    rooflines = [one.alt for one in drawn if one.name.startswith("roofline-")]
    assert ["training steps" in alt for alt in rooflines] == [True, False]


def test_techniques_without_a_place_in_the_roofline_are_named() -> None:
    arms = [sample.arm("copy", 1e-3), sample.arm("sum", 1e-3)]
    sustained = {"flops": 1e12, "roof": "gemm/bf16"}
    records = [
        *product(),
        *sample.launches(1, "integrity/repeats", {"repeats": 2}, arms),
        *sample.launches(
            1, "a/long", {"regime": "sustained"}, [sample.arm("x", 1, cost=sustained)]
        ),
        sample.unmeasured("a/skipped", {"n": 1}, "skipped", "no such card"),
    ]
    assert roofline.unplaced(summary(records)) == ["a/long", "integrity/repeats"]
    assert roofline.unplaced(summary(product())) == []


def test_a_shape_in_the_notes_places_a_ceiling() -> None:
    records = product()
    for one in records[:3]:
        one["notes"] = {"shape/bf16": "8192x8192x8192"}
    (ceiling,) = [p for p in roofline.points(summary(records)) if p.ceiling]
    assert ceiling.at == pytest.approx((FLOPS / (3 * 8192**2 * 2), 800e12))


def test_the_alternative_text_states_the_finding() -> None:
    drawn = roofline.drawing(summary(product()), 7)
    assert drawn is not None
    assert drawn.name == "roofline-7"
    assert "bf16, 8192x8192x8192, 50 % of gemm/bf16" in drawn.alt
    assert "Roofline of NVIDIA H200" in drawn.alt


def test_ceilings_and_points_are_in_the_figure() -> None:
    drawn = roofline.drawing(summary(product()), 0)
    assert drawn is not None
    top, bottom = drawn.figure.axes
    rates = [float(np.asarray(line.get_ydata())[-1]) for line in top.lines]
    assert any(rate == pytest.approx(800e12) for rate in rates)
    assert any(rate == pytest.approx(989.5e12) for rate in rates)  # datasheet
    assert any("50 % of its roof" in words.get_text() for words in top.texts)
    assert [words.get_text() for words in bottom.texts] == ["gemm/bf16: 800 TFLOP/s", "50 %"]
    assert "3 launches each" in bottom.get_xlabel()


def test_burst_is_never_held_against_a_sustained_roof() -> None:
    records = product()
    for one in records[:3]:
        one["regime"] = "sustained"
    assert all(p.ceiling for p in roofline.points(summary(records)))


def test_what_moves_bytes_only_stands_in_the_second_panel_alone() -> None:
    drawn = roofline.drawing(summary(runs_made.without_gpu()), 0)
    assert drawn is not None
    (axes,) = drawn.figure.axes
    assert "own cases 90 to 100 %" in [words.get_text() for words in axes.texts]
    assert drawn.alt.startswith("Shares of the roofs of AMD EPYC 7B13")


def test_there_is_no_roofline_without_a_measured_roof() -> None:
    assert roofline.drawing(summary(runs_made.with_troubles()), 0) is None


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_do_not_break_the_drawing(name: str) -> None:
    records = product()
    for one in records:
        one["context"]["gpu"]["name"] = name
        for arm in one["arms"]:
            if arm["name"] == "bf16":
                arm["cost"]["roof"] = f"gemm/{name}"
                arm["name"] = name
    drawn = roofline.drawing(summary(records), 0)
    assert drawn is not None
    assert "<script" not in drawn.svg
    assert len(drawn.alt) < 1000
