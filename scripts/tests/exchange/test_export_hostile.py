"""What records of strangers must not do to those who read exports of them."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpulift import cli
from gpulift.commands.exchange import EXPORTS
from gpulift.exchange.csv_table import all_columns, csv_bytes, defused
from gpulift.exchange.prometheus import prometheus_text
from gpulift.ground.errors import OK
from gpulift.ground.markup import code
from gpulift.records.read import Run, read_run
from tests import sample
from tests.junit_rules import complaints

pytestmark = pytest.mark.world

LONG = "n" * 10_000
HOSTILE = (
    "<script>alert(1)</script>",
    "</system-out>]]><!--",
    'a"b\\c\nd',
    '"} 1\ngpulift_up{x="',
    "| a | b |\n|---|---|",
    "`code` **bold** _x_ [link](http://example.org) ![image](x) @somebody #1 www.example.org",
    "](javascript:alert(1))",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\x1b[2J\x1b]0;title\x07\x00\x9b31m",
    "=HYPERLINK(1)",
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "../../x",
    "/etc/passwd",
    "\u2028\u2029\x85\ufffe",
    LONG,
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def records(hostile: str) -> list[sample.Json]:
    """Every text that a record can hold, and that an export shows, is hostile."""
    context = copy.deepcopy(sample.GPU_CONTEXT)
    context["gpu"]["name"] = hostile
    context["build"]["commit"] = hostile
    context["driver"] = hostile
    context["host"]["cpu"] = hostile
    context["versions"] = {hostile: hostile}
    texts = {"question": hostile, "notes": {hostile: hostile}, "started_at": hostile}
    arms = [sample.arm("base", 1e-3), sample.arm(hostile, 5e-4), sample.skipped_arm("s", hostile)]
    arms[1]["cost"] = {"bytes": 1e6, "roof": hostile}
    case = {"axis": hostile}
    made = sample.launches(2, "hostile/technique", case, arms, context=context, **texts)
    ceiling = sample.launches(2, "ceiling/x", case, arms, context=context, **texts)
    failed = sample.unmeasured("failing/one", case, "failed", hostile, context, remedy=hostile)
    return [*made, *ceiling, failed]


def exported(
    format: str, hostile: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[str, Path]:
    """What `export` prints, and the run folder."""
    folder = sample.write(root / "run", records(hostile))
    assert cli.main(["export", format, str(folder)]) == OK
    return capsys.readouterr().out, folder


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("format", sorted(EXPORTS))
def test_nothing_reaches_the_terminal(
    format: str, hostile: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, folder = exported(format, hostile, root, capsys)
    if format == "gbench":  # JSON, whose texts are escaped by its readers
        text = json.dumps(json.loads(text), ensure_ascii=True)
    assert CONTROL.search(text) is None
    assert sorted(one.name for one in folder.iterdir()) == [
        "ceiling.x.jsonl",
        "failing.one.jsonl",
        "hostile.technique.jsonl",
    ]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_gbench_holds_no_control_letters(
    hostile: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = exported("gbench", hostile, root, capsys)
    assert CONTROL.search(text) is None
    names = {one["name"] for one in json.loads(text)["benchmarks"]}
    assert any(hostile in name for name in names)  # word for word to whoever parses it


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("bytes_of", [csv_bytes, all_columns])
def test_no_cell_of_a_spreadsheet_is_a_formula(
    hostile: str, bytes_of: Callable[[list[Run]], bytes], tmp_path: Path
) -> None:
    run = read_run(sample.write(tmp_path / "run", records(hostile)))
    table = list(csv.DictReader(io.StringIO(bytes_of([run]).decode())))
    assert len(table) == (13 if bytes_of is all_columns else 7)
    for row in table:
        for name, cell in row.items():
            number = re.fullmatch(r"-?\d[\d.e+-]*", cell) is not None
            assert number or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), name
    assert {row["technique"] for row in table} == {"hostile/technique", "ceiling/x", "failing/one"}


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", " =1", "＝1"])
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert defused(text) == f"'{text}"
    assert defused(f"a;{text};b") == f"a;'{text};b"  # where semicolons part cells
    assert defused(f"\t{text}") == f"\\t{text}"


@pytest.mark.parametrize("text", ["", "a=1", "1-2", "nvidia-h200", "'=1", "a; b"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert defused(text) == text


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_label_ends_early(hostile: str, tmp_path: Path) -> None:
    run = read_run(sample.write(tmp_path / "run", records(hostile)))
    text = prometheus_text([run])
    families = list(text_string_to_metric_families(text))
    assert all(family.name.startswith("gpulift_") for family in families)
    assert "gpulift_up" not in {family.name for family in families}
    samples = [one for family in families for one in family.samples]
    assert len(samples) == sum(not line.startswith("#") for line in text.splitlines())
    times = [one for one in samples if one.name == "gpulift_step_time_seconds"]
    assert len(times) == 4
    assert {one.labels["technique"] for one in times} == {"hostile/technique", "ceiling/x"}
    if hostile.isprintable():
        assert {one.labels["case"] for one in times} == {f"axis:{hostile}"}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_element_of_the_xml_comes_from_a_record(
    hostile: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = exported("junit", hostile, root, capsys)
    assert not complaints(text.encode())
    document = ET.fromstring(text.encode())
    assert {one.tag for one in document.iter()} <= {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "skipped",
        "system-out",
    }
    (failure,) = document.iter("failure")
    if hostile.isprintable():
        assert hostile in failure.attrib["message"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_markdown_of_a_record_is_text(
    hostile: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = exported("github", hostile, root, capsys)
    plain = re.sub(r"`[\w -/,%:.+=()]*`|</?(code|details|summary)>", "", text)
    assert "<" not in plain
    assert "`" not in plain
    assert "http:" not in text
    assert "www." not in text
    assert "@" not in text
    assert "](" not in text
    assert max(map(len, text.splitlines())) < 6 * 4 * 170  # names are cut
    widths: Sequence[int] = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert set(widths) <= {5, 7}  # the roofs' and the techniques' table


def test_code_shows_the_letters_that_it_was_given() -> None:
    assert code("a|b*c_d") == "<code>a&#124;b&#42;c&#95;d</code>"
    assert code("x\ny") == "<code>x&#92;ny</code>"
    assert code("`x` <b>") == "<code>&#96;x&#96; &#60;b&#62;</code>"


def test_ids_and_plain_words_are_in_backticks_to_be_read_unrendered() -> None:
    assert code("allocator/host_malloc/threads:1/one") == "`allocator/host_malloc/threads:1/one`"
    assert code("too hot (90.5 C)") == "`too hot (90.5 C)`"
    for blank in ("", " "):
        assert "`" not in code(blank), "which would be no code"
