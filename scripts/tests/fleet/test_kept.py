"""What is read of a fleet's folder, and what of it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.fleet.kept import expected, kept_node, meetings
from gpulift.ground.errors import GpuliftError
from tests.fleet import made


def test_a_node_with_its_cards_by_folder(tmp_path: Path) -> None:
    made.node(tmp_path, "a", [made.check(made.MEMORY, 4e12)], card="gpu0")
    made.node(tmp_path, "a", [made.check("health/ecc", verdict="fail")], card="gpu1")
    kept = kept_node(tmp_path, "a")
    assert (kept.code, [card.name for card in kept.cards]) == (0, ["gpu0", "gpu1"])
    first, second = kept.cards
    assert first.model == "nvidia-h200"
    assert [one.id for one in first.roofs] == [made.MEMORY]
    assert [one.id for one in second.open] == ["health/ecc"]


def test_step_times_that_fail_decide_nothing(tmp_path: Path) -> None:
    made.node(tmp_path, "a", [made.check("time/launch/x", 1.0, "fail")])
    (card,) = kept_node(tmp_path, "a").cards
    assert card.roofs == card.open == ()


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (None, "it kept nothing"),
        ("", "did not end: nothing was said"),
        ("gpulift: measuring\nkilled\n\n", "did not end: killed"),
        ("gpulift: no answer: the node is down\n", "the node is down"),
    ],
)
def test_a_node_that_did_not_end_says_why(tmp_path: Path, log: str | None, why: str) -> None:
    if log is not None:
        (made.node(tmp_path, "a", [], code=None) / "log.txt").write_text(log, "utf-8")
    kept = kept_node(tmp_path, "a")
    assert (kept.code, kept.why) == (None, why)


def test_a_node_that_ended_without_a_verdict_says_why(tmp_path: Path) -> None:
    log = made.node(tmp_path, "a", [], code=127) / "log.txt"
    (log.parent / "results" / "qualification.json").unlink()
    log.write_text("sh: no gpulift\ngpulift: exit code 127\nsrun: error: task 0\n", "utf-8")
    assert kept_node(tmp_path, "a").why == "exit code 127 without a verdict: sh: no gpulift"


@pytest.mark.parametrize("content", ["", "[]", '{"checks": 3}', "{" * 100_000])
def test_verdicts_that_cannot_be_read_are_no_answer(tmp_path: Path, content: str) -> None:
    place = made.node(tmp_path, "a", [])
    (place / "results" / "qualification.json").write_text(content, "utf-8")
    kept = kept_node(tmp_path, "a")
    assert kept.code is None
    assert "qualification.json: cannot be read: " in kept.why


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "cannot be read"), ('{"schema": 2, "nodes": []}', "has schema 2; this gpulift reads 1")],
)
def test_another_fleet_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(GpuliftError, match=r"fleet\.json: cannot be read"):
        expected(tmp_path)
    (tmp_path / "fleet.json").write_text(content, "utf-8")
    with pytest.raises(GpuliftError, match=words):
        expected(tmp_path)


def test_pairs_have_the_rate_of_their_launches_or_why_not(tmp_path: Path) -> None:
    made.meeting(tmp_path, "pairs", ["a", "b"], 40e9)
    made.meeting(tmp_path, "pairs", ["a", "c"], None, code=1)
    made.meeting(tmp_path, "pairs", ["b", "c"], None, code=77)
    broken = made.meeting(tmp_path, "groups", ["a", "b", "c"], 40e9)
    next((broken / "results").iterdir()).write_text("{\n", "utf-8")
    good, failed, nothing, group = meetings(tmp_path)
    (rate,) = good.rates.values()
    assert (good.kind, good.nodes, good.why) == ("pairs", ("a", "b"), "")
    assert rate.value == pytest.approx(40e9)
    assert rate.launches == 3
    assert failed.answered
    (tmp_path / "pairs" / "a+c" / "exit_code").unlink()
    assert not next(one for one in meetings(tmp_path) if one.why).answered
    assert (failed.rates, failed.why) == ({}, "exit code 1: nothing was said")
    assert (nothing.rates, nothing.why) == ({}, "")
    assert "cannot be read" in group.why
