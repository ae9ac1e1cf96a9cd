"""How the answer of a gate of a command reads, from evidence that was written by hand."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpulift.gate import job_output
from gpulift.gate.evidence import (
    BASE,
    COMMANDS,
    HEAD,
    Row,
    Setup,
    batch_folder,
    read_evidence,
    save,
)
from gpulift.gate.evidence import stage_folder as stage
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.metrics import Reading
from gpulift.gate.output import github, write_junit
from gpulift.gate.pairs import Pair, PairedLaunch, Run, write_launch

NOISY, CALM = (0.9, 1.1, 0.95, 1.08), (1.0, 1.0001, 0.9999, 1.0)
SPLIT, NAME = "a|b`c", "a\\|b'c"


def judged(folder: Path, left: tuple[str, ...] = (), **more: Any) -> GateResult:
    """One row that varies, one that does not, one that broke and one that the head lacks."""
    rows = tuple(Row("x", "", name) for name in (SPLIT, "calm", "broke", "gone"))
    lost = {"x/gone": "only in the base"}
    setup = Setup(
        "2", COMMANDS, "HEAD~1", "HEAD", "here", "", 1, rows, broken={"x/broke": "head: no memory"},
        lost=lost, **more,
    )  # fmt: skip
    save(folder, setup, {})
    for number, (noisy, calm) in enumerate(zip(NOISY, CALM, strict=True)):
        base = Run({SPLIT: Reading(1.0, "s"), "calm": Reading(2.0, "ms")}, 0.5, left=left)
        head = Run({SPLIT: Reading(noisy, "s"), "calm": Reading(2.0 * calm, "ms")}, 0.5)
        launch = batch_folder(stage(folder, "cases", 1), range(number, number + 1))
        write_launch(launch, PairedLaunch((Pair((BASE, HEAD), base, head),)))
    return judge(read_evidence(folder))


def test_lines_have_both_sides_of_every_row_that_has_them(tmp_path: Path) -> None:
    said = list(job_output.lines(judged(tmp_path), tmp_path))
    assert said[0].endswith("4 rows: 1 error, 2 inconclusive, 1 equivalent (within 1 %)")
    assert said[1] == "error        broke: head: no memory"
    assert said[2].startswith("inconclusive a|b`c: 1.00 s -> 1.00 s, head / base 1.0")
    assert "only changes of" in said[2]
    assert said[3] == "inconclusive gone: only in the base"
    assert said[4].startswith("equivalent   calm: 2 ms -> 2 ms, head / base 1.0000 [")


def test_markdown_has_them_and_folds_what_did_not_change(tmp_path: Path) -> None:
    said = "\n".join(job_output.markdown(judged(tmp_path), tmp_path))
    first, _, folded = said.partition("<details><summary>1 row without a change</summary>")
    assert "| `broke` | – | – | – | error: head: no memory |" in first
    assert f"| `{NAME}` | 1.00 s | 1.00 s | 1.0" in first
    assert "| `calm` | 2 ms | 2 ms | 1.0000 [" in folded


def test_junit_and_workflow_commands_have_them_and_nothing_open_is_green(tmp_path: Path) -> None:
    result = judged(tmp_path)
    beside = job_output.beside(result, tmp_path)
    write_junit(result, tmp_path / "junit.xml", beside)
    suite = ET.parse(tmp_path / "junit.xml").getroot()
    rows = {one.get("name"): [part.tag for part in one] for one in suite.iter("testcase")}
    assert [rows[name] for name in (SPLIT, "calm", "broke", "gone")] == [
        ["failure"],
        ["system-out"],
        ["error"],
        ["failure"],
    ]
    assert "calm: 2 ms -> 2 ms; head/base" in (suite.findtext(".//system-out") or "")
    assert any("a|b`c: 1.00 s -> 1.00 s; head/base" in line for line in github(result, beside))


def test_what_runs_left_and_a_first_run_that_took_long_are_said(tmp_path: Path) -> None:
    quiet = list(job_output.lines(judged(tmp_path / "q", first_s={HEAD: 0.6}), tmp_path / "q"))
    assert not [line for line in quiet if "behind" in line or "first run" in line]
    loud = judged(tmp_path, ("sleep", "x\x1b"), first_s={BASE: 0.6, HEAD: 5.0})
    said = list(job_output.lines(loud, tmp_path))
    assert "runs left 8 processes behind, as sleep, which were ended after each" in said
    assert [line.partition(":")[0] for line in said if "first run" in line] == [
        "the first run of the head took 10 times as long as later ones, which alone are judged"
    ]


def test_what_would_tell_what_could_not_be_told_and_what_numbers_mean(tmp_path: Path) -> None:
    def said(base: Reading, scatter: float) -> list[str]:
        folder = tmp_path / f"{base.unit} {scatter}"
        setup = Setup(
            "2", COMMANDS, "a", "b", "here", "", 1, (Row("x", "", base.unit),), least=0.01
        )
        save(folder, setup, {})
        for number in range(4):
            head = replace(base, value=base.value * (1 + scatter * (-1) ** number))
            runs = (Run({base.unit: one}, 20.0) for one in (base, head))
            launch = batch_folder(stage(folder, "cases", 1), range(number, number + 1))
            write_launch(launch, PairedLaunch((Pair((BASE, HEAD), *runs),)))
        return list(job_output.lines(judge(read_evidence(folder)), folder))

    shown = said(Reading(1.5, "CPU s"), 0.03)
    assert shown[1].startswith("inconclusive CPU s: 1.5 CPU s -> 1.499 CPU s, head / base 0.9995")
    assert shown[2].startswith("CPU seconds, not elapsed time: a change that only waits, ")
    assert shown[3] == "1 row could not be told with 4 launches"
    launches, _, minutes = shown[4].partition(" launches would tell 2 %: --budget ")
    assert minutes == f"{math.ceil((int(launches) + 24) * 40 / 60)}m"
    shown = said(Reading(6.4e9, "instructions"), 0.5)
    assert "6400 million instructions -> " in shown[1]
    assert shown[2].startswith("instructions of user code, not time: ")
    assert shown[4] == "1000 launches would not tell 2 %: --threshold asks for less"
    shown = said(Reading(1.0, "wall"), 0.5)
    assert (
        "--metric cpu may tell it: other processes disturb CPU seconds less than the clock" in shown
    )
