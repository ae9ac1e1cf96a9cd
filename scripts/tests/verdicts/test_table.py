"""Rows of every kind in every form."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate
from gpulift.verdicts import table
from gpulift.verdicts.row import BROKEN, FAILED, LEFT_OUT, OPEN, PASSED, Quantity, Row, Table
from gpulift.verdicts.table import FORMS, Output, outputs
from tests.junit_rules import complaints

SPLIT, ESCAPED = "a|b`c", "<code>t/x/a&#124;b&#96;c</code>"
NASTY = "50 % done:\ntwo\x1b[0m <lines>"
RATIO = Estimate(1.05, 1.04, 1.06, 8)


def row(verdict: str, kind: str, subject: str, **more: object) -> Row:
    made = Row("head/base", f"t/x/{subject}", verdict, kind, group="t/x", limit=0.01)
    return replace(made, **more)  # type: ignore[arg-type]


PATH = ("Gate: one", "Verdict: regressed")
ROWS = (
    row("error", BROKEN, "nasty", reason=NASTY),
    row("regressed", FAILED, SPLIT, estimate=RATIO, base="1 s", head="1.05 s", remedy="mend it",
        note="by turns", measured=Quantity(RATIO, "s"), steps=lambda: PATH,
        data=lambda: {"path": PATH, "arm": SPLIT}),
    row("inconclusive", OPEN, "open", smallest_effect=0.02, measured=Quantity(RATIO, "it/s", True)),
    row("inconclusive", OPEN, "usual", smallest_effect=99.0, notable=False),
    row("improved", PASSED, "better", smallest_effect=0.5),
    row("equivalent", PASSED, "same", notable=False, smallest_effect=float("inf"),
        estimate=Estimate(1.0), measured=Quantity(Estimate(3.0))),
    row("skipped", LEFT_OUT, "here", notable=False, reason="no GPU", remedy="buy one"),
    row("skipped", LEFT_OUT, "there", notable=False, reason="no GPU", remedy="buy one"),
)  # fmt: skip
CONTROLS = (
    Row("control", "null", "passed", PASSED, reason="is clean"),
    Row("control", "planted", "FAILED", FAILED, reason="not found: 1 %"),
    Row("control", "end", "not finished", OPEN, reason="the budget ended"),
)
TABLE = Table(
    "gpulift gate", "base a, head b", ROWS, 1, CONTROLS, ("mind this",), ("family of 6",), "here",
    {"equivalent": " (within 2 %)"}, {"mode": "duet"},
)  # fmt: skip
COUNTED = (
    "8 rows: 1 error, 1 regressed, 2 inconclusive, 1 improved, 1 equivalent (within 2 %), 2 skipped"
)
LINES = [
    f"error        t/x/nasty: {NASTY}",
    f"regressed    t/x/{SPLIT}: 1 s -> 1.05 s; head/base 1.05000, 95 % interval 1.04000 to"
    " 1.06000, 8 launches; mend it; by turns",
    "inconclusive t/x/open: only changes of 2 % or more would have been seen",
    "improved     t/x/better: changes of 50 % or more would have been seen",
]
CALM = [
    "inconclusive t/x/usual: only changes of more than 1000 % would have been seen",
    "equivalent   t/x/same: head/base 1.00000",
    *(f"skipped      t/x/{name}: no GPU; buy one" for name in ("here", "there")),
]
LAST = [
    "mind this",
    "control null: passed: is clean",
    "control planted: FAILED: not found: 1 %",
    "control end: not finished: the budget ended",
    "family of 6",
    "evidence: here",
]


def test_lines_are_those_of_notable_rows_and_of_a_short_table_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = f"base a, head b: {COUNTED}"
    assert sorted(table.lines(TABLE)) == sorted([first, *LINES, *CALM, *LAST])
    monkeypatch.setattr(table, "SHORT", 7)
    assert list(table.lines(TABLE)) == [first, *LINES, "2 skipped: no GPU; buy one", *LAST]
    assert list(table.lines(TABLE, every=True))[1:5] == [*LINES[:3], CALM[0]]
    assert "\x1b" not in FORMS["lines"](TABLE)


def test_reasons_for_which_rows_are_left_out_are_counted() -> None:
    rows = [row("skipped", LEFT_OUT, str(n), reason=f"too {n // 2}") for n in range(13)]
    *said, last = table.left_out(rows)
    assert said == [f"2 skipped: too {n}" for n in range(5)]
    assert last == "3 skipped for 2 other reasons"
    assert [*table.left_out(rows[:12])][-1] == "2 skipped for 1 other reason"


def test_steps_stand_below_their_row() -> None:
    (found,) = table.rows_named(TABLE, "A|B")
    assert list(table.explained([found])) == [f"t/x/{SPLIT}: regressed", *(f"  {x}" for x in PATH)]
    with pytest.raises(GpuliftError, match="holds 'bettre'; near it: t/x/better"):
        table.rows_named(TABLE, "bettre")
    of_command = replace(TABLE, rows=(replace(found, group="python3", subject="wall"),))
    assert table.rows_named(of_command, "python3/w") == [*of_command.rows]


def test_markdown_has_what_is_notable_first_and_nothing_is_markup() -> None:
    first, rest, conditions = FORMS["markdown"](TABLE).split("<details>")
    assert first.startswith(f"**gpulift gate: ❌ {COUNTED}** (`base a, head b`)\n\n| ")
    assert "| ❌ error | `t/x/nasty` | – | – | – | <code>50 % done" in first
    shown = "head/base 1.05000, 95 % interval 1.04000 to 1.06000, 8 launches"
    assert f"| ❌ regressed | {ESCAPED} | 1 s | 1.05 s | {shown} | `mend it` |" in first
    assert [line[2:] for line in first.splitlines() if line.startswith("- ")] == [
        "<code>2 skipped&#58; no GPU&#59; buy one</code>",
        "`mind this`",
        "`control planted FAILED: not found: 1 %`",
        "`control end not finished: the budget ended`",
    ]
    assert rest.startswith("<summary>4 rows more</summary>")
    assert rest.count("➖ skipped") == 2
    assert "Thresholds and conditions" in conditions
    assert "- `family of 6`" in conditions
    for part in (first, rest):
        cells = {line.count(" | ") for line in part.splitlines() if line.startswith("| ")}
        assert len(cells) == 1
    assert not [bad for bad in ("<lines>", "\x1b", SPLIT) if bad in first]


def test_markdown_of_many_rows_stays_a_comment() -> None:
    many = tuple(row("regressed", FAILED, f"arm{n}" + "x" * 150) for n in range(130))
    said = FORMS["markdown"](replace(TABLE, rows=many))
    assert "And 30 more." in said
    assert len(said) < 65_536


def test_workflow_commands_are_errors_and_warnings_and_escaped() -> None:
    said = list(table.github(TABLE))
    assert [line.partition("::")[2].partition("::")[0] for line in said] == [
        "error title=gpulift control planted",
        "warning title=gpulift control end",
        "error title=gpulift error",
        "error title=gpulift regressed",
        "warning title=gpulift inconclusive",
    ]
    assert "50 %25 done:%0Atwo" in said[2]
    assert "\n" not in "".join(said)


def test_junit_has_every_row_and_control_and_only_what_xml_can_hold() -> None:
    content = FORMS["junit"](TABLE).encode()
    assert content.startswith(table.JUNIT_BEGINNING)
    assert not complaints(content)
    suite = ET.fromstring(content)
    kinds = {
        (one.get("classname"), one.get("name")): [(part.tag, part.get("type")) for part in one]
        for one in suite.iter("testcase")
    }
    assert kinds == {
        ("gate.controls", "null"): [("system-out", None)],
        ("gate.controls", "planted"): [("error", "FAILED")],
        ("gate.controls", "end"): [("failure", "not finished")],
        ("t.x", "nasty"): [("error", "error")],
        ("t.x", SPLIT): [("failure", "regressed")],
        ("t.x", "open"): [("failure", "inconclusive")],
        ("t.x", "usual"): [("skipped", "inconclusive")],
        ("t.x", "better"): [("system-out", None)],
        ("t.x", "same"): [("system-out", None)],
        ("t.x", "here"): [("skipped", "skipped")],
        ("t.x", "there"): [("skipped", "skipped")],
    }
    assert [one.attrib for one in suite.iter("property")] == [{"name": "mode", "value": "duet"}]
    counts = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["11", "3", "2", "3"]
    little = replace(TABLE, rows=ROWS[2:3], exit_code=0)
    both = ET.fromstring(table.junit(TABLE, little))
    assert [one.get("skipped") for one in both] == ["3", "1"], "the exit code says nothing of it"
    (regressed,) = suite.iterfind(".//failure[@type='regressed']")
    assert regressed.text == "\n".join(PATH)
    assert regressed.get("message") == LINES[1]
    assert "two\\x1b[0m <lines>" in str(suite.find(".//error[@type='error']").get("message"))  # type: ignore[union-attr]


def test_json_has_every_field_and_the_keys_of_its_question() -> None:
    document = json.loads(FORMS["json"](TABLE))
    assert (document["mode"], document["exit_code"], len(document["rows"])) == ("duet", 1, 8)
    assert document["evidence"] == "here"
    assert document["controls"][1] == {"name": "planted", "state": "FAILED",
                                       "said": "not found: 1 %"}  # fmt: skip
    found = document["rows"][1]
    assert found["estimate"] == {"value": 1.05, "low": 1.04, "high": 1.06}
    assert found["shown"] == {"base": "1 s", "head": "1.05 s"}
    assert (found["subject"], found["kind"], found["limit"]) == (f"t/x/{SPLIT}", "failed", 0.01)
    assert (found["path"], found["remedy"], found["arm"]) == ([*PATH], "mend it", SPLIT)
    assert document["rows"][5]["smallest_effect"] is None, "JSON has no infinity"


def test_benchers_format_has_nanoseconds_and_what_has_an_interval() -> None:
    ends = {"value": 1.05, "lower_value": 1.04, "upper_value": 1.06}
    assert json.loads(FORMS["bmf"](TABLE)) == {
        f"t/x/{SPLIT}": {"latency": {key: end * 1e9 for key, end in ends.items()}},
        "t/x/open": {"it/s": ends},
        "t/x/same": {"value": {"value": 3.0}},
    }


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ([], ["lines"]),
        (["github"], ["lines", "github"]),
        (["markdown", "github"], ["markdown", "github"]),
        (["json"], ["json"]),
        (["junit=x.xml", "bmf=x.json"], ["lines", "junit", "bmf"]),
        (["json", "junit=x.xml"], ["json", "junit"]),
    ],
)
def test_lines_stand_on_stdout_unless_another_form_does(given: list[str], made: list[str]) -> None:
    assert [one.form for one in outputs(given)] == made


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["html"], "--format knows lines, json, markdown, github, junit, bmf, not 'html'"),
        (["json", "github"], "--format json stands alone"),
        (["lines", "markdown"], "--format lines stands alone"),
        (["junit="], "--format junit=: names no file"),
        (["json=x", "bmf=x"], "--format bmf=x: another form goes to this file, too"),
        (["junit=no/such/file.xml"], "there is no such folder"),
        (["junit=."], "is a folder"),
    ],
)
def test_forms_that_cannot_be_are_refused(given: list[str], words: str) -> None:
    with pytest.raises(GpuliftError, match=words):
        outputs(given)


def test_a_form_goes_into_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.show(TABLE, [Output("github"), Output("json", tmp_path / "x.json")])
    assert capsys.readouterr().out.startswith("::error title=gpulift control planted")
    assert json.loads((tmp_path / "x.json").read_bytes())["exit_code"] == 1
    with pytest.raises(GpuliftError, match="cannot be written"):
        table.show(TABLE, [Output("junit", tmp_path)])
