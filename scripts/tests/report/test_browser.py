"""The pages of the committed records: accessibility, keyboard, print, and without script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpulift.cli import main
from gpulift.ground.errors import OK
from gpulift.report.page import write
from gpulift.report.site import FOLDER, FRONT
from tests import browser
from tests.conftest import CHECKOUT
from tests.figures import analysed
from tests.report import test_report_facts, test_report_page
from tests.report.test_report_site import dead_links

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(bool(browser.missing()), reason=browser.missing()),
]

HEIGHT = 900
MIDDLE = 1000  # wide columns differ from a phone's by their layout alone
MATMUL = "t-precision-matmul.html"
OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"
# Leaves one of each kind of part: for all rows of the page axe-core takes minutes.
ONE_OF_EACH = """() => {
    const name = one => one ? one.tagName + '.' + one.getAttribute('class') : '';
    const kind = one => [one, one.parentElement, one.parentElement.parentElement].map(name).join();
    for (const parts of ['main details', 'tbody tr', 'main li']) {
        const seen = new Set();
        for (const part of document.querySelectorAll(parts)) {
            const kinds = [part, ...part.querySelectorAll('*')].map(kind);
            if (kinds.every(one => seen.has(one))) part.remove();
            kinds.forEach(one => seen.add(one));
        }
    }
}"""
CELLS = "[...document.querySelectorAll('main td, main dd, main p')].map(one => one.textContent)"
# Not those without text, and not what no screen shows: texts for a screen reader, parts of figures.
UNSEEN = """[...document.querySelectorAll('main td, main dd, main p')].filter(
    one => one.textContent.trim() && !one.checkVisibility()).map(one => one.textContent.trim())"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pages of the committed records of a GPU and of a machine without one."""
    out = tmp_path_factory.mktemp("committed")
    machines = [str(CHECKOUT / "results" / name) for name in ("nvidia-h200", "cpu-amd-epyc")]
    assert main(["report", *machines, "--out", str(out)]) == OK
    return out


def of_each_kind(report: Path) -> list[Path]:
    """All pages but those of further techniques."""
    files = [report / FRONT, *sorted((report / FOLDER).glob("*.html"))]
    return [file for file in files if not file.name.startswith("t-") or file.name == MATMUL]


def axe_core() -> Any:
    """The rules of axe-core, which runs in the page."""
    name = "axe_playwright_python.sync_playwright"
    return pytest.importorskip(name, reason="axe-playwright-python is not there").Axe()


def test_axe_does_find_what_is_wrong(chromium: Browser, tmp_path: Path) -> None:
    axe = axe_core()
    (tmp_path / "bad.html").write_text("<h1></h1><button></button>", encoding="utf-8")
    with browser.page(chromium, tmp_path / "bad.html") as (page, _):
        assert axe.run(page).violations_count > 0


def test_one_of_each_kind_of_row_is_left(chromium: Browser, tmp_path: Path) -> None:
    rows = "<tr><td>1</td></tr><tr><td>2</td></tr><tr><td class='bad'>3</td></tr>"
    file = tmp_path / "rows.html"
    file.write_text(f"<main><table><tbody>{rows}</tbody></table></main>", encoding="utf-8")
    with browser.page(chromium, file) as (page, _):
        page.evaluate(ONE_OF_EACH)
        assert page.evaluate(CELLS) == ["1", "3"]


def test_the_first_page_can_be_sent_and_three_times_the_records_open_fast(report: Path) -> None:
    sizes = {file.name: file.stat().st_size for file in report.rglob("*.html")}
    assert sizes[FRONT] <= 300_000
    assert 3 * max(sizes.values()) <= 4_000_000, sizes


def test_every_link_between_the_pages_has_its_target(report: Path) -> None:
    assert dead_links(report) == []


def test_no_page_is_wider_than_the_screen_and_axe_finds_no_violation(
    chromium: Browser, report: Path
) -> None:
    axe = axe_core()
    phone, wide = browser.PHONE["width"], browser.WIDE["width"]
    for file in of_each_kind(report):
        with browser.page(chromium, file, **browser.options(browser.PHONE)) as (page, seen):
            page.evaluate(OPEN_ALL)
            for width in (phone, MIDDLE, wide):
                page.set_viewport_size({"width": width, "height": HEIGHT})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, file.name
            page.evaluate(ONE_OF_EACH)
            for width in (wide, phone):
                page.set_viewport_size({"width": width, "height": HEIGHT})
                page.emulate_media(color_scheme="dark" if width == wide else "light")
                found = axe.run(page, options={"resultTypes": ["violations"]})
                assert found.violations_count == 0, f"{file.name}: {found.generate_report()}"
            assert seen.all() == []


def test_the_index_is_filtered_and_leads_to_a_technique(chromium: Browser, report: Path) -> None:
    with browser.page(chromium, report / FRONT, **browser.options()) as (page, _):
        page.locator("#words").fill("precision/matmul")
        rows = page.locator("table.index tbody tr").filter(visible=True)
        assert rows.count() == 1
        rows.first.locator("th a").click()
        assert page.url.endswith("pages/t-precision-matmul.html#t-precision-matmul")


