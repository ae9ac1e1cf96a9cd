"""Verdicts on changes in the report: gates, comparisons, and what the command line refuses."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.gate.answer import answer as table_of
from gpulift.gate.judge import Control, GateResult
from gpulift.records.read import Run, read_run
from gpulift.report import changes, page
from gpulift.verdicts.comparison import compare
from gpulift.verdicts.row import Table
from tests import runs_made, sample
from tests.fake_gate import FakeBench, make_build, technique
from tests.figures import analysed, undrawn, written
from tests.gate.test_answer import RESULT
from tests.report.test_report import Page

pytestmark = pytest.mark.world

NASTY = '<img src=x onerror="alert(1)"> a|b'


def shown(made: Table, out: Path) -> tuple[Page, str]:
    """The page, and report.md, of a report of one change alone."""
    html = page.write(analysed([], out), out, changes=[made]).read_text(encoding="utf-8")
    return Page(html), (out / "report.md").read_text(encoding="utf-8")


def gate(result: GateResult = RESULT) -> Table:
    return table_of(result, Path("no-records"))


def test_a_gate_shows_its_verdicts_with_ratio_interval_and_reason(tmp_path: Path) -> None:
    html, answer = shown(gate(), tmp_path)
    for text in (html.text, answer):
        assert "6 rows: 1 error, 1 regressed, 1 inconclusive, 1 improved, 1 equivalent" in text
        assert re.search(r"head/base 1\.0050\d, 95 % interval 1\.004\d\d to 1\.005\d\d", text)
        assert re.search(r"only changes of [\d.]+ % or more would have been seen", text)
        assert "no certificate for this model" in text
    assert "A regression or an error was found." in html.text
    assert "planted slow-down found" in html.text


def test_clean_rows_are_folded(tmp_path: Path) -> None:
    html = undrawn(analysed([], tmp_path), changes=[gate()])
    folded = "".join(re.findall(r"<details>.*?</details>", html, flags=re.DOTALL))
    assert "1 equivalent" in folded
    assert "out of memory" in folded
    assert "out of memory" not in html.partition("<details>")[0]


def test_tables_have_captions_and_heads(tmp_path: Path) -> None:
    html = undrawn(analysed([], tmp_path), changes=[gate()])
    tables = re.findall(r"<table.*?</table>", html, flags=re.DOTALL)
    assert len(tables) == 4
    assert all("<caption>" in one and 'scope="col"' in one for one in tables)


def test_a_failed_control_is_marked(tmp_path: Path) -> None:
    broken = replace(RESULT, controls=(Control("null", False, "alarm"),))
    html, answer = shown(gate(broken), tmp_path)
    assert "The instrument is broken: no verdict counts." in html.text
    assert "✗ FAILED" in html.text
    assert "control null FAILED: alarm" in answer


def test_a_green_gate_says_so(tmp_path: Path) -> None:
    clean = tuple(one for one in RESULT.rows if one.verdict.verdict == "equivalent")
    html, answer = shown(gate(replace(RESULT, rows=clean)), tmp_path)
    assert "No regression was found." in html.text
    assert "No comparison is anything but equivalent or skipped." in html.text
    assert "**gpulift gate: ✅ 1 row: 1 equivalent**" in answer


def test_names_are_escaped(tmp_path: Path) -> None:
    setup = replace(RESULT.setup, head=NASTY, machine=NASTY, certificate=NASTY)
    first = RESULT.rows[2]
    row = replace(
        first,
        row=replace(first.row, technique=NASTY, case_id=NASTY, arm=NASTY),
        verdict=replace(first.verdict, reason=f"{NASTY}\nmore"),
    )
    html, answer = shown(gate(replace(RESULT, setup=setup, rows=(row,))), tmp_path)
    assert html.text.count(NASTY) >= 6
    assert "<img" not in answer
    (line,) = [one for one in answer.splitlines() if "❌ regressed" in one]
    assert len(re.findall(r"(?<!\\)\|", line)) == 7


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a gate that found a regression, below the current folder."""
    FakeBench().install(monkeypatch)
    monkeypatch.setenv("GPULIFT_ROOT", str(tmp_path))
    monkeypatch.delenv("GPULIFT_BUILD", raising=False)
    monkeypatch.chdir(tmp_path)
    make_build(tmp_path / "base", [technique("precision/matmul")])
    make_build(tmp_path / "build", [technique("precision/matmul", log_time={"plain": 0.005})])
    assert cli.main(["gate", "--base", "base", "--out", "evidence"]) == 1
    return tmp_path / "evidence"


