"""What `run --ranks` takes, and who waits for whom before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.engine.machine import TechniqueInfo
from gpulift.engine.measuring import Options
from gpulift.ground.errors import GpuliftError
from gpulift.ranks import given, store
from gpulift.ranks.launched import LOOPBACK, Launched
from gpulift.ranks.store import Store
from tests.ranks.conftest import KEY, free_port


@pytest.mark.parametrize(
    ("word", "options", "told"),
    [
        ("2", Options(), "--ranks 2: takes given alone"),
        ("given", Options(gpu=0), "leave --gpus out"),
        ("given", Options(gpus=(0, 1)), "leave --gpus out"),
    ],
)
def test_what_cannot_be_is_refused(word: str, options: Options, told: str) -> None:
    with pytest.raises(GpuliftError, match=told):
        given.require_given(word, options)


def test_where_no_launcher_is_it_is_said(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["run", "--ranks", "given"]) == 2
    assert "no launcher started this process" in capsys.readouterr().err


@pytest.fixture
def shared() -> Iterator[Store]:
    pytest.importorskip("torch")
    made = store.meet(Launched("environment", 0, 3, 0, LOOPBACK, free_port()), KEY)
    yield made
    made.close()


def test_ranks_that_do_not_come_are_named(shared: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "MEETING_S", 0.5)
    shared.put("facts/2", {"node": "a"})
    with pytest.raises(GpuliftError, match=r"rank 1 of 3 did not come within"):
        given._gathered(shared, 3)


def test_what_a_rank_fails_by_is_told(shared: Store) -> None:
    shared.put("facts/1", {"node": "a"})
    shared.put("facts/2", {"error": "gpulift-bench is not there"})
    with pytest.raises(GpuliftError, match=r"rank 2: gpulift-bench is not there"):
        given._gathered(shared, 3)


def test_a_rank_with_another_key_is_named(shared: Store) -> None:
    place = Launched("environment", 1, 3, 0, LOOPBACK, shared._place.port)
    store.meet(place, b"another key of 16").put("facts/1", {"node": "a"})
    with pytest.raises(GpuliftError, match=r"rank 0 hears of rank 1 is not signed by its own key"):
        given._gathered(shared, 3)


def rank(node: str, there: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"node": node, "gpu": None, "there": there, "about": {}, "fabric": {}}
    return {**facts, "alike": {}}


def test_groups_meet_where_other_hosts_know_the_first(tmp_path: Path) -> None:
    """Whatever its own name means there."""
    place = Launched("slurm", 0, 2, 0, "node1", 29500)
    one, two = rank("a", "127.0.1.1"), rank("b", "192.0.2.1")
    described = given._described(place, [one, one, two], tmp_path / "hub")
    assert described["address"] == "192.0.2.1"
    assert [place["node"] for place in described["places"]] == [0, 0, 1]
    assert described["facts"]["launcher"] == "slurm"
    assert given._described(place, [one, one], tmp_path / "hub")["address"] == LOOPBACK


def test_what_is_left_out_is_told_by_its_reason() -> None:
    said: list[str] = []
    infos = [
        TechniqueInfo(f"a/{number}", "?", 0, False, (), (), unavailable="it has no ranks")
        for number in range(7)
    ]
    given._tell_left_out([*infos, TechniqueInfo("b/c", "?", 0, False, ("x",), ())], said.append)
    assert said == ["skipped, it has no ranks: a/0, a/1, a/2, a/3, a/4 and 2 more"]
