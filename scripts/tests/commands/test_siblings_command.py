"""`gpulift qualify --among`: nodes that were measured apart, with a slow one among them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.ground.errors import FAILED, OK, USAGE
from tests import sample

pytestmark = pytest.mark.world

SIZE = float(1 << 30)


def node(folder: Path, rate: float) -> Path:
    """A node with one card, whose memory has this rate, and the same with all cards busy."""
    cost = {"bytes": SIZE, "roof": "device_memory"}
    read = sample.arm("read", SIZE / rate, cost=cost, noise=0.0, launch_noise=0.0)
    context = sample.gpu_context(gpu={"card": f"card{folder.name[-1]}"})
    case = {"bytes": 1 << 30}
    made = sample.launches(3, "ceiling/device_memory", case, [read], context=context)
    sample.write(folder / "results" / "gpu0", made)
    sample.mark_crowded(sample.write(folder / "results" / "together0", made))
    return folder


def nodes(above: Path, *rates: float) -> list[str]:
    return [str(node(above / f"node{i}", rate)) for i, rate in enumerate(rates)]


def test_the_slow_card_is_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = nodes(tmp_path / "shared", 4.0e12, 4.001e12, 3.999e12, 3.6e12)
    assert cli.main(["qualify", "--among", "--json", *made]) == FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["cards"] == [f"card{i}" for i in range(4)]
    verdicts = {one["id"].split("/")[1]: one["verdict"] for one in told["checks"]}
    assert verdicts == {"card0": "pass", "card1": "pass", "card2": "pass", "card3": "fail"}
    assert [one["card"] for one in told["outliers"]] == ["card3"]


def test_the_folder_above_stands_for_all_nodes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes(tmp_path / "shared", 4.0e12, 4.001e12, 3.999e12)
    assert cli.main(["qualify", "--among", str(tmp_path / "shared")]) == OK
    assert "3 cards against each other: 3 rows: 3 pass" in capsys.readouterr().out


def test_runs_of_one_card_are_one_line_and_two_cards_are_too_few(
    root: Path, tmp_path: Path, transcript: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes(tmp_path / "four", 4.0e12, 4.001e12, 3.999e12, 3.6e12)
    node(tmp_path / "four" / "again" / "node0", 4.0e12)
    nodes(tmp_path / "two", 4e12, 2e12)
    monkeypatch.chdir(tmp_path)
    transcript("qualify --among four", "qualify --among two")


@pytest.mark.parametrize("path", ["", "nowhere", "empty"])
def test_what_has_no_runs_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert cli.main(["qualify", "--among", str(tmp_path / path) if path else ""]) == USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1
