"""The figure of a model: which runs it takes, its intervals, and that all who tell it agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulift.analysis.analyse import Beside, analyse
from gpulift.analysis.choice import NOTHING_KNOWN, Choice
from gpulift.analysis.claims import judge
from gpulift.analysis.ledger import read_ledger
from gpulift.analysis.model_records import files_at, records_beside, records_of_models
from gpulift.analysis.models import with_models
from gpulift.analysis.over_runs import (
    UNTOLD_FILES,
    UNTOLD_KERNELS,
    ModelFigure,
    RunFigure,
    apart,
    over_runs,
    speedup_over_runs,
    split,
)
from gpulift.analysis.standing import qualm
from gpulift.analysis.summary import Summary, Worth, summarise
from gpulift.analysis.today import Today, digest_of
from gpulift.commands import citing as cite
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.report import models
from gpulift.verdicts import stats
from tests import sample
from tests.conftest import CHECKOUT
from tests.figures import on_gpu, summary

H200 = "nvidia-h200"
T_2 = 4.302652729749462  # Student's t(0.975), two degrees of freedom


def one_run(value: float, card: str = "aa", launches: int = 3, host: str = "") -> RunFigure:
    return RunFigure(card, card, Estimate(value, 0.9 * value, 1.2 * value, launches), (), host)


def run(number: int, gain: float, card: str = "aa", count: int = 3, **how: Any) -> list[Record]:
    """A run of its own folder and day in which the arm gains so much."""
    quiet = {"noise": 1e-4, "launch_noise": 1e-4, "cost": how.pop("cost", {})}
    arms = [sample.arm("old", 1e-3, **quiet), sample.arm("new", 1e-3 / gain, **quiet)]
    made = sample.launches(
        count, "a/b", {"n": 1}, arms, context=on_gpu("NVIDIA H200", card), seed=number, **how
    )
    for one in made:
        one["started_at"] = f"2026-11-{number + 1:02d}T04:00:00Z"
    file = Path(f"results/run-{number}/a.b.jsonl")
    return [replace(read_record(one), file=file) for one in made]


def figure(*runs: Sequence[Record]) -> ModelFigure:
    found = speedup_over_runs([record for one in runs for record in one], "new", "old")
    assert found is not None
    return found


def test_three_runs_of_a_card_have_the_median_and_intervals_over_runs() -> None:
    found = over_runs([one_run(value) for value in (1.21, 1.0, 1.1)])
    assert found.value.value == pytest.approx(1.1)
    assert found.basis == "3 runs, 1 card"
    sd = math.log(1.1)
    assert found.value.high == pytest.approx(
        1.1 * math.exp(T_2 * sd * math.sqrt(math.pi / 2 / 3)), rel=1e-9
    )
    assert found.new_run is not None
    low, high = found.new_run
    assert high == pytest.approx(1.1 * math.exp(T_2 * sd * math.sqrt(1 + math.pi / 6)), rel=1e-9)
    assert low * high == pytest.approx(1.21)
    assert found.value.launches == 9


def test_fewer_runs_are_called_what_they_are() -> None:
    launch, alone = over_runs([one_run(2.0, launches=1)]), over_runs([one_run(2.0)])
    two = over_runs([one_run(2.0), one_run(8.0, "bb")])
    assert [one.basis for one in (launch, alone, two)] == ["one launch", "one run", "two runs"]
    assert alone.value == one_run(2.0).value
    assert (two.value.value, two.value.low, two.value.high) == pytest.approx((4.0, 1.8, 9.6))
    assert [one.new_run for one in (launch, alone, two)] == [None] * 3
    assert [one.decides for one in (launch, alone, two)] == [False, True, True]
    assert launch.shown.count("one launch") == 1
    assert two.shown == "4.0× [1.8, 9.6], two runs"


def test_runs_of_one_card_tell_less_of_the_model_than_runs_of_many() -> None:
    values = (1.0, 1.001, 1.1, 1.101, 1.2, 1.201)
    pairs = over_runs([one_run(value, "abc"[index // 2]) for index, value in enumerate(values)])
    alone = over_runs([one_run(value, "abcdef"[index]) for index, value in enumerate(values)])
    assert pairs.value.value == alone.value.value
    assert (pairs.basis, alone.basis) == ("6 runs, 3 cards", "6 runs, 6 cards")
    assert pairs.value.half_width is not None
    assert alone.value.half_width is not None
    assert pairs.value.half_width > 1.5 * alone.value.half_width


def test_runs_that_share_a_card_or_a_host_are_one_of_the_sample() -> None:
    """Six cards of three hosts tell of the model what three do; of two hosts, what cards do."""
    values = (1.0, 1.001, 1.1, 1.101, 1.2, 1.201)

    def on(hosts: str, cards: str) -> ModelFigure:
        return over_runs(
            [one_run(*of[:2], host=of[2]) for of in zip(values, cards, hosts, strict=True)]
        )

    pairs = on(" " * 6, "aabbcc")
    for_hosts = on("xxyyzz", "abcdef")
    assert for_hosts.value == pairs.value
    assert for_hosts.new_run == pairs.new_run
    assert for_hosts.basis == "6 runs, 6 cards, 3 hosts"
    assert on("xyzvws", "aabbcc").value == pairs.value, "a card that was moved, or booted again"
    assert on("xyzvws", "aabbcc").basis == "6 runs, 3 cards, 3 hosts"
    few = on("xxxyyy", "abcdef")
    assert few.value == over_runs([one_run(*of) for of in zip(values, "abcdef", strict=True)]).value
    assert few.basis == "6 runs, 6 cards, 2 hosts"


def test_machines_without_a_gpu_are_told_apart_by_their_hosts() -> None:
    values = (1.0, 1.001, 1.1, 1.101, 1.2, 1.201)
    hosts = [one_run(value, "", host="xxyyzz"[index]) for index, value in enumerate(values)]
    cards = [one_run(value, "aabbcc"[index]) for index, value in enumerate(values)]
    assert over_runs(hosts).value == over_runs(cards).value
    assert over_runs(hosts).basis == "6 runs, 3 hosts"
    one_untold = [*hosts[1:], one_run(1.0, "")]
    assert over_runs(one_untold).basis == "6 runs"


def test_two_groups_that_a_run_joins_are_one() -> None:
    runs = [one_run(1.0, card, host=host) for card, host in ("ax", "by", "bx", "cz", "dw")]
    assert [[one.card for one in unit] for unit in apart(runs)] == [["a", "b", "b"], ["c"], ["d"]]


def test_equal_runs_have_an_interval_without_width() -> None:
    found = over_runs([one_run(2.0, card) for card in "abca"])
    assert (found.value.low, found.value.high, found.new_run) == (2.0, 2.0, (2.0, 2.0))


@pytest.mark.parametrize("sizes", [(1,) * 9, (2, 1, 1, 1, 2, 1, 1), (5,) * 6, (4, 1, 1, 3)])
def test_simulated_runs_are_held_as_often_as_promised(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(7)
    trials, of_model, of_run = 1000, 0, 0
    for _ in range(trials):
        cards = [random.normal(0, 0.03) + random.normal(0, 0.02, size) for size in sizes]
        middle = float(np.median(np.concatenate(cards)))
        half = stats.run_spread([one.tolist() for one in cards])
        of_model += abs(middle) <= half.of_median
        of_run += abs(random.normal(0, 0.03) + random.normal(0, 0.02) - middle) <= half.of_new_run
    assert of_model / trials >= 0.94
    assert 0.93 <= of_run / trials <= 0.99


def test_two_cards_are_no_sample_of_cards() -> None:
    logs = (0.0, 0.1, 0.2, 0.3)
    assert stats.run_spread([logs[:2], logs[2:]]) == stats.run_spread([logs])


def test_other_work_is_no_run_of_it() -> None:
    same = [run(number, 2.0 + number / 100) for number in range(3)]
    assert figure(*same).basis == "3 runs, 1 card"
    newer = run(5, 9.0, count=2, cost={"bytes": 5.0})
    assert figure(*same, newer).value.value == pytest.approx(2.01, rel=1e-3)
    source = {"benches/a/b.cpp": "0" * 64}
    assert figure(*same, run(6, 9.0, count=2, source=source)).basis == "3 runs, 1 card"
    newest = [run(number, 9.0, cost={"bytes": 5.0}) for number in (7, 8, 9)]
    assert figure(*same, *newest).value.value == pytest.approx(9.0, rel=1e-3)


def test_runs_of_one_text_are_runs_of_it_though_their_hashes_differ() -> None:
    files, meaning = {"b.py": "0" * 64}, {"b.py": "1" * 64}
    earlier = [run(number, 2.0 + number / 100, source=files) for number in range(2)]
    later = run(3, 2.03, source=meaning, schema="1.14")
    every = [record for one in (*earlier, later) for record in one]
    commit = every[0].context.build.commit
    for told, of_model in (
        ({"a/b": digest_of(meaning)}, True),
        ({"a/b": "another"}, False),
        ({}, False),
    ):
        choice = Choice(Today(texts={commit: told}))
        found = speedup_over_runs(every, "new", "old", choice)
        assert found is not None
        assert found.of_model is of_model


def test_of_too_few_runs_the_newest_of_more_than_a_launch_counts() -> None:
    older, newest = run(1, 2.0), run(2, 3.0, count=1, cost={"bytes": 5.0})
    assert figure(older, newest).value.value == pytest.approx(2.0, rel=1e-3)
    assert speedup_over_runs(older, "third", "old") is None


def test_a_run_of_other_work_has_no_figure_of_the_model_beside_it() -> None:
    same = [one for number in range(3) for one in run(number, 2.0)]
    for cost, shown in (({}, "4 runs, 1 card"), ({"bytes": 5.0}, "")):
        mine = run(4, 2.0, cost=cost)
        (made,) = with_models([summarise(Run(mine[0].file.parent, tuple(mine)))], same)
        assert shown in made.worths[0].on_model
        assert bool(made.worths[0].on_model) == bool(shown)


def test_records_that_are_there_twice_count_once() -> None:
    mine = run(1, 2.0)
    again = [replace(one, file=Path("/other/name/a.b.jsonl")) for one in mine]
    (made,) = with_models([summarise(Run(mine[0].file.parent, tuple(mine)))], again)
    assert made.worths[0].of_model is not None
    assert made.worths[0].of_model.basis == "one run"


def test_crowded_runs_other_models_and_what_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    arms = [sample.arm("old", 2e-3), sample.arm("new", 1e-3)]
    made = sample.launches(2, "a/b", {"n": 1}, arms)
    other = sample.launches(2, "a/b", {"n": 1}, arms, context=sample.CPU_CONTEXT)
    for name in ("one", "two", "crowded"):
        sample.write(tmp_path / name, made)
    sample.mark_crowded(tmp_path / "crowded")
    sample.write(tmp_path / "cpu", other)
    sample.write(tmp_path / "one", sample.launches(1, "a/c", {"n": 1}, arms))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.b.jsonl").write_text("{}\n", encoding="utf-8")
    said: list[str] = []
    files = [*files_at([tmp_path]), *files_at([tmp_path / "one" / "a.b.jsonl"])]
    found = records_of_models(files, [H200], ["a/b"], said.append)
    assert sorted(one.file.parent.name for one in found) == ["one", "one", "two", "two"]
    assert len(said) == 1
    assert "left out" in said[0]
    assert "broken" in said[0]
    beside = records_beside([summary(made)], [tmp_path], said.append)
    assert {one.technique for one in beside} == {"a/b"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([5.2, 5.4, 5.3, 5.5, 5.1, 6.0, 8.0, 7.0, 6.5, 6.1], "the first 5 at 5.10 to 5.50"),
        ([6.0, 8.0, 7.0, 6.5, 6.1, 5.2, 5.4, 5.3, 5.5, 5.1], "the later 5 at 5.10 to 5.50"),
        ([5.2, 5.4, 5.3, 5.5, 6.2, 6.0, 8.0, 7.0, 5.1, 6.1], ""),  # one lies among the others
        ([5.2, 5.4, 5.3, 6.0, 8.0, 7.0], ""),  # which chance does in a tenth of all cases
    ],
)
def test_runs_that_fall_into_earlier_and_later_ones_say_so(values: list[float], said: str) -> None:
    assert said in split(values)
    assert bool(split(values)) == bool(said)


def test_files_that_records_do_not_tell_are_not_known_to_be_equal() -> None:
    told = [run(number, 2.0, source={"a.py": 64 * "a"}) for number in range(3)]
    assert figure(*told).doubts == ()
    untold = figure(*(run(number, 2.0) for number in range(3)))
    assert untold.doubts == (UNTOLD_FILES,)
    assert untold.shown.endswith(f", 3 runs, 1 card, {UNTOLD_FILES}")
    own = [run(number, 2.0, source={"a.py": 64 * "a"}, schema="1.9") for number in range(3)]
    assert figure(*own).doubts == (UNTOLD_KERNELS,)
    assert figure(run(0, 2.0)).doubts == ()  # of one run they are


# --- The committed records: all who tell the figure of a model tell the same ---


@cache
def committed() -> tuple[list[Record], list[Summary]]:
    """All records on H200 cards of techniques that are claimed, and the runs that stand for their
    cases with the model's figures."""
    techniques = {claim.test.technique for claim in read_ledger() if claim.test}
    files = files_at([CHECKOUT / "results" / H200])
    records = records_of_models(files, [H200], techniques, print)
    runs: dict[Path, list[Record]] = {}
    for record in records:
        runs.setdefault(record.file.parent, []).append(record)
    every = [Run(folder, tuple(found)) for folder, found in runs.items()]
    summaries = [summarise(run) for run in NOTHING_KNOWN.stand_for(every)]
    return records, with_models(summaries, records)


