"""What a folder of a fleet holds, and what it still lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.analysis.machine.saved import VERDICT_FILE
from gpulift.fleet import kept, state
from gpulift.fleet.kept import Expected
from gpulift.fleet.logs import LOG_FILE
from gpulift.ground.errors import GpuliftError

OPTIONS = ("--quick",)


def test_what_is_expected_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert state.read_expected(tmp_path, "slurm", OPTIONS).nodes == ()
    expected = Expected(kept.SCHEMA, ("n1", "n2"), {"n1": "rack 1"}, "slurm", OPTIONS)
    state.write_expected(tmp_path, expected)
    assert state.read_expected(tmp_path, "slurm", OPTIONS) == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ('{"schema": 1, "nodes": [], "scheduler": "ray"}', "holds a fleet of ray"),
        ('{"schema": 1, "nodes": [], "scheduler": "slurm", "options": ["-x"]}', "with -x: name"),
    ],
)
def test_what_another_wrote_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / kept.FLEET_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(GpuliftError, match=words):
        state.read_expected(tmp_path, "slurm", OPTIONS)


def test_racks_are_read_from_lines(tmp_path: Path) -> None:
    file = tmp_path / "racks.csv"
    file.write_text("n1,rack 1\n\nn2, rack 2\n", encoding="utf-8")
    assert state.read_labels(file) == {"n1": "rack 1", "n2": "rack 2"}
    file.write_text("n1,rack 1\n", encoding="utf-8-sig")
    assert state.read_labels(file) == {"n1": "rack 1"}
    for wrong in ("n1\n", "n1,\n", "n1,rack 1,row 2\n"):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(GpuliftError, match="give lines of node,rack"):
            state.read_labels(file)
    with pytest.raises(GpuliftError, match="cannot be read"):
        state.read_labels(tmp_path / "nowhere.csv")


@pytest.mark.parametrize(
    ("code", "verdicts", "qualified", "measured"),
    [
        ("0", True, True, True),
        ("1", True, True, False),
        ("1", False, False, False),
        ("5", True, True, False),
        ("77", False, True, True),
        ("130", True, False, False),
        ("", True, False, False),
    ],
)
def test_what_ended_with_a_verdict_is_not_measured_again(
    tmp_path: Path, code: str, verdicts: bool, qualified: bool, measured: bool
) -> None:
    node = state.node_folder(tmp_path, "n1")
    assert kept.exit_code(node) is None
    results = node / kept.RESULTS / "gpu0"
    results.mkdir(parents=True)
    (node / kept.CODE_FILE).write_text(f"{code}\n", encoding="utf-8")
    state.write_nodes(node, ["n1", "n2"])
    if verdicts:
        (results / VERDICT_FILE).write_text('{"checks": []}', encoding="utf-8")
    assert state.is_qualified(tmp_path, "n1") is qualified
    assert state.is_measured(node, ["n2"]) is measured
    assert not state.is_measured(node, ["n2", "n3"])


def test_the_reason_of_no_answer_ends_the_log(tmp_path: Path) -> None:
    node = state.node_folder(tmp_path, "n1")
    node.mkdir(parents=True)
    (node / kept.CODE_FILE).write_text("75\n", encoding="utf-8")
    (node / LOG_FILE).write_text("killed", encoding="utf-8")
    state.add_no_answer(node, "down")
    state.add_no_answer(node, "drained")
    assert kept.kept_node(tmp_path, "n1").why == "drained"
    with pytest.raises(GpuliftError, match="cannot be written"):
        state.add_no_answer(node / "log.txt", "down")


def test_a_folder_that_cannot_serve_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "below"):
        with pytest.raises(GpuliftError, match="cannot be made"):
            state.prepare(folder)
    monkeypatch.setattr(state, "why_unusable", lambda folder: "full")
    with pytest.raises(GpuliftError, match=f"{tmp_path}: is full: name another folder"):
        state.prepare(tmp_path)
