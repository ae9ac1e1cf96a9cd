"""Lines, workflow commands and JUnit of gates with every verdict."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.gate.evidence import Evidence, Launch, Row, Series
from gpulift.gate.judge import Control, judge
from gpulift.gate.launches import GateRecords
from gpulift.gate.output import (
    as_json,
    comparability,
    explain,
    family,
    github,
    in_words,
    lines,
    rows_of,
    write_junit,
)
from gpulift.ground.errors import GpuliftError
from gpulift.records.throttle import Throttle
from gpulift.report import changes
from gpulift.verdicts.explain import Attribution, Measured
from proof.trials import read_trials
from tests.conftest import CHECKOUT
from tests.gate.test_gate import CLEAN, NOISY, SLOWER, evidence, launches, setup
from tests.junit_rules import complaints

TRIALS = CHECKOUT / "results" / "certificates" / "nvidia-h200"
ROWS = [Row("precision/matmul", f"n:{n}", "bf16") for n in range(6)]
FASTER = launches([-value for value in SLOWER])
NASTY = Launch(None, "error", "50 % done:\ntwo\x1b[0m <lines>")
RESULT = judge(
    evidence(
        {
            ROWS[0]: launches(CLEAN),
            ROWS[1]: launches(NOISY),
            ROWS[2]: launches(SLOWER),
            ROWS[3]: FASTER,
            ROWS[4]: [Launch(None, "skipped", "out of memory")] * 4,
            ROWS[5]: [NASTY],
        },
        {ROWS[2]: launches(SLOWER * 2), ROWS[3]: FASTER * 2},
    )
)
TIME = Measured("time of a step", "s", 2e-3, 3e-3, "2.00 ms in base, 3.00 ms in head (50 %)")
WHY = {
    ROWS[2]: Attribution((TIME,), Throttle(()), Throttle(("sw_power_cap",)), "the code: all of it")
}
BESIDE = {row: in_words("2 ms", "3 ms") for row in ROWS[:4]}
NO_RECORDS = GateRecords(Path("evidence"), {})


def test_lines_show_what_is_not_clean_worst_first() -> None:
    said = list(lines(RESULT, BESIDE))
    assert [line.split()[0] for line in said[:4]] == [
        "error",
        "regressed",
        "inconclusive",
        "improved",
    ]
    assert "n:2/bf16: 2 ms -> 3 ms; head/base 1.005" in said[1]
    assert "95 % interval 1.00" in said[1]
    assert "only changes of " in said[2]
    assert not [line for line in said if line.startswith(("equivalent", "skipped"))]
    assert (
        "6 comparisons: 1 error, 1 regressed, 1 inconclusive, 1 improved, 1 equivalent, 1"
        in (said[5])
    )


def test_where_nothing_could_run_no_error_budget_is_named() -> None:
    none = judge(Evidence(replace(setup(ROWS[0]), unmeasurable={ROWS[0].id: "no GPU"})))
    assert list(lines(none, {}))[-2:] == [
        "1 skipped: no GPU",
        f"nothing was compared; {none.setup.certificate}",
    ]
    assert changes.from_gate(none).basis[0] == "nothing was compared"
    assert changes.from_gate(RESULT).basis[0].startswith("family of 4: planned chance")


def test_a_gate_without_a_word_on_certificates_ends_with_its_family() -> None:
    bare = replace(RESULT, setup=replace(RESULT.setup, certificate=""))
    assert list(lines(bare, {}))[-1] == family(RESULT.plan)


def test_explain_says_what_figures_were_held_against() -> None:
    def rules(row: Row, **changed: Any) -> list[str]:
        judged = judge(Evidence(replace(setup(row), **changed), Series({row: launches(CLEAN)})))
        said = [line.strip() for line in explain(judged, judged.rows, {}, NO_RECORDS)]
        first = next((i for i, line in enumerate(said) if line.startswith("Family")), len(said))
        last = next((i for i, line in enumerate(said) if line.startswith("Paired")), len(said))
        return said[first:last]

    budget = "Family: family of 1: planned chance of a false regression in the whole gate 0.5 %"
    no_change = "Equivalence: counts as no change: +-1 %"
    assert rules(ROWS[0]) == [
        budget,
        "Gate: screen: least change that is called one: 0.25 %",
        no_change,
    ]
    assert rules(ROWS[0], floors={ROWS[0].id: 0.003}, unsteady=(ROWS[0],)) == [
        budget,
        "Gate: screen: least change that is called one: 0.3 % (its floor in the certificate is"
        " 0.3 %)",
        "Gate: screen: unsteady in the certificate: looked at once",
        no_change,
    ]
    assert rules(ROWS[0], unmeasurable={ROWS[0].id: "no GPU"}) == []


def test_json_has_what_verdicts_rest_on_besides_launches() -> None:
    floors = {ROWS[1].id: 0.003}
    document = as_json(replace(RESULT, setup=replace(RESULT.setup, floors=floors)), WHY, NO_RECORDS)
    assert document["comparability"] == comparability(RESULT.setup)
    assert [row.get("floor") for row in document["rows"][:3]] == [None, 0.003, None]
    assert document["rows"][1]["base"] == document["rows"][1]["head"] == []


def test_workflow_commands_are_escaped() -> None:
    said = list(github(RESULT, BESIDE))
    assert sorted(line.partition(" ")[0] for line in said) == ["::error", "::error", "::warning"]
    (nasty,) = [line for line in said if "n:5" in line]
    assert nasty.startswith("::error title=gpulift error::error        precision/matmul/n:5/bf16: ")
    assert "50 %25 done:%0Atwo" in nasty
    assert "\n" not in nasty


def test_junit_has_every_row_and_only_what_xml_can_hold(tmp_path: Path) -> None:
    file = tmp_path / "gate.xml"
    write_junit(RESULT, file, BESIDE)
    assert not complaints(file.read_bytes())
    suite = ET.parse(file).getroot()
    cases = list(suite.iter("testcase"))
    assert len(cases) == int(suite.get("tests", 0)) == 9
    found = {tag: len(list(suite.iter(tag))) for tag in ("failure", "error", "skipped")}
    assert found == {"failure": 2, "error": 1, "skipped": 1}
    assert found == {
        "failure": int(suite.get("failures", 0)),
        "error": int(suite.get("errors", 0)),
        "skipped": int(suite.get("skipped", 0)),
    }
    (error,) = suite.iter("error")
    assert "two?[0m <lines>" in (error.get("message") or "")
    assert cases[3].get("classname") == "precision.matmul"
    assert cases[3].get("name") == "n:0/bf16"
    failures = {one.get("type", ""): one.get("message", "") for one in suite.iter("failure")}
    assert sorted(failures) == ["inconclusive", "regressed"]
    assert all("2 ms -> 3 ms; head/base" in said for said in failures.values())


def test_what_is_left_open_as_usual_is_no_failure(tmp_path: Path) -> None:
    usual = replace(RESULT, setup=replace(RESULT.setup, unsteady=(ROWS[1],)))
    write_junit(usual, tmp_path / "gate.xml", {})
    suite = ET.parse(tmp_path / "gate.xml").getroot()
    assert [one.get("type") for one in suite.iter("failure")] == ["regressed"]
    kinds = [one.get("type") for one in suite.iter("skipped")]
    assert kinds == ["inconclusive", "skipped"]


def test_a_control_that_is_not_finished_is_no_error(tmp_path: Path) -> None:
    open_one = Control("null", False, "the budget ended", unfinished=True)
    result = replace(RESULT, controls=(open_one,))
    assert "control null: not finished: the budget ended" in list(lines(result, {}))
    assert "::warning title=gpulift control null::the budget ended" in list(github(result, {}))
    write_junit(result, tmp_path / "gate.xml", {})
    assert not complaints((tmp_path / "gate.xml").read_bytes())
    suite = ET.parse(tmp_path / "gate.xml").getroot()
    assert len(list(suite.iter("failure"))) == int(suite.get("failures", 0)) == 3
    assert len(list(suite.iter("error"))) == int(suite.get("errors", 0)) == 1


@pytest.mark.parametrize("file", sorted(TRIALS.glob("2026-11-22-*.trials")), ids=lambda f: f.stem)
def test_junit_of_measured_trials(file: Path, tmp_path: Path) -> None:
    """Each committed trial was a whole gate; all of its rows are in the file."""
    for trial in read_trials(file)[0]:
        rows = {row_of(one.row): one for one in trial.rows}
        first = {row: [Launch(value) for value in one.first] for row, one in rows.items()}
        second = {row: [Launch(value) for value in one.second] for row, one in rows.items()}
        result = judge(evidence(first, second))
        write_junit(result, tmp_path / "gate.xml", {})
        assert not complaints((tmp_path / "gate.xml").read_bytes())
        suite = ET.parse(tmp_path / "gate.xml").getroot()
        assert suite.get("tests") == str(len(trial.rows) + len(result.controls))
        found = [trial.verdict(one).verdict for one in trial.rows]
        controls = sum(control.unfinished for control in result.controls)
        told = found.count("regressed") + found.count("inconclusive") + controls
        assert suite.get("failures") == str(told)


def row_of(id: str) -> Row:
    """The row of this name."""
    technique, name, *case, arm = id.split("/")
    return Row(f"{technique}/{name}", "/".join(case), arm)


def test_junit_into_a_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="cannot be written"):
        write_junit(RESULT, tmp_path, {})


def test_json_is_json_and_counts_agree() -> None:
    document = json.loads(json.dumps(as_json(RESULT, WHY, NO_RECORDS), allow_nan=False))
    assert sum(document["counts"].values()) == len(document["rows"]) == 6
    assert document["rows"][0]["smallest_effect"] > 0.0025
    assert "smallest_effect" not in document["rows"][2]
    assert document["rows"][4]["reason"] == "out of memory"


def test_json_says_why_a_launch_has_no_value() -> None:
    rows = json.loads(json.dumps(as_json(RESULT, WHY, NO_RECORDS), allow_nan=False))["rows"]
    assert [index for index, row in enumerate(rows) if "not_measured" in row] == [4, 5]
    assert [one["launch"] for one in rows[4]["not_measured"]] == [1, 2, 3, 4]
    assert rows[5]["launch_log_ratios"]["screen"] == [None]
    assert rows[5]["not_measured"] == [
        {"stage": "screen", "launch": 1, "outcome": "error", "reason": NASTY.reason}
    ]


def test_the_cause_of_a_change_is_in_json_and_in_what_is_explained() -> None:
    rows = as_json(RESULT, WHY, NO_RECORDS)["rows"]
    assert [index for index, row in enumerate(rows) if "attribution" in row] == [2]
    time = {"name": "time of a step", "unit": "s", "base": 2e-3, "head": 3e-3, "ratio": 1.5}
    assert rows[2]["attribution"] == {
        "cause": "the code: all of it",
        "measures": [time],
        "throttle": {"base": [], "head": ["sw_power_cap"]},
    }
    said = list(explain(RESULT, rows_of(RESULT, ROWS[2].id), WHY, NO_RECORDS))
    assert said[-4:] == [
        "  Attribution: time of a step: 2.00 ms in base, 3.00 ms in head (50 %)",
        "  Attribution: throttle in base: none seen",
        "  Attribution: throttle in head: sw_power_cap",
        "  Attribution: the code: all of it",
    ]
    assert "Attribution" not in "".join(
        explain(RESULT, rows_of(RESULT, ROWS[1].id), WHY, NO_RECORDS)
    )


def test_explain_names_rows_by_any_part() -> None:
    assert len(rows_of(RESULT, "precision")) == len(rows_of(RESULT, "BF16")) == 6
    assert len(rows_of(RESULT, "precision/matmul/n:1")) == 1
    with pytest.raises(GpuliftError, match=r"holds 'matmull'; near it: precision/matmul/n:5/bf16"):
        rows_of(RESULT, "matmull")
    with pytest.raises(GpuliftError, match=r"there are: precision/matmul/n:0/bf16, .* and 1 more"):
        rows_of(RESULT, "zzz")
    said = "\n".join(explain(RESULT, rows_of(RESULT, "precision/matmul/n:5/bf16"), WHY, NO_RECORDS))
    assert "screen launch 1: error: 50 % done" in said
