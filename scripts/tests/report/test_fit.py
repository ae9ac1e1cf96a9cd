"""Speed over memory of what makes a model fit, from made-up records."""

from __future__ import annotations

import pytest

from gpulift.report import fit, plots
from gpulift.report.drawing import Drawing
from gpulift.verdicts.cases import Case
from tests.analysis.test_ladder import GIB, LLAMA, rung
from tests.figures import summary
from tests.sample import Json, launches, skipped_arm

FITTING = {  # seconds, GiB
    "none": (0.2, 40),
    "full": (0.25, 28),
    "mlp": (0.2, 29.8),
    "budget": (0.195, 30),
}


def fitted(count: int = 3, *more: Json, noise: float = 0.0) -> list[Json]:
    """Launches of steps that need less memory, each over the same baseline."""
    arms = [
        rung(name, seconds, memory=round(size * GIB), launch_noise=noise)
        for name, (seconds, size) in FITTING.items()
    ]
    return launches(count, "job/frontier", {**LLAMA, "tokens": 16384}, [*arms, *more])


def case_of(records: list[Json]) -> Case:
    (case,) = summary(records).cases
    return case


def drawn(records: list[Json], about: str = "") -> Drawing:
    case = case_of(records)
    return fit.drawing("fit", case, fit.points_of(case), about)


def test_each_measured_arm_is_a_point_the_baseline_at_1() -> None:
    points = fit.points_of(
        case_of(fitted(3, skipped_arm("full_half_optimizer_on_host", "no room")))
    )
    shown = [(one.arm, round(one.speed.value, 2), one.memory_bytes // GIB) for one in points]
    assert shown == [
        ("none", 1.0, 40),
        ("full", 0.8, 28),
        ("mlp", 1.0, 29),
        ("budget", 1.03, 30),
    ]
    assert not any(one.waits for one in points)
    left = fit.points_of(case_of(fitted()), ["mlp"])
    assert [one.arm for one in left] == ["none", "full", "budget"]


@pytest.mark.parametrize(
    ("count", "noise", "best"),
    [
        (3, 0.0, ["full", "budget"]),
        (3, 0.2, list(FITTING)),
        (1, 0.0, ["full", "budget"]),
    ],
    ids=["sure", "not sure", "without intervals"],
)
def test_on_the_frontier_is_what_nothing_surely_beats_in_as_little_memory(
    count: int, noise: float, best: list[str]
) -> None:
    case = case_of(fitted(count, noise=noise))
    assert [one.arm for one in fit.points_of(case) if one.best] == best
    (axes,) = drawn(fitted(count, noise=noise)).figure.axes
    black = [one.get_text() for one in axes.texts if one.get_color() == plots.INK]
    assert len(black) == len(best)


def test_the_text_has_each_with_its_speed_and_memory() -> None:
    drawing = drawn(fitted(), "below it")
    assert drawing.alt.startswith(
        "Llama 1B on NVIDIA H200, speed vs all activations kept / peak memory: all activations"
        " kept 1.00/40.0 GiB, full checkpointing 0.800×/28.0 GiB, "
    )


def test_labels_cover_neither_points_nor_each_other_and_stay_inside() -> None:
    figure = drawn(fitted(), "below it").figure
    (axes,) = figure.axes
    boxes = [one.get_window_extent() for one in axes.texts]
    assert len(boxes) == len(FITTING)
    for number, box in enumerate(boxes):
        assert axes.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_an_arm_that_waits_for_the_host_is_hollow_and_says_so() -> None:
    records = fitted(3, rung("full_half_optimizer_on_host", 1.2, memory=31 * GIB, held=False))
    for one in records:
        windows = one["arms"][-1]["windows"]
        windows["enqueue_s"] = windows["device_s"]
    drawing = drawn(records)
    (axes,) = drawing.figure.axes
    assert drawing.alt.endswith(
        "full, half of AdamW offloaded 0.167×/31.0 GiB*; *the host issues or waits throughout."
    )
    faces = [line.get_markerfacecolor() for line in axes.lines]
    assert faces.count("none") == 1


def test_the_name_of_an_arm_that_nobody_named_is_its_own() -> None:
    own = rung("mine", 0.1, memory=20 * GIB)
    drawing = drawn(fitted(3, own))
    assert "mine 2.00×/20.0 GiB" in drawing.alt
