"""What each side of a gate's launches stands on: lines and JSON, in a duet and by turns."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.gate.answer import LOG_RATIO, answer
from gpulift.gate.evidence import ALTERNATING, BASE, HEAD, TWO_IN_ONE, Evidence, Row, read_series
from gpulift.gate.judge import judge
from gpulift.verdicts.row import Row as Answered
from tests import sample
from tests.fake_gate import TAG, FakeBench, make_build, technique
from tests.gate.test_gate import setup
from tests.gate.test_gate_command import run
from tests.sample import Json

ROW = Row("precision/matmul", "n:1", "bf16")
CASE: Json = {"n": 1}
SCREEN = Path("cases", "stage1")
DUET: Json = {"kind": "duet", "arm": ROW.arm}


def duet(step_s: float, launch: int = 0, **more: Any) -> Json:
    """A record of which the head takes 1 % longer than the base."""
    arms = [
        sample.arm(f"{side}:{ROW.arm}", seconds, noise=0.0, launch_noise=0.0)
        for side, seconds in ((BASE, step_s), (HEAD, 1.01 * step_s))
    ]
    return sample.record(ROW.technique, CASE, arms, launch, **DUET, **more)


def alone(step_s: float, **more: Any) -> Json:
    """A record of one process of a block."""
    arms = [sample.arm(ROW.arm, step_s, noise=0.0, launch_noise=0.0)]
    return sample.record(ROW.technique, CASE, arms, **more)


def judged(gate: Path, mode: str, row: Row = ROW) -> Answered:
    """Of the records in the folder alone."""
    made = replace(setup(row), mode=mode)
    evidence = Evidence(made, read_series(gate, "cases", mode, made.rows))
    (answered,) = answer(judge(evidence), gate).rows
    return answered


def told(gate: Path, mode: str) -> list[str]:
    """The steps about launches."""
    prefix = "Launch value: "
    steps = judged(gate, mode).steps()
    return [line.removeprefix(prefix) for line in steps if line.startswith(prefix)]


def row_json(gate: Path, mode: str) -> Json:
    made: Json = json.loads(json.dumps(judged(gate, mode).data(), allow_nan=False))
    return made


def test_each_launch_of_a_duet_is_told_side_by_side_and_before_its_value(tmp_path: Path) -> None:
    sample.write(tmp_path / SCREEN / "launch-0000", [duet(1e-3), duet(2e-3, 1)])
    sample.write(tmp_path / SCREEN / "launch-0002", [duet(3e-3, discarded_blocks=2), duet(4e-3, 1)])
    sample.write(tmp_path / "cases" / "stage2" / "launch-0000", [duet(5e-3)])
    sample.write(tmp_path / "null" / "stage1" / "launch-0000", [duet(6e-3)])
    said = told(tmp_path, TWO_IN_ONE)
    screen = [line for n in range(1, 5) for line in said if line.startswith(f"screen launch {n}")]
    assert len(said) == 16
    assert said.pop() == LOG_RATIO[TWO_IN_ONE]
    assert screen == said[:12]
    file = tmp_path / SCREEN / "launch-0002" / "precision.matmul.jsonl"
    third = row_json(tmp_path, TWO_IN_ONE)["base"][2]["record"]
    assert said[6:9] == [
        f"screen launch 3, {side} (gpulift:nvidia-h200/{third}, {file}:1): median step {step} by"
        " the device clock; 16 windows of 10 steps in 8 blocks (2 discarded); SM clock 1980 MHz;"
        " throttle sw_power_cap; check error 0 of 0 allowed"
        for side, step in (("base", "3.00 ms"), ("head", "3.03 ms"))
    ] + ["screen launch 3: head/base 1.010000 (log ratio +0.009950)"]
    assert said[12].startswith("confirmation launch 1, base (")
    assert "median step 5.00 ms" in said[12]
    assert said[14].startswith("confirmation launch 1: head/base 1.01")


def test_of_records_of_the_same_launch_the_last_one_counts(tmp_path: Path) -> None:
    broken = sample.unmeasured(ROW.technique, CASE, "error", "signal SIGSEGV", **DUET)
    records = [broken, duet(1e-3), duet(3e-3, 1), duet(2e-3)]
    sample.write(tmp_path / SCREEN / "launch-0000", records)
    base = row_json(tmp_path, TWO_IN_ONE)["base"]
    assert [(one["launch"], one["line"]) for one in base] == [(1, 4), (2, 3)]
    assert [one["step_s"] for one in base] == pytest.approx([2e-3, 3e-3])


def test_processes_of_a_block_are_told_in_their_order_and_a_missing_record_too(
    tmp_path: Path,
) -> None:
    block = tmp_path / SCREEN / "block-0000"
    for turn, step_s in (("0-base", 1e-3), ("1-head", 2e-3), ("2-head", 2e-3), ("3-base", 1e-3)):
        sample.write(block / turn, [alone(step_s)])
    block = tmp_path / SCREEN / "block-0001"
    for turn, step_s in (("0-head", 4e-3), ("1-base", 3e-3), ("2-base", 3e-3)):
        sample.write(block / turn, [alone(step_s)])
    (block / "3-head").mkdir()
    said = told(tmp_path, ALTERNATING)
    assert [line.partition(" (")[0] for line in said] == [
        "screen launch 1, base, process 1 of 4",
        "screen launch 1, head, process 2 of 4",
        "screen launch 1, head, process 3 of 4",
        "screen launch 1, base, process 4 of 4",
        "screen launch 1: head/base 2.000000",
        "screen launch 2, head, process 1 of 4",
        "screen launch 2, base, process 2 of 4",
        "screen launch 2, base, process 3 of 4",
        "screen launch 2, head, process 4 of 4 has no record",
        "screen launch 2: missing: head has no record",
        LOG_RATIO[ALTERNATING],
    ]
    assert f"{block / '2-base' / 'precision.matmul.jsonl'}:1): median step 3.00 ms" in said[7]
    row = row_json(tmp_path, ALTERNATING)
    assert [(one["launch"], one["process"]) for one in row["base"]] == [
        (1, 1),
        (1, 4),
        (2, 2),
        (2, 3),
    ]
    assert row["head"][-1] == {
        "stage": "screen",
        "launch": 2,
        "process": 4,
        "outcome": "missing",
        "reason": "has no record",
    }


def test_a_launch_without_windows_is_cited_with_its_reason(tmp_path: Path) -> None:
    slowed = sample.unmeasured(
        ROW.technique, CASE, "failed", "too hot", remedy="cool it", discarded_blocks=9, **DUET
    )
    file = sample.write(tmp_path / SCREEN / "launch-0000", [slowed]) / "precision.matmul.jsonl"
    said = told(tmp_path, TWO_IN_ONE)
    row = row_json(tmp_path, TWO_IN_ONE)
    (base,), (head,) = row["base"], row["head"]
    assert said == [
        *(
            f"screen launch 1, {side} ({base['citation']}, {file}:1): slowed down: too hot; cool it"
            " (9 blocks discarded)"
            for side in ("base", "head")
        ),
        "screen launch 1: slowed down: too hot; cool it",
    ]
    assert base == head
    assert base == {
        "stage": "screen",
        "launch": 1,
        "outcome": "slowed down",
        "reason": "too hot; cool it",
        "record": base["record"],
        "citation": f"gpulift:nvidia-h200/{base['record']}",
        "file": "cases/stage1/launch-0000/precision.matmul.jsonl",
        "line": 1,
        "discarded_blocks": 9,
    }


def test_a_side_that_broke_has_its_reason_beside_the_windows_of_the_other(tmp_path: Path) -> None:
    record = duet(1e-3)
    record["arms"][1] |= {"outcome": "failed", "reason": "wrong results"}
    sample.write(tmp_path / SCREEN / "launch-0000", [record])
    base, head, value = told(tmp_path, TWO_IN_ONE)
    assert "base (gpulift:" in base
    assert "16 windows of 10 steps" in base
    assert "head (gpulift:" in head
    assert head.endswith("precision.matmul.jsonl:1): failed: wrong results")
    assert value == "screen launch 1: failed: head: wrong results"


def test_the_json_of_a_launch_has_what_its_line_has_and_nothing_unknown(tmp_path: Path) -> None:
    record = duet(1e-3, context=sample.CPU_CONTEXT)
    for arm in record["arms"]:
        del arm["check_error"], arm["check_tolerance"]
    sample.write(tmp_path / SCREEN / "launch-0000", [record, duet(2e-3, 1)])
    first, second = row_json(tmp_path, TWO_IN_ONE)["head"]
    unknown = {"sm_clock_hz", "throttle", "check_error", "check_tolerance"}
    assert unknown == second.keys() - first.keys()
    assert None not in first.values()
    id = second.pop("record")
    assert second.pop("step_s") == pytest.approx(2.02e-3)
    assert second == {
        "stage": "screen",
        "launch": 2,
        "citation": f"gpulift:nvidia-h200/{id}",
        "file": "cases/stage1/launch-0000/precision.matmul.jsonl",
        "line": 2,
        "windows": 16,
        "steps_per_window": 10,
        "blocks": 8,
        "discarded_blocks": 0,
        "clock": "device",
        "sm_clock_hz": 1.98e9,
        "throttle": ["sw_power_cap"],
        "check_error": 0.0,
        "check_tolerance": 0.0,
    }


@pytest.mark.parametrize("tag", [TAG, "another"])
def test_every_log_ratio_is_that_of_its_records_and_slower_code_is_told_by_its_cycles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], tag: str
) -> None:
    FakeBench().install_in(tmp_path, monkeypatch)
    arms, other = ("fp32", "bf16"), technique("transfer/copy", outcome="skipped", reason="no room")
    slower: Json = {"log_time": {"bf16": 0.05}}
    for folder, more in (("base", {}), ("build", slower)):
        made = technique(ROW.technique, arms, noise={"fp32": 0.003}, **more)
        make_build(Path(folder), [made, other], tag=tag if more else TAG)
    assert run("--base", "base", "--out", "evidence", "--json") == 1
    rows = {row["arm"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["bf16"]["launch_log_ratios"]["confirmation"]
    assert len(rows["fp32"]["launch_log_ratios"]["screen"]) > 4, "more than one batch"
    for row in (rows["fp32"], rows["bf16"]):
        for stage, ratios in row["launch_log_ratios"].items():
            for number, ratio in enumerate(ratios, start=1):
                base, head = (mean_log(row[side], stage, number) for side in (BASE, HEAD))
                assert ratio == pytest.approx(head - base, abs=1e-12)
    attributed = rows["bf16"]["attribution"]
    assert attributed["cause"].startswith("the code: of 5.")
    ratios = {one["name"]: one["ratio"] for one in attributed["measures"]}
    assert ratios["time of a step"] == pytest.approx(1.05, rel=0.01)
    assert ratios["SM clock cycles of a step"] == pytest.approx(1.05, rel=0.01)
    assert ratios["SM clock"] == pytest.approx(1.0)
    assert rows["fp32"]["attribution"]["cause"] == ""
    assert "attribution" not in rows["plain"]
    assert run("--replay", "evidence", "--explain", ROW.id) == 1
    said = capsys.readouterr().out
    assert re.search(r"Attribution: SM clock cycles of a step: (198|197)\d{4} cycles in base", said)
    assert "Attribution: the code: of 5." in said


def test_an_arm_that_broke_on_one_side_is_not_attributed(tmp_path: Path) -> None:
    for turn, made in (
        ("0-base", sample.arm("x", 1e-3)),
        ("1-head", sample.skipped_arm("x", "no")),
    ):
        folder = tmp_path / SCREEN / "block-0000" / turn
        sample.write(folder, [sample.record("a/b", {"n": 1}, [sample.arm("y", 1e-3), made])])
    rows = (judged(tmp_path, ALTERNATING, Row("a/b", "n:1", arm)) for arm in ("x", "y"))
    assert ["attribution" in row.data() for row in rows] == [False, True]


def mean_log(held: list[Json], stage: str, number: int) -> float:
    """Of the step times of a side in a launch."""
    times = [one["step_s"] for one in held if (one["stage"], one["launch"]) == (stage, number)]
    assert times
    return sum(map(math.log, times)) / len(times)
