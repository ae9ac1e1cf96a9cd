"""What ran on other cards of a host meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.neighbours import neighbours_at, neighbours_of
from gpulift.records.model import Record
from gpulift.records.parse import read_record
from gpulift.records.read import read_results
from tests import sample
from tests.sample import Json


def measured(card: str, begin_s: float, host: str = "b007", further: str = "") -> Json:
    """A case on a card whose windows take ten seconds from then, behind twenty of checks."""
    context = sample.gpu_context(gpu={"card": card}, host={"id": host, "id_of": "boot_id"})
    if further:
        context["gpus"] = [{"name": "NVIDIA H200", "card": one} for one in (card, further)]
    made = sample.record("a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 1e-3)])
    made["context"], made["time_s"] = context, {"total": 30.0, "energy": 0.0}
    for one in made["arms"]:
        windows: dict[str, Any] = one["windows"]
        windows["start_s"] = [begin_s] * (len(windows["host_s"]) - 1) + [begin_s + 10]
    return made


def record(run: str, *of: Any, **how: Any) -> Record:
    return replace(read_record(measured(*of, **how)), file=Path(f"{run}/a.b.jsonl"))


@pytest.mark.parametrize(
    ("other", "cards"),
    [
        (record("two", "bb", 5.0), 1),
        (record("two", "bb", 28.0), 1),  # its checks ran
        (record("two", "bb", 50.0), 0),  # it began later
        (record("two", "bb", 5.0, "0ther"), 0),  # another host
        (record("two", "aa", 5.0), 0),  # the same card
        (record("one", "bb", 5.0), 0),  # the same run
        (record("two", "bb", 5.0, further="cc"), 2),
        (record("two", "bb", 5.0, further="aa"), 0),  # of both cards
    ],
)
def test_runs_on_other_cards_of_the_host_count_while_windows_were_taken(
    other: Record, cards: int
) -> None:
    mine = record("one", "aa", 0.0)
    assert neighbours_of([mine, other]).get(mine.id, 0) == cards


def test_no_host_and_no_windows_tell_of_no_neighbour() -> None:
    untold = [record(run, card, 0.0, "") for run, card in (("one", "aa"), ("two", "bb"))]
    assert neighbours_of(untold) == {}
    bare = replace(record("two", "bb", 0.0), arms=())
    assert neighbours_of([record("one", "aa", 0.0), bare]) == {}


def test_runs_that_lie_beside_are_asked(tmp_path: Path) -> None:
    above = tmp_path / "nvidia-h200"
    mine = sample.write(above / "one", [measured("aa", 0.0)])
    sample.write(above / "two", [measured("bb", 5.0)])
    (above / "broken").mkdir()
    (above / "broken" / "a.b.jsonl").write_text("{}\n", "utf-8")
    runs, said = read_results([mine]), list[str]()
    assert neighbours_at(runs, said.append) == {runs[0].records[0].id: 1} | {
        one.id: 1 for one in read_results([above / "two"])[0].records
    }
    assert len(said) == 1
    assert "broken" in said[0]


def test_folders_beside_a_run_that_lies_elsewhere_are_not_read(tmp_path: Path) -> None:
    mine = sample.write(tmp_path / "one", [measured("aa", 0.0)])
    sample.write(tmp_path / "two", [measured("bb", 5.0)])
    assert neighbours_at(read_results([mine]), print) == {}