def test_a_report_of_a_gate_alone(evidence: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["report", "--gate", str(evidence)]) == 0
    made = Path(capsys.readouterr().out.splitlines()[-1])
    assert made == evidence / "report" / "index.html"
    text = Page(written(made.parent)).text
    for words in ("▼ regressed", "No certificate for nvidia-h200", "python -m proof.certify"):
        assert words in text


def test_a_gate_beside_the_runs_of_its_machine(
    evidence: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sample.write(evidence.parent / "run", runs_made.full_gpu())
    assert cli.main(["report", str(folder), "--gate", str(evidence)]) == 0
    text = Page(written(folder / "report")).text
    places = [text.index(one) for one in ("The answer:", "Verdicts on changes", "measured peaks?")]
    assert places == sorted(places)
    assert text.count("No certificate for nvidia-h200") == 1


def test_a_comparison_with_another_run(evidence: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs: dict[str, str] = {}
    for name, time_s in (("one", 1e-3), ("two", 1.1e-3)):
        quiet = {"noise": 1e-4, "launch_noise": 1e-4}
        arms = [sample.arm("slow", 2e-3, **quiet), sample.arm("fast", time_s, **quiet)]
        records = sample.launches(4, "a/b", {"n": 1}, arms, seed=len(runs))
        runs[name] = str(sample.write(evidence.parent / name, records))
    assert cli.main(["report", runs["two"], "--compare", runs["one"]]) == 0
    answer = (Path(runs["two"]) / "report" / "report.md").read_text("utf-8")
    assert "(`base one, head two`)" in answer
    assert re.search(r"❌ regressed \| `a/b/n:1/fast` \| .*head/base 1\.(09|10)\d+,", answer)
    assert "1 equivalent" in answer
    assert "over launches" in answer
    assert str(evidence.parent) not in answer


def test_what_is_no_time_says_what_it_is_and_the_question_is_told(tmp_path: Path) -> None:
    def made(size: int, card: str) -> Run:
        context = copy.deepcopy(sample.GPU_CONTEXT)
        context["gpu"]["card"] = card
        cost = {"flops": 1e6 * size}
        arms = [sample.arm(name, 1e-6 * size, cost=cost) for name in ("slow", "fast")]
        records = sample.launches(
            3, "a/b", {"n": 1}, arms, context=context, seed=size, notes={"iterations": str(size)}
        )
        return read_run(sample.write(tmp_path / card, records))

    sides = [made(2000, "1"), made(1990, "2")], [made(1980, "3"), made(1970, "4")]
    change = changes.of_comparison(compare(*sides, "card"), "nvidia-h200")
    html, _ = shown(change, tmp_path / "out")
    assert "time over the baseline's: each run found the size of its work" in html.text
    assert "question: do the cards of which" in html.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name RESULTS..., or --gate FOLDER"),
        (["--gate", "evidence", "--compare", "run"], "--compare needs RESULTS"),
        (["run", "--across", "driver"], "--across needs --compare"),
        (["--gate", "nowhere"], "no evidence of a gate"),
        (["run", "--compare", "nowhere"], "no such file"),
    ],
)
def test_wrong_use_is_one_line(
    evidence: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    sample.write(evidence.parent / "run", runs_made.full_gpu())
    capsys.readouterr()
    assert cli.main(["report", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_filter_leaves_cases_of_the_records_and_of_the_comparison(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        str(sample.write(tmp_path / name, [*a_case("a/b", seed), *a_case("c/d", seed)]))
        for name, seed in (("base", 1), ("head", 2))
    ]
    out = tmp_path / "out"
    asked = ["report", folders[1], "--compare", folders[0], "--out", str(out)]
    assert cli.main([*asked, "--filter", "-^c/"]) == 0
    told = (out / "report.md").read_text(encoding="utf-8")
    assert "a/b" in told
    assert "c/d" not in told
    assert cli.main([*asked, "--filter", "none"]) == 2
    assert "no case of the records matches the filter 'none'" in capsys.readouterr().err


def a_case(technique: str, seed: int) -> list[sample.Json]:
    arms = [sample.arm("slow", 2e-3), sample.arm("fast", 1e-3)]
    return sample.launches(3, technique, {"n": 1}, arms, seed=seed)
