"""What sets the pace of an arm, and what may lead for it."""

from __future__ import annotations

from typing import Any

import pytest

from gpulift.analysis.arms import LAUNCHES
from gpulift.analysis.bounds import SLEEPS, Bound, bound_of
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.gains import gains_of, without_withheld
from gpulift.analysis.standing import (
    BEYOND,
    CONTROL,
    HOST_BOUND,
    UNEQUAL,
    qualm,
)
from gpulift.analysis.summary import Summary
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from tests import sample
from tests.figures import summary
from tests.sample import CPU_CONTEXT, Json, arm

WAITS = {"seconds": 1e-6, "held": False}  # issuing a window takes as long as the device
WORKS = {"seconds": 1e-3, "held": False}
CPU: Json = {"context": CPU_CONTEXT}


def read(arms: list[Json], case: Json | None = None, **top: Any) -> list[Record]:
    made = sample.launches(3, "a/b", case or {"n": 1}, arms, **top)
    return [read_record(one) for one in made]


@pytest.mark.parametrize(
    ("one", "top", "kind"),
    [
        (WAITS, {}, "host"),
        ({**WAITS, "clock": "host"}, {}, "host"),
        ({**WAITS, "held": True}, {}, "device"),
        (WORKS, {}, "device"),
        ({**WORKS, "cost": {"bytes": 1.0, "roof": "host_link/h2d"}}, {}, "link"),
        ({**WORKS, "cost": {"bytes": 1.0, "roof": "gpu_link"}}, {}, "link"),
        ({**WORKS, "cost": {"bytes": 1.0, "roof": "device_memory"}}, {}, "device"),
        (WORKS, CPU, "processor"),
        ({**WORKS, "cost": {"bytes": 1.0, "roof": "storage/read"}}, CPU, "disk"),
        (WORKS, {**CPU, "notes": {"store": "emulated: 100 MB/s"}}, "sleep"),
        (WORKS, {**CPU, "notes": {"step": "emulated: sleeps 5 ms"}}, "sleep"),
        (WORKS, {**CPU, "notes": {"step": "emulated: calls 9 operations"}}, "processor"),
    ],
)
def test_windows_notes_and_roofs_tell_what_bounds_an_arm(one: Json, top: Json, kind: str) -> None:
    assert bound_of(read([{**arm("x", 1.0), **one}], **top), "x").kind == kind


def test_the_host_s_share_and_the_launches_stand_beside_it() -> None:
    one = {**arm("x", 1.0), **WAITS, "metrics": {"kernel_launches_per_step": 768.0}}
    assert bound_of(read([one]), "x").shown == "host 1.00, 768 launches a step"


@pytest.mark.parametrize(("launches", "kind"), [(6000.0, "device"), (4000.0, "host")])
def test_a_host_that_waits_for_a_place_in_the_queue_sets_no_pace(
    launches: float, kind: str
) -> None:
    """A window is 10 steps, of which 1 % is left as it has issued them."""
    one = {**arm("x", 1.0), **WAITS, "metrics": {"kernel_launches_per_step": launches}}
    assert bound_of(read([one]), "x").kind == kind


def test_launches_that_one_launch_counted_are_those_of_all() -> None:
    counted, *others = read([{**arm("x", 1.0), **WAITS, "metrics": {LAUNCHES: 6000.0}}])
    uncounted = read([{**arm("x", 1.0), **WAITS}])[1:]
    assert bound_of([*uncounted, counted], "x").kind == "device"
    assert bound_of([*others, *uncounted], "x").launches == 6000


@pytest.mark.parametrize(("schema", "kind"), [("1.14", "host"), ("1.15", "")])
def test_of_a_later_launch_alone_it_is_not_known_whether_the_queue_was_full(
    schema: str, kind: str
) -> None:
    later = read([{**arm("x", 1.0), **WAITS}], schema=schema)[1:]
    assert bound_of(later, "x").kind == kind


