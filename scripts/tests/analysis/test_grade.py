"""What a shown figure rests on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.doubts import NO_DOUBTS, Doubts, doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.gains import gain_of
from gpulift.analysis.grade import Grade, grade_of, grade_of_arms
from gpulift.analysis.models import with_models
from gpulift.analysis.summary import Summary, summarise, worth_over
from gpulift.analysis.today import Declared, Today, digest_of
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests import sample

SOURCE = {"b.py": "0" * 64}
TODAY = Today({"a/b": Declared(("base", "new"), {"n": (1,)}, digest_of(SOURCE))})


def run(number: int, count: int, card: str = "aa", **how: Any) -> list[Record]:
    """The launches of a run of its own folder and day."""
    arms = [sample.arm(name, 1e-3) for name in how.pop("arms", ("base", "new"))]
    context = sample.gpu_context(gpu={"card": card})
    how = {"source": SOURCE, "schema": "1.14", **how}
    made = sample.launches(count, "a/b", {"n": 1}, arms, context=context, seed=number, **how)
    days = [{**one, "started_at": f"2026-11-{number:02d}T04:00:00Z"} for one in made]
    return [replace(read_record(one), file=Path(f"h200/run-{number}/a.b.jsonl")) for one in days]


def summary(records: list[Record]) -> Summary:
    return summarise(Run(records[0].file.parent, tuple(records)))


def grade(*runs: list[Record], doubts: Doubts = Doubts(today=TODAY)) -> Grade:  # noqa: B008
    """Of the first of these runs, which the others are of the model of."""
    (made,) = with_models([summary(runs[0])], [one for other in runs for one in other])
    return grade_of(made.worths[0], doubts)


@pytest.mark.parametrize(
    ("runs", "marks"),
    [
        ([run(1, 1)], "●○○"),
        ([run(1, 2)], "●○○"),
        ([run(1, 3)], "●●○"),
        ([run(1, 1), run(2, 1), run(3, 1)], "●●○"),
        ([run(1, 3), run(2, 3)], "●●○"),  # of one card
        ([run(1, 3), run(2, 2, "bb")], "●●○"),
        ([run(1, 3), run(2, 3, "bb")], "●●●"),
    ],
)
def test_marks_count_launches_over_runs_and_cards(runs: list[list[Record]], marks: str) -> None:
    found = grade(*runs)
    assert found.marks == marks
    assert found.launches == sum(map(len, runs))
    assert found.runs == len(runs)


def test_launches_of_another_text_are_not_its() -> None:
    other = run(2, 3, source={"b.py": "1" * 64})
    assert (grade(run(1, 1), other).launches, grade(run(1, 1), other).text) == (1, "today's")
    assert grade(other, run(1, 1)).text == "before (2026-11-02)"


def test_what_is_gone_is_said() -> None:
    assert grade(run(1, 3)).gone == ""
    assert grade(run(1, 3, arms=("base", "old"))).gone == "arm"
    assert grade(run(1, 3, arms=("chain", "new"))).gone == "baseline"


def test_what_is_gone_stands_behind() -> None:
    (row,) = summary(run(1, 3, arms=("base", "old"))).worths
    assert gain_of(row, Doubts(today=TODAY)).behind
    assert not gain_of(row, NO_DOUBTS).behind


def test_an_arm_over_another_than_the_baseline_is_there_while_both_are() -> None:
    today = Today({"a/b": Declared(("base", "new", "other"), {"n": (1,)}, digest_of(SOURCE))})
    (case,) = summary(run(1, 3, arms=("base", "new", "other"))).cases
    row = worth_over(case, "other", "new")
    assert row is not None
    found = gain_of(row, Doubts(today=today)).grade
    assert (found.gone, found.launches, found.bound) == ("", 3, "device")
    assert gain_of(row, Doubts(today=TODAY)).grade.gone == "arm"


def test_an_erratum_withholds_its_own_arms_alone() -> None:
    made = summary(run(1, 3, arms=("base", "new", "other")))
    error = Erratum("the seed draws", "x", "x", "x", runs=("*",), arms="^other$", leads=False)
    doubts = doubts_of([made], [error])
    found = {row.arm: grade_of(row, doubts) for row in made.worths}
    assert {arm: one.withheld for arm, one in found.items()} == {
        "new": "",
        "other": "the seed draws",
    }
    assert {row.arm: doubts.doubted(row) for row in made.worths} == {"new": False, "other": True}


def test_what_else_ran_is_said() -> None:
    load = {"own_cores": 1.0, "other_cores": 2.0, "stolen_cores": 0.25}
    records = run(1, 3, host_load=load)
    said = "others kept 2.2 of 16 cores busy"
    assert grade(records).beside == said
    one, two = ({records[0].id: cards} for cards in (1, 3))
    assert grade(records, doubts=Doubts(neighbours=one)).beside == (
        f"beside a run on another card, {said}"
    )
    assert grade(records, doubts=Doubts(neighbours=two)).beside == (
        f"beside runs on 3 other cards, {said}"
    )
    assert grade(run(1, 3)).beside == ""


def test_evidence_comes_first_and_what_is_wrong_last() -> None:
    best = Grade(6, 2, 2, "today's", thrice=2)
    later = [
        replace(best, beside="a run on another card"),
        replace(best, text="before (2026-11-23)"),
        Grade(3, 1, 1, "today's", thrice=1),
        Grade(1, 1, 1, "today's"),
        replace(best, withheld="the clock was wrong"),
        replace(best, gone="arm"),
    ]
    assert sorted(reversed(later), key=lambda one: one.order) == later
    assert best.order < later[0].order


def test_words_say_all_of_it() -> None:
    whole = Grade(
        3, 1, 2, "before (2026-11-23)", "arm", "the clock was wrong", "device", "others worked", 1
    )
    assert whole.words == (
        "3 launches, 2 runs, one card; before (2026-11-23); bound by device; others worked;"
        " arm is gone; the clock was wrong"
    )
    assert Grade(1, 0, 1, "").words == "1 launch, one run"


def test_arms_that_are_held_against_another_than_the_baseline_have_a_grade() -> None:
    records = run(1, 3, arms=("base", "new", "old"))
    known = Doubts(today=TODAY)
    assert grade_of_arms(records, ("new", "base"), known).marks == "●●○"
    assert grade_of_arms(records, ("old", "new"), known).gone == "arm"
