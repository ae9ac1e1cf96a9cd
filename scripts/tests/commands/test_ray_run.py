"""`gpulift ray run`, with programs in the place of Ray's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.fleet import ray_nodes
from gpulift.ground.errors import FAILED, OK, USAGE
from tests.fleet import standins
from tests.fleet.standins import ray_node

pytestmark = pytest.mark.world


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the stand-ins read and write; of three nodes one is dead."""
    programs, made = tmp_path / "programs", tmp_path / "control"
    programs.mkdir()
    made.mkdir()
    standins.install(programs, programs / "own gpulift")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(made))
    monkeypatch.setattr(ray_nodes, "own_gpulift", lambda: [str(programs / "own gpulift")])
    nodes = [ray_node("n1", alive=False), *(ray_node(name, GPU=2.0) for name in ("n2", "n3"))]
    standins.write_json(made / "nodes", nodes)
    return made


def run(folder: Path, *arguments: str) -> int:
    given = ["ray", "run", "overlap", "--address", "head:6379", "--out", str(folder)]
    return cli.main([*given, *arguments])


def test_ranks_of_all_nodes_run_the_same(
    control: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "out", "--", "--launches", "5") == OK
    calls = (control / "calls").read_text("utf-8").splitlines()
    asked = "run overlap --launches 5 --ranks given 4 ip-of-n2"
    assert sorted(calls) == [f"n2 0 {asked}", f"n2 1 {asked}", f"n3 2 {asked}", f"n3 3 {asked}"]
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}/out/results\n"
    assert f"on n2, n3; what they say is in {tmp_path}/out/log.txt" in told.err
    assert "progress of 3" in (tmp_path / "out" / "log.txt").read_text("utf-8")


def test_the_exit_code_is_that_of_the_run(control: Path, tmp_path: Path) -> None:
    (control / "run-n3").write_text("exit 77", encoding="utf-8")
    assert run(tmp_path / "out") == 77


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--nodes", "3"), USAGE, "--nodes 3: 2 can be reached"),
        (("--nodes", "1"), USAGE, "--nodes"),
        (("--address", "elsewhere:1"), FAILED, "no Ray at elsewhere:1"),
    ],
)
def test_what_cannot_be_is_refused(
    control: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    assert run(tmp_path / "out", *arguments) == code
    assert told in capsys.readouterr().err
    assert not (control / "calls").exists()


def test_a_node_on_which_nothing_ends_is_told(
    control: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (control / "run-n2").write_text("kill -9 $PPID", encoding="utf-8")
    (control / "run-n3").write_text("kill -9 $PPID", encoding="utf-8")
    assert run(tmp_path / "out") == FAILED
    assert "see " in capsys.readouterr().err
