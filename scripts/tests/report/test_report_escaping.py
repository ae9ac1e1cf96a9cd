"""Texts of records in pages and Markdown: nothing in them is markup, hidden, or a path."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from gpulift.report import escaping, figures
from tests import runs_made
from tests.figures import analysed, undrawn_pages, written
from tests.report.test_report import pages, summary

pytestmark = pytest.mark.world

TURN = "\u202e"  # writes from right to left from here on
LONG = "long " * 2000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, µs × 3", "plain, µs × 3"),
        ("a\nb\tc", "a b c"),
        (f"a{TURN}b", "a\\u202eb"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
    ],
)
def test_what_is_hidden_or_obeyed_is_made_visible(text: str, shown: str) -> None:
    assert escaping.shown(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("![x](http://e.org/x.png)", "!\\[x]\\(http&#58;//e.org/x.png)"),
        ("[x][y] [z]: u", "[x]\\[y] [z]\\: u"),
        ("`code`", "\\`code\\`"),
        ("&lt;", "&amp;lt;"),
        ("@all #12 www.e.org", "@&#8203;all #&#8203;12 www&#46;e.org"),
        ("**bold**\n# head", "\\*\\*bold\\*\\* # head"),
        ("1.905× [1.899, 1.911]", "1.905× [1.899, 1.911]"),
    ],
)
def test_nothing_is_markdown(text: str, shown: str) -> None:
    assert escaping.markdown(text) == shown


def test_a_backslash_does_not_undo_the_escape_of_what_follows() -> None:
    assert escaping.markdown("\\|") == "\\\\\\|"


def test_code_cannot_be_ended_from_within() -> None:
    assert escaping.code("a/b-1") == "`a/b-1`"
    assert escaping.code("a` <b> `c") == "a\\` &lt;b&gt; \\`c"
    assert escaping.code("") == ""


def test_a_long_name_is_cut_and_whole_in_its_title() -> None:
    name = escaping.name('<b>"' + LONG)
    assert len(escaping.brief(LONG)) == escaping.MOST_LETTERS
    assert name.count("long") > 2000
    assert "<b>" not in name
    assert '<span title="&lt;b&gt;&#34;long' in name
    assert escaping.name("a<b") == "a&lt;b"


def test_a_line_may_break_behind_the_underscores_of_a_head() -> None:
    assert escaping.head("peak_a<b_bytes") == "peak_<wbr>a&lt;b_<wbr>bytes"
    assert escaping.head("_" + LONG) == escaping.name("_" + LONG)


def test_ids_are_plain_and_all_different() -> None:
    made = escaping.anchors(["a/b", "A b", '"><script>', "../../x", "", LONG], "t")
    assert made["a/b"] == "t-a-b"
    assert made["A b"] == "t-a-b-2"
    assert len(set(made.values())) == len(made)
    assert all(re.fullmatch(r"[a-z0-9-]{1,60}", one) for one in made.values())


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a\0b", "", LONG])
def test_files_of_figures_stay_in_their_folder(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9-]{1,80}", figures.file_name(name))


@pytest.fixture
def hostile() -> list[dict[str, object]]:
    """A run with markup, a link, a path and a change of direction in the names that are shown."""
    nasty = f'../../x" onload="1"><script>alert(1)</script>[l](http://e.org)|`{TURN}'
    records = copy.deepcopy(runs_made.with_troubles())
    for one in records:
        one["technique"] = nasty
        one["question"] = one["expectation"] = f"{nasty} {LONG}"
        one["context"]["gpu"]["name"] = nasty + LONG
        one["context"]["build"]["commit"] = nasty
        one["context"]["versions"] = {nasty: nasty}
        if "reason" in one:
            one["reason"] = nasty
    return records


def test_hostile_records_do_not_leave_their_cells(
    hostile: list[dict[str, object]], tmp_path: Path
) -> None:
    made = summary(hostile)
    page, answer = pages([made], tmp_path / "out")
    html = written(tmp_path / "out")
    assert html.count("<script") == html.count("<!doctype html>") > 1
    assert "<script>alert(1)</script>" in page.text
    assert TURN not in html + answer
    assert "<script" not in answer
    assert "](http" not in answer
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
    assert {one.name for one in (tmp_path / "out").iterdir()} == {
        "figures",
        "index.html",
        "pages",
        "report.md",
    }


def test_every_id_is_there_once_and_every_link_has_its_target(
    hostile: list[dict[str, object]],
) -> None:
    for records in (hostile, runs_made.full_gpu()):
        cited = set()
        for html in undrawn_pages(analysed([summary(records)])).values():
            ids = re.findall(r'<[^>]* id="([^"]*)"', html)
            assert len(ids) == len(set(ids))
            assert all(re.fullmatch(r"[a-z0-9-]+", one) for one in ids)
            links = set(re.findall(r'href="#([^"]*)"', html))
            assert links <= {*ids, "main"}
            cited |= {link for link in links if link.startswith("r-")}
        assert cited