def test_the_filter_is_the_first_stop_and_knows_the_field_s_words_arms_and_cases(
    chromium: Browser, report: Path
) -> None:
    with browser.page(chromium, report / FRONT, **browser.options()) as (page, seen):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "words"
        page.keyboard.press("Tab")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "words"
        rows = page.locator("table.index tbody tr").filter(visible=True)
        every = rows.count()
        for words, technique in (
            ("DDP", "distributed/data_parallel"),
            ("tf32", "precision/training_step"),  # an arm
            ("Direction:H2D", "transfer/pinned_copy"),  # a case
            ("pin_memory COPY", "transfer/pinned_copy"),
        ):
            page.locator("#words").fill(words)
            assert technique in rows.locator("th").all_inner_texts(), words
            assert rows.count() < every / 3, words
        page.locator("#words").fill("MATMUL")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.textContent") == "precision/matmul"
        assert seen.all() == []


def test_the_front_page_prints_the_answer_without_the_index(
    chromium: Browser, report: Path
) -> None:
    with browser.page(chromium, report / FRONT, **browser.options()) as (page, _):
        page.emulate_media(media="print")
        assert not page.locator("table.index").is_visible()
        assert page.locator("h2#answer").is_visible()


def test_without_script_all_is_there_and_no_control_is_dead(
    chromium: Browser, report: Path
) -> None:
    plain = browser.options(java_script_enabled=False)
    for file in of_each_kind(report):
        with browser.page(chromium, file, **browser.options()) as (page, _):
            with_script = page.evaluate(CELLS)
        with browser.page(chromium, file, **plain) as (page, _):
            assert page.evaluate(CELLS) == with_script
            controls = page.locator("button, input, select, output, [role=button]")
            assert [one for one in controls.all() if one.is_visible()] == []
            if file.name == MATMUL:
                page.locator("details > summary").first.click()
                assert page.locator("details[open]").count() > 0, "folding needs no script"


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_print_shows_what_is_folded(chromium: Browser, report: Path, script: bool) -> None:
    plain = browser.options(java_script_enabled=script)
    for name in (MATMUL, "m0.html"):
        with browser.page(chromium, report / FOLDER / name, **plain) as (page, _):
            assert page.evaluate(UNSEEN), "on the screen some of it is folded"
            page.emulate_media(media="print")
            if script:
                page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert page.evaluate(UNSEEN) == []
            assert page.pdf().startswith(b"%PDF")


def test_the_stop_of_the_keyboard_behind_the_filter_skips_to_the_answer(
    chromium: Browser, report: Path
) -> None:
    with browser.page(chromium, report / FRONT, **browser.options()) as (page, _):
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        assert "skip" in focused(page, "textContent").lower()
        assert page.evaluate("document.activeElement.getBoundingClientRect().height") > 0
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main"


def test_the_filter_is_reached_by_keyboard_and_hides_rows(chromium: Browser, report: Path) -> None:
    with browser.page(chromium, report / FOLDER / MATMUL, **browser.options()) as (page, seen):
        for _ in range(60):
            page.keyboard.press("Tab")
            if focused(page, "type") == "search":
                break
        assert focused(page, "type") == "search"
        rows = page.locator("table.t tbody tr")
        before = rows.count()
        page.keyboard.type("bf16")
        shown = rows.filter(visible=True).count()
        assert 0 < shown < before
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        assert rows.filter(visible=True).count() > shown
        assert seen.all() == []


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a technique in two runs of one machine, of training steps with metrics."""
    out = tmp_path_factory.mktemp("several")
    records = test_report_facts.training(recomputed_share=0.25)
    runs = [test_report_page.run_of(records, f"run{n}", f"2026-11-2{n}T04:00:00Z") for n in (1, 2)]
    write(analysed(runs), out)
    (technique,) = (out / FOLDER).glob("t-*.html")
    return technique


def test_the_filter_unfolds_the_runs_that_have_what_is_looked_for(
    chromium: Browser, several: Path
) -> None:
    with browser.page(chromium, several, **browser.options()) as (page, seen):
        fold = page.locator("details.run")
        assert fold.count() == 1
        page.locator("#words").fill("nothing has this")
        assert fold.get_attribute("open") is None
        page.locator("#words").fill("graph")
        assert fold.get_attribute("open") is not None
        assert seen.all() == []


def test_axe_finds_no_violation_in_folds_and_metrics(chromium: Browser, several: Path) -> None:
    axe = axe_core()
    with browser.page(chromium, several, **browser.options()) as (page, _):
        page.evaluate(OPEN_ALL)
        found = axe.run(page, options={"resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()


def test_heads_that_are_repeated_in_print_have_texts(chromium: Browser, several: Path) -> None:
    with browser.page(chromium, several, **browser.options()) as (page, _):
        page.emulate_media(media="print")
        shown = page.evaluate(
            """[...document.querySelectorAll('table.sort thead th[data-name]')].map(one => [
                getComputedStyle(one, '::before').content,
                one.querySelector('button').checkVisibility()])"""
        )
        assert len(shown) > 10
        assert all(len(words) > 2 and not button for words, button in shown), shown


def test_a_heading_s_button_sorts_its_table(chromium: Browser, report: Path) -> None:
    with browser.page(chromium, report / FOLDER / MATMUL, **browser.options()) as (page, _):
        page.evaluate(OPEN_ALL)
        table = page.locator("table.sort").first
        head = table.locator("thead th").first
        first = table.locator("tbody tr").first
        head.locator("button").press("Enter")
        one_way = (head.get_attribute("aria-sort"), first.text_content())
        head.locator("button").press("Enter")
        other_way = (head.get_attribute("aria-sort"), first.text_content())
        assert {one_way[0], other_way[0]} == {"ascending", "descending"}
        assert one_way[1] != other_way[1]


def focused(page: Page, key: str) -> str:
    return str(page.evaluate("key => document.activeElement[key] ?? ''", key))
