"""What a gate's records say of the cause of a change: in a duet, by turns, and judged again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.gate.attribution import attribute
from gpulift.gate.evidence import ALTERNATING, Evidence, Row
from gpulift.gate.judge import judge
from gpulift.gate.launches import read_records
from tests import sample
from tests.fake_gate import TAG, FakeBench, Json, make_build, technique
from tests.gate.test_gate import setup as gate_of
from tests.gate.test_gate_command import run

MATMUL = Row("precision/matmul", "n:1", "bf16")
CLEAN = technique(MATMUL.technique, ("fp32", "bf16"))
SLOWER = technique(MATMUL.technique, ("fp32", "bf16"), log_time={"bf16": 0.05})
OTHER = technique("transfer/copy", outcome="skipped", reason="out of memory")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBench:
    made = FakeBench()
    made.install_in(tmp_path, monkeypatch)
    make_build(tmp_path / "base", (CLEAN, OTHER))
    return made


def gate(tag: str, *more: str) -> int:
    make_build(Path("build"), (SLOWER, OTHER), tag=tag)
    return run("--base", "base", "--out", "evidence", *more)


def rows(said: str) -> dict[str, Json]:
    found: list[Json] = json.loads(said)["rows"]
    return {row["arm"]: row for row in found}


@pytest.mark.parametrize("tag", [TAG, "another"])
def test_slower_code_is_told_by_its_cycles_in_a_duet_and_by_turns(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], tag: str
) -> None:
    assert gate(tag, "--json") == 1
    measured = capsys.readouterr().out
    found = rows(measured)
    slower = found["bf16"]["attribution"]
    assert slower["cause"].startswith("the code: of 5.")
    ratios = {one["name"]: one["ratio"] for one in slower["measures"]}
    assert ratios["time of a step"] == pytest.approx(1.05, rel=0.01)
    assert ratios["SM clock cycles of a step"] == pytest.approx(1.05, rel=0.01)
    assert ratios["SM clock"] == pytest.approx(1.0)
    assert found["fp32"]["attribution"]["cause"] == ""
    assert "attribution" not in found["plain"]
    assert run("--replay", "evidence", "--json") == 1
    assert capsys.readouterr().out == measured


def test_explain_shows_it_from_the_evidence_alone(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(TAG) == 1
    capsys.readouterr()
    assert run("--replay", "evidence", "--explain", MATMUL.id) == 1
    said = capsys.readouterr().out
    assert re.search(r"Attribution: SM clock cycles of a step: (198|197)\d{4} cycles in base", said)
    assert "Attribution: the code: of 5." in said


def test_an_arm_that_broke_on_one_side_is_not_attributed(tmp_path: Path) -> None:
    rows = [Row("a/b", "n:1", arm) for arm in ("x", "y")]
    for turn, made in (
        ("0-base", sample.arm("x", 1e-3)),
        ("1-head", sample.skipped_arm("x", "no")),
    ):
        folder = tmp_path / "cases" / "stage1" / "block-0000" / turn
        sample.write(folder, [sample.record("a/b", {"n": 1}, [sample.arm("y", 1e-3), made])])
    setup = replace(gate_of(*rows), mode=ALTERNATING)
    result = judge(Evidence(setup))
    assert list(attribute(result, read_records(tmp_path, setup))) == [rows[1]]
