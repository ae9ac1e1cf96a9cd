"""Which record stands for a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.choice import Choice, restricted
from gpulift.analysis.errata import Erratum
from gpulift.analysis.summary import summarise
from gpulift.analysis.today import Declared, Today, digest_of
from gpulift.records.parse import read_record
from gpulift.records.read import Run, read_results, runs_of
from tests import sample
from tests.sample import Json

SOURCE = {"b.py": "0" * 64}
DECLARED = Declared(("base", "new", "other"), {"n": (1, 2)}, digest_of(SOURCE))
QUICK = {**sample.CPU_CONTEXT["options"], "quick": True}
TODAY = Choice(Today({"a/b": DECLARED, "a/gone": "gone"}))


def launches(
    count: int, day: int, arms: str = "base new other", n: int = 1, **how: Any
) -> list[Json]:
    """Of a case, started on that day of November."""
    own = [sample.arm(name, 1e-3) for name in arms.split()]
    made = sample.launches(count, how.pop("technique", "a/b"), {"n": n}, own, **how)
    day_of = {"schema": "1.14", "started_at": f"2026-11-{day}T00:00:00Z"}
    return [{"source": SOURCE, **one, **day_of} for one in made]


def shown(above: Path, runs: dict[str, list[Json]], choice: Choice = TODAY) -> dict[str, Any]:
    """The arms by case of each run that is left of these, whose machine is one."""
    for name, records in runs.items():
        sample.write(above / "gpu" / name, records)
    found = read_results([above], choose=choice.stand_for)
    return {
        run.folder.name: {
            f"{one.technique}/{one.case_id}": " ".join(arm.name for arm in one.arms)
            for one in run.records
        }
        for run in found
    }


def names(above: Path, runs: dict[str, list[Json]], choice: Choice = TODAY) -> list[str]:
    """The runs that are left."""
    return list(shown(above, runs, choice))


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({}, 3),
        ({"source": {"b.py": "1" * 64}}, 2),
        ({"arms": "base new"}, 2),
        ({"arms": "base new other further"}, 3),
        ({"method": "2"}, 2),
        ({"technique": "ceiling/x"}, 2),
        ({"context": {**sample.CPU_CONTEXT, "driver": "1.2"}}, 2),
        ({"context": {**sample.CPU_CONTEXT, "options": QUICK}}, 2),
    ],
)
def test_a_case_that_was_left_has_the_launches_that_it_lacks_of_the_next_run(
    tmp_path: Path, more: Json, count: int
) -> None:
    of_both = {key: more[key] for key in ("technique",) if key in more}
    of_last = {"source": SOURCE, **{key: more[key] for key in ("source", "method") if key in more}}
    how = {key: value for key, value in more.items() if key not in of_last}
    left = [{**one, "launches": 3} for one in launches(2, 20, **of_both)]
    last = [{**one, **of_last, "launches": 1} for one in launches(2, 21, **how)[1:]]
    folders = [tmp_path / "gpu" / name for name in ("left", "last")]
    for folder, records in zip(folders, (left, last), strict=True):
        sample.write(folder, records)
    found, *_ = TODAY.stand_for(runs_of(folders), together=True)
    assert len(found.records) == count
    assert {arm.name for one in found.records for arm in one.arms} == {"base", "new", "other"}
    apart, *_ = TODAY.stand_for(runs_of(folders))
    assert len(apart.records) == 2


def test_a_record_that_is_in_two_runs_is_no_further_launch(tmp_path: Path) -> None:
    left = [{**one, "launches": 3} for one in launches(2, 20)]
    for name in ("left", "copied"):
        sample.write(tmp_path / "gpu" / name, left)
    folders = sorted((tmp_path / "gpu").iterdir())
    (found,) = TODAY.stand_for(runs_of(folders), together=True)
    assert len(found.records) == 2


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "chosen"])
def test_a_metric_that_an_erratum_hides_is_left_out(tmp_path: Path, count: int) -> None:
    wrong = Erratum("x", "x", "x", "x", runs=("*",), metrics=("seen",), hides=True)
    records = launches(1, 20)
    for arm in records[0]["arms"]:
        arm["metrics"] = {"seen": 1.0, "right": 2.0}
    for name in "ab"[:count]:
        sample.write(tmp_path / "gpu" / name, records)
    found = Choice(TODAY.today, (wrong,)).stand_for(
        runs_of([tmp_path / "gpu" / name for name in "ab"[:count]])
    )
    metrics = [arm.metrics for run in found for one in run.records for arm in one.arms]
    assert metrics == [{"right": 2.0}] * len(metrics) != []


def test_each_case_is_of_the_run_that_has_enough_launches_of_it_then_of_the_newest(
    tmp_path: Path,
) -> None:
    skipped = sample.unmeasured("a/c", {"n": 1}, "skipped", "no such library")
    of_c: Json = {"technique": "a/c"}
    runs = {
        "full": [*launches(3, 20), skipped],
        "newer": launches(2, 22, **of_c),
        "older": [*launches(2, 21, seed=2, **of_c), *launches(1, 21, n=2, **of_c)],
        "one-launch": launches(1, 23),
    }
    assert {run: [*cases] for run, cases in shown(tmp_path, runs, Choice()).items()} == {
        "full": ["a/b/n:1"],
        "newer": ["a/c/n:1"],
        "older": ["a/c/n:2"],
    }


def test_a_case_is_of_the_newest_whole_run_however_much_else_a_run_has(tmp_path: Path) -> None:
    runs = {
        "of-much": [*launches(3, 20), *launches(3, 20, technique="a/c")],
        "whole": launches(3, 21),
        "broken-off": launches(2, 22),  # of three that were planned
    }
    assert {run: [*cases] for run, cases in shown(tmp_path, runs, Choice()).items()} == {
        "of-much": ["a/c/n:1"],
        "whole": ["a/b/n:1"],
    }


@pytest.mark.parametrize(
    "older",
    [
        launches(3, 20, arms="chain new"),  # another baseline
        launches(3, 20, arms="base op_by_op"),  # no arm that is there
        launches(3, 20, arms="base new op_by_op"),  # one that is gone beside one that is there
    ],
)
def test_one_launch_of_todays_arms_comes_before_three_of_others(
    tmp_path: Path, older: list[Json]
) -> None:
    assert names(tmp_path, {"older": older, "todays": launches(1, 21)}) == ["todays"]


def test_an_older_baseline_gives_way_to_todays_where_that_was_measured(tmp_path: Path) -> None:
    arms = [sample.arm(name, time) for name, time in (("new", 1e-3), ("base", 3e-3))]
    sample.write(tmp_path / "gpu" / "older", sample.launches(3, "a/b", {"n": 1}, arms))
    sample.write(tmp_path / "gpu" / "else", launches(1, 21, technique="a/c"))
    found = read_results([tmp_path], choose=TODAY.stand_for)
    (row,) = (row for run in found for row in summarise(run).worths if row.technique == "a/b")
    assert (row.arm, row.baseline) == ("new", "base")
    assert row.speedup.value == pytest.approx(3, rel=0.01)
    (alone,) = read_results([tmp_path / "gpu" / "older"], choose=TODAY.stand_for)
    assert [one.baseline for one in summarise(alone).worths] == ["new"]


def test_what_is_gone_is_left_where_there_is_nothing_else(tmp_path: Path) -> None:
    runs = {"a": launches(1, 20, arms="chain new"), "b": launches(1, 21, technique="a/gone")}
    assert names(tmp_path, runs) == ["b", "a"]


def test_three_runs_of_a_launch_each_count_as_three_launches(tmp_path: Path) -> None:
    other = {"source": {"b.py": "1" * 64}}
    older = [{**one, **other} for one in launches(2, 20)]
    later = {f"later-{day}": launches(1, day) for day in (21, 22, 23)}
    assert names(tmp_path, {"older": older, **later}) == ["later-23"]


def test_launches_of_another_text_are_not_counted_together(tmp_path: Path) -> None:
    runs = {
        f"text-{day}": [{**one, "source": {"b.py": str(day) * 32}} for one in launches(1, day)]
        for day in (21, 22)
    }
    assert names(tmp_path, {"older": launches(2, 20), **runs}) == ["older"]


def test_a_ratio_that_an_erratum_withholds_comes_last(tmp_path: Path) -> None:
    error = Erratum("x", "x", "x", "x", runs=("*/older",), leads=False)
    known = Choice(TODAY.today, (error,))
    runs = {"older": launches(3, 20), "newer": launches(1, 21)}
    assert names(tmp_path, runs, known) == ["newer"]
    of_an_arm = Erratum("x", "x", "x", "x", runs=("*/older",), arms="^new$", leads=False)
    assert names(tmp_path, runs, Choice(TODAY.today, (of_an_arm,))) == ["older"]


def test_a_case_that_gained_an_axis_is_the_same_case(tmp_path: Path) -> None:
    swept = Declared(DECLARED.arms, {"n": (1,), "regime": ("burst", "sustained")})
    known = Choice(Today({"a/b": swept}))
    newer = launches(3, 21)
    for one in newer:
        one["case"], one["case_id"] = {"n": 1, "regime": "burst"}, "n:1/regime:burst"
    assert names(tmp_path, {"older": launches(3, 20), "newer": newer}, known) == ["newer"]


def test_arms_that_the_run_left_out_are_of_the_next_one_that_has_them(tmp_path: Path) -> None:
    runs = {"all": launches(1, 20), "some": launches(3, 21, arms="base new")}
    assert shown(tmp_path, runs) == {
        "some": {"a/b/n:1": "base new"},
        "all": {"a/b/n:1": "base other"},
    }


def test_a_ladder_is_of_one_run(tmp_path: Path) -> None:
    known = Choice(Today({"job/ladder": DECLARED}))
    of: Json = {"technique": "job/ladder"}
    runs = {"all": launches(1, 20, **of), "some": launches(3, 21, arms="base new", **of)}
    assert names(tmp_path, runs, known) == ["some"]


def test_a_record_of_some_of_its_arms_has_their_ratios_as_before() -> None:
    arms = [sample.arm(name, time) for name, time in (("x", 3e-3), ("y", 2e-3), ("z", 1e-3))]
    whole = [read_record(one) for one in sample.launches(3, "a/b", {"n": 1}, arms)]
    part = [restricted(one, ["z"]) for one in whole]
    assert [one.id for one in part] == [one.id for one in whole]
    (row,) = summarise(Run(Path(), tuple(part))).worths
    every = {one.arm: one for one in summarise(Run(Path(), tuple(whole))).worths}
    assert row.arm == "z"
    assert row.speedup == every["z"].speedup
