"""`gpulift qualify --among`: nodes that were measured apart, with a slow one among them."""

from __future__ import annotations

import json
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
    assert cli.main(["qualify", "--among", "--wide", str(tmp_path / "shared")]) == OK
    assert "Do the 3 cards agree? None is an outlier." in capsys.readouterr().out


def test_runs_of_one_card_are_one_line(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = nodes(tmp_path, 4.0e12, 4.001e12, 3.999e12, 3.6e12)
    node(tmp_path / "again" / "node0", 4.0e12)
    assert cli.main(["qualify", "--among", "--wide", *made, str(tmp_path / "again")]) == FAILED
    told = capsys.readouterr().out
    assert "Do the 4 cards agree?" in told
    rows = [line.split()[1] for line in told.splitlines() if line.startswith(("✗  ", "✓  "))]
    assert rows == ["card3", "card2", "card0", "card1"]
    assert "✗ siblings/card3: outlier in 1 check; most in" in told


def test_two_nodes_are_too_few(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["qualify", "--among", *nodes(tmp_path, 4e12, 2e12)]) == OK
    assert "2 cards: no outlier can be named" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["", "nowhere", "empty"])
def test_what_has_no_runs_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert cli.main(["qualify", "--among", str(tmp_path / path) if path else ""]) == USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1
