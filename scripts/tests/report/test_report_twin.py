"""The Markdown twin: short enough for a comment, and honest about what was cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.report import twin
from tests import runs_made, sample
from tests.report.test_report import pages, summary

pytestmark = pytest.mark.world


def test_what_fits_is_whole() -> None:
    parts = [("one", "\na\n\n"), ("two", ""), ("three", "b")]
    assert twin.fit(parts) == "a\n\nb\n"


def test_only_the_longest_parts_are_cut_and_say_by_how_much() -> None:
    rows = "\n".join(f"| row {number:04d} |" for number in range(500))
    made = twin.fit([("short", "whole"), ("the rows", rows), ("last", "also whole")], limit=2000)
    assert len(made) <= 2000
    assert made.startswith("whole\n\n| row 0000 |")
    assert made.endswith("also whole\n")
    kept = made.count("| row")
    assert f"*{500 - kept} more lines of the rows are only on the page.*" in made


def test_two_long_parts_share_the_room() -> None:
    rows = "\n".join(f"line {number:05d}" for number in range(1000))
    made = twin.fit([("a", rows), ("b", rows)], limit=6000)
    assert len(made) <= 6000
    assert abs(made.index("of a are") - len(made) / 2) < 300


def test_the_first_part_is_whole_while_it_leaves_half_of_the_room() -> None:
    answer = "\n".join(f"answer {number:03d}" for number in range(200))
    rows = "\n".join(f"line {number:05d}" for number in range(1000))
    made = twin.fit([("the answer", answer), ("a", rows), ("b", rows)], limit=6000)
    assert len(made) <= 6000
    assert made.startswith(f"{answer}\n\nline 00000")
    assert "more lines of a are" in made
    too_long = twin.fit([("the answer", rows), ("a", rows)], limit=6000)
    assert "more lines of the answer are" in too_long


def test_a_report_of_many_cases_stays_below_what_github_takes(tmp_path: Path) -> None:
    arms = [sample.arm("slow", 2e-3), *(sample.arm(f"fast_{i}", 1e-3) for i in range(4))]
    records = [sample.record("a/b", {"n": n, "name": "x" * 90}, arms) for n in range(80)]
    _, made = pages([summary(records)], tmp_path)
    assert len(made) < 65_536
    assert "only on the page" in made or "are on the page" in made


def test_the_answer_is_before_its_grounds(tmp_path: Path) -> None:
    _, made = pages([summary(runs_made.full_gpu())], tmp_path)
    heads = (
        "The answer:",
        "How close is it to its measured peaks?",
        "Each technique: expected and measured",
        "Which published claims",
        "What was not measured",
        "Conditions",
    )
    places = [made.index(head) for head in heads]
    assert places == sorted(places)