def test_the_median_launch_decides() -> None:
    records = [*read([{**arm("x", 1.0), **WAITS}])[:1], *read([{**arm("x", 1.0), **WORKS}])]
    assert bound_of(records, "x").kind == "device"


def test_work_on_a_gpu_without_device_events_is_not_told() -> None:
    made = sample.launches(1, "a/b", {"n": 1}, [arm("jit", 1e-3, clock="host")])
    del made[0]["arms"][0]["windows"]["device_s"]
    assert bound_of([read_record(made[0])], "jit") == Bound()


def test_what_was_not_measured_or_another_tool_measured_has_no_bound() -> None:
    records = read([arm("x", 1e-3)])
    assert bound_of(records, "y") == Bound()
    imported = read([arm("x", 1e-3)], kind="import", imported={})
    assert bound_of(imported, "x") == Bound()


# --- What may lead ---


def row_of(
    arms: list[Json], case: Json | None = None, count: int = 3, id: str = "a/b", **top: Any
) -> Summary:
    return summary(sample.launches(count, id, case or {"n": 1}, arms, **top))


SOUND = [arm("old", 2e-3), arm("new", 1e-3)]
WAITING = [arm("old", 1e-6, held=False), arm("new", 2e-5)]
MODEL: Json = {"model": "gpt2"}


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (row_of(SOUND), ""),
        (row_of(WAITING), HOST_BOUND),
        (row_of(WAITING, launch_bound=True), ""),
        (row_of(WAITING, id="launch/graph", schema="1.6"), ""),
        (row_of([arm("old", 1e-6, clock="host"), arm("new", 2e-5)]), ""),
        (row_of([arm("old", 1e-6, clock="host"), arm("new", 5e-5)], MODEL), HOST_BOUND),
        (row_of(SOUND, notes={"store": "emulated: 1 MB/s"}), SLEEPS),
        (row_of(SOUND, controls=["old"]), CONTROL),
        (row_of(SOUND, count=1), ""),
        (row_of([SOUND[0], arm("new", 1e-3, cost={"items": 4.0})], MODEL), UNEQUAL),
        (row_of([arm("old", 2.9e-2), arm("new", 1e-3)]), ""),
        (row_of([arm("old", 3.1e-2), arm("new", 1e-3)]), BEYOND),
        (row_of([arm("old", 1e-3), arm("new", 3.1e-2)]), BEYOND),
        (row_of([SOUND[0], arm("new", 1e-3, cost={"items": 4.0})]), ""),
        (row_of([SOUND[0], arm("new", 1e-3, cost={"items": 4.0}, ranks=4)], MODEL), ""),
    ],
)
def test_what_speaks_against_a_row(made: Summary, why: str) -> None:
    assert qualm(made.worths[0]) == why


def test_a_known_error_withholds_its_arms_alone_beside_any_qualm() -> None:
    made = row_of([*WAITING, arm("other", 1e-3)])
    error = Erratum("x", "x", "x", "x", runs=("*",), arms="new", leads=False)
    gains = {one.row.arm: one for one in gains_of([made], doubts_of([made], [error]))}
    assert {name: one.grade.withheld for name, one in gains.items()} == {"new": "x", "other": ""}
    assert {one.qualm for one in gains.values()} == {HOST_BOUND}
    assert [row.arm for row in without_withheld(made, doubts_of([made], [error])).worths] == [
        "other"
    ]


def test_a_row_says_what_bounds_both_of_its_arms() -> None:
    (row,) = row_of(WAITING).worths
    assert row.bound == "device / host 1.00"
    assert row.remarks == ("host-bound: old 1.00",)
    (row,) = row_of(SOUND, notes={"store": "emulated: 1 MB/s"}).worths
    assert (row.bound, row.remarks) == ("sleep", (SLEEPS,))
    (row,) = row_of(SOUND).worths
    assert (row.bound, row.remarks) == ("device", ())