def rows() -> dict[tuple[str, str, str, str], Worth]:
    """Of the report, those about the model, by technique, case, arm and baseline."""
    every = (row for one in committed()[1] for row in one.worths)
    told = (row for row in every if row.of_model and row.of_model.decides)
    return {(*row.key, row.baseline): row for row in told}


def figures() -> dict[tuple[str, str, str, str], list[ModelFigure]]:
    """Of the report, by the same: more than one where runs of several kinds of work are known."""
    found: dict[tuple[str, str, str, str], list[ModelFigure]] = {}
    for one in committed()[1]:
        for row in one.worths:
            if row.of_model and row.of_model.of_model:
                found.setdefault((*row.key, row.baseline), []).append(row.of_model)
    return found


@pytest.mark.world
def test_report_and_claims_agree_on_every_committed_case() -> None:
    records, summaries = committed()
    known, seen = rows(), 0
    judged = judge(read_ledger(), records)
    beside = Beside(ledger=read_ledger(), further=tuple(records))
    (view,) = analyse(summaries[:1], beside).claims
    assert {one.claim.id: one.cases for one in view.judgements} == {
        one.claim.id: one.cases for one in judged
    }
    for one in judged:
        test = one.claim.test
        if test is None or test.metric not in ("speedup", "rate"):
            continue
        for case in one.cases:
            row = known.get((test.technique, case.case_id, test.arm, test.baseline))
            if row is not None:
                assert row.of_model is not None
                assert row.of_model.value == case.gain
                seen += 1
    assert seen >= 6


def test_the_models_side_by_side_agree_with_the_report() -> None:
    _, summaries = committed()
    (column,) = models._columns(summaries)
    known = figures()
    for technique in {technique for technique, *_ in known}:
        for row in models._technique_rows([column], technique):
            mine = known.get((technique, row.name, row.arm, row.baseline))
            if mine is not None:
                assert row.cells[0] is not None
                assert row.cells[0] in mine


def test_cite_agrees_with_the_report() -> None:
    records, _ = committed()
    by_technique: dict[str, list[Record]] = {}
    for record in records:
        by_technique.setdefault(record.technique, []).append(record)
    cited: set[tuple[str, str]] = set()
    for row in rows().values():
        case = (row.technique, row.case.case_id)
        baseline = row.case.first.arms[0].name
        if case not in cited and row.baseline == baseline and not qualm(row):
            cited.add(case)
            said = cite.over_runs(row.case.measured[0], by_technique[row.technique])
            assert row.of_model is not None
            several = len(row.of_model.runs) > 1  # else the sentence of its launches has it
            assert (f"{row.arm} {row.of_model.shown}" in said) == several
    assert len(cited) >= 6
