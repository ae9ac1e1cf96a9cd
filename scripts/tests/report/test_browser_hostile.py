"""A page of records whose every text is an attack does nothing but show them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpulift.cli import main
from gpulift.ground.errors import OK
from tests import browser, runs_made, sample
from tests.report.test_report_site import html_files

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing()),
]

MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>"
    '"><svg onload=alert(3)>'
    "' onmouseover='alert(4)' autofocus onfocus=alert(5) x='"
    "</style></script></title></textarea><!--<iframe src=//example.invalid></iframe>"
    '<a href="javascript:alert(6)">go</a><base href=//example.invalid>'
    "&lt;script&gt;alert(7)&lt;/script&gt; ]]> [x](javascript:alert(8)) ![y](http://example.invalid/y)"
    "<style>@import '//example.invalid';</style> url(//example.invalid)"
)
CONTROLS = (
    "\u202eexe.gnp\u2066 \x1b[2J\x1b]0;owned\x07\x9b31m \r\n\t\x00 $x_{ \\frac{ {{ 7 * 7 }} {% x %}"
)
LONG = "A" * 2_000  # of 10,000 a browser takes a minute to lay out the pages
UPWARDS = "../../x"
# A link to a page of the report, to its table, or to a file of the records that it is of.
OURS = re.compile(
    r"((pages/|\.\./)?[a-z0-9-]+\.html)?(#[A-Za-z][\w.:-]*)?|report\.csv"
    r"|(\.\./){1,2}[mclu]/records\.jsonl"
)
FOUND = """() => ({
    width: document.documentElement.scrollWidth,
    scripts: document.querySelectorAll('script').length,
    styles: document.querySelectorAll('style:not(svg style)').length,
    foreign: document.querySelectorAll('iframe, object, embed, base, form').length,
    handlers: [...document.querySelectorAll('*')].filter(
        one => [...one.attributes].some(a => a.name.startsWith('on'))).length,
    links: [...document.querySelectorAll('[href], [src]')].map(
        one => one.getAttribute('href') ?? one.getAttribute('src') ?? ''),
    ids: [...document.querySelectorAll('[id]')].map(one => one.id).filter(
        id => !/^[A-Za-z][\\w.:-]*$/.test(id)),
})"""
# What decides how the rest is read, or is a number in the shape of a text.
KEPT = ("schema", "kind", "outcome", "regime", "role", "clock", "started_at", "launch")


def hostile(value: Any, attack: str, key: str = "") -> Any:
    """The same object with the attack in front of every text and, in maps, of every free name."""
    if isinstance(value, dict):
        free = key in ("notes", "versions", "environment", "case")
        return {f"{attack}{k}" if free else k: hostile(v, attack, k) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(one, attack, key) for one in value]
    return f"{attack}{value}" if isinstance(value, str) and key not in KEPT else value


def records(attack: str) -> list[sample.Json]:
    """Some of every outcome, with an attack in each field."""
    gpu = [one for one in runs_made.full_gpu() if one["technique"] != "transfer/pinned_copy"]
    noted = [{**one, "notes": {"algorithm": "split"}} for one in [*gpu[:8], *gpu[-6:]]]
    return [hostile(one, attack) for one in [*noted, *runs_made.with_troubles()[1:]]]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run for each attack; the folder above it holds nothing else but the runs."""
    above = tmp_path_factory.mktemp("hostile") / "deep" / "enough"
    above.mkdir(parents=True)
    runs = []
    for name, attack in (("m", MARKUP), ("c", CONTROLS), ("l", LONG), ("u", UPWARDS)):
        folder = above / name
        folder.mkdir()
        file = folder / "records.jsonl"
        made = records(attack)[:: 3 if attack == LONG else 1]
        file.write_text("".join(f"{json.dumps(one)}\n" for one in made), encoding="utf-8")
        runs.append(str(folder))
    out = above / "report"
    before = files(above.parents[1])
    assert main(["report", *runs, "--out", str(out)]) == OK
    written = files(above.parents[1]) - before
    assert written, "a report was written"
    assert all(out in one.parents for one in written), "and nothing outside its folder"
    return out


def files(folder: Path) -> set[Path]:
    return {one for one in folder.rglob("*") if one.is_file()}


def test_names_of_files_hold_nothing_of_the_attack(report: Path) -> None:
    for one in files(report):
        name = one.relative_to(report).as_posix()
        assert name.isascii()
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-./"), name
        assert len(name) < 120


@pytest.fixture(scope="module")
def visits(chromium: Browser, report: Path) -> list[Any]:
    """What every page was found to be, in one visit, since long names take long to lay out."""
    found = []
    for file in html_files(report):
        with browser.page(chromium, file, **browser.options(browser.PHONE)) as (page, seen):
            one = page.evaluate(FOUND)
            page.set_viewport_size({"width": 1600, "height": 1000})
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            for event in ("mouseover", "focus", "load", "error", "click"):
                page.evaluate(
                    "name => document.querySelectorAll('body *').forEach("
                    "one => one.dispatchEvent(new Event(name)))",
                    event,
                )
            page.wait_for_timeout(200)
            text = page.text_content("main")
            found.append({**one, "name": file.name, "text": text, "seen": seen.all()})
    return found


def test_nothing_runs_asks_or_complains(visits: list[Any]) -> None:
    assert {one["name"]: one["seen"] for one in visits if one["seen"]} == {}
    assert any("<script>alert(1)</script>" in one["text"] for one in visits), "as a text"


def test_the_page_has_only_its_own_markup(visits: list[Any]) -> None:
    for one in visits:
        assert [link for link in one["links"] if OURS.fullmatch(link) is None] == [], one["name"]
        counts = [one[kind] for kind in ("scripts", "styles", "foreign", "handlers", "ids")]
        assert counts == [1, 1, 0, 0, []], one["name"]


def test_a_very_long_name_does_not_widen_the_page(visits: list[Any]) -> None:
    assert {one["name"] for one in visits if one["width"] > browser.PHONE["width"]} == set()


def test_no_control_character_or_change_of_direction_is_left(report: Path) -> None:
    allowed = {"\n", "\t"}
    for file in (*html_files(report), report / "report.md"):
        text = file.read_text(encoding="utf-8")
        odd = {char for char in text if (ord(char) < 32 or 127 <= ord(char) < 160)} - allowed
        odd |= {char for char in text if char in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068"}
        assert odd == set(), file.name


def test_the_markdown_holds_no_markup_of_the_attack(report: Path) -> None:
    text = (report / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img" not in text
    assert "](javascript:" not in text.replace("\\]", "")
    assert "![y](http" not in text


def test_an_attack_that_worked_would_be_seen(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "open.html").write_text(
        "<script>alert(1)</script><img src='http://example.invalid/a.png'><script>no()</script>",
        encoding="utf-8",
    )
    with browser.page(chromium, tmp_path / "open.html") as (page, seen):
        page.wait_for_timeout(100)
        assert seen.dialogs == ["1"]
        assert seen.requests == ["http://example.invalid/a.png"]
        assert any("no is not defined" in one for one in seen.errors)
