"""What a gate's records say of the cause of a change: in a duet, by turns, and judged again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpulift.gate.attribution import read_sides
from gpulift.gate.evidence import BASE, HEAD, Row
from tests import sample
from tests.fake_gate import TAG, FakeBench, Json, make_build, technique
from tests.test_gate_command import run

MATMUL = Row("precision/matmul", "n:1", "bf16")
CLEAN = technique(MATMUL.technique, ("fp32", "bf16"))
SLOWER = technique(MATMUL.technique, ("fp32", "bf16"), log_time={"bf16": 0.05})
OTHER = technique("transfer/copy", outcome="skipped", reason="out of memory")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBench:
    made = FakeBench()
    made.install(monkeypatch)
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    monkeypatch.delenv("GPULIFT_BUILD", raising=False)
    monkeypatch.chdir(tmp_path)
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


def test_of_records_of_the_same_launch_the_last_one_counts(tmp_path: Path) -> None:
    arms = [sample.arm(f"{side}:bf16", 1e-3) for side in (BASE, HEAD)]
    duet: Json = {"kind": "duet", "arm": "bf16"}
    case: Json = {"n": 1}
    broken = sample.unmeasured(MATMUL.technique, case, "error", "signal SIGSEGV", **duet)
    good = sample.record(MATMUL.technique, case, arms, **duet)
    again = sample.record(MATMUL.technique, case, arms, seed=2, **duet)
    first = tmp_path / "cases" / "stage1" / "launch-0000"
    sample.write(first, [broken, good, again])
    sample.write(tmp_path / "cases" / "stage2" / "launch-0000", [good])
    sample.write(tmp_path / "null" / "stage1" / "launch-0000", [good])
    (sides,) = read_sides(tmp_path).values()
    seeds = [one.record.order.seed for one in sides[BASE] if one.record.order]
    assert seeds == [2, 1]
    assert [one.arm.name for one in sides[HEAD]] == ["head:bf16", "head:bf16"]


def test_an_arm_that_broke_on_one_side_is_not_attributed(tmp_path: Path) -> None:
    for turn, made in (
        ("0-base", sample.arm("x", 1e-3)),
        ("1-head", sample.skipped_arm("x", "no")),
    ):
        folder = tmp_path / "cases" / "stage1" / "block-0000" / turn
        sample.write(folder, [sample.record("a/b", {"n": 1}, [sample.arm("y", 1e-3), made])])
    sides = read_sides(tmp_path)
    assert {row.arm: [len(held[side]) for side in (BASE, HEAD)] for row, held in sides.items()} == {
        "x": [1, 0],
        "y": [1, 1],
    }
