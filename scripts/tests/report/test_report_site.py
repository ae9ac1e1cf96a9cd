"""The report as linked pages: where a section stands, and that every link leads to something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulift.analysis.summary import summarise
from gpulift.records.read import read_run
from gpulift.report import page, site
from tests import runs_made, sample
from tests.figures import analysed
from tests.report.test_report import summary
from tests.report.test_report_page import html_of

pytestmark = pytest.mark.world

TABLE = b"technique,speedup\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a full run on a GPU."""
    out = tmp_path_factory.mktemp("linked")
    front = page.write(analysed([summary(runs_made.full_gpu())]), out, tables={"report.csv": TABLE})
    assert front == out / site.FRONT
    return out


def html_files(folder: Path) -> list[Path]:
    return [folder / site.FRONT, *sorted((folder / site.FOLDER).glob("*.html"))]


def test_every_technique_has_its_page_and_the_front_page_names_all(folder: Path) -> None:
    front = (folder / site.FRONT).read_text("utf-8")
    techniques = {row.technique for row in summary(runs_made.full_gpu()).worths}
    named = dict(re.findall(r'<a href="pages/(t-[\w-]+\.html)#t-[\w-]+">([^<]+)</a>', front))
    assert set(named.values()) == techniques
    for file, technique in named.items():
        text = (folder / site.FOLDER / file).read_text("utf-8")
        assert f"<h1>{technique}</h1>" in text
        assert text.count('<section class="technique"') == 1
    assert '<section class="technique"' not in front
    assert "The answer" in front


def test_every_link_leads_to_a_place_that_is_there(folder: Path) -> None:
    ids = {
        file.resolve(): set(re.findall(r' id="([^"]+)"', file.read_text("utf-8")))
        for file in html_files(folder)
    }
    for file in html_files(folder):
        for link in re.findall(r'<a [^>]*href="([^"]+)"', file.read_text("utf-8")):
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file.resolve()
            assert target.is_file(), f"{file.name}: {link}"
            if anchor:
                assert anchor in ids[target], f"{file.name}: {link}"


def test_every_record_is_cited_on_one_page(folder: Path) -> None:
    cited = [
        id
        for file in html_files(folder)
        for id in re.findall(r' id="r-([0-9a-f]+)"', file.read_text("utf-8"))
    ]
    assert sorted(cited) == sorted(r.id for r in summary(runs_made.full_gpu()).run.records)


def test_no_section_of_the_single_page_is_lost(folder: Path) -> None:
    single = html_of(runs_made.full_gpu(), folder / "single")
    headings = set(re.findall(r'<h2 id="([\w-]+)"', single))
    linked = {
        id
        for file in html_files(folder)
        for id in re.findall(r'<h2 id="([\w-]+)"', file.read_text("utf-8"))
    }
    assert headings == linked


def test_tables_are_there_to_download(folder: Path) -> None:
    assert (folder / "report.csv").read_bytes() == TABLE
    assert '<a href="report.csv">report.csv</a>' in (folder / site.FRONT).read_text("utf-8")


def test_files_of_records_are_linked_where_they_go_with_the_report(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "away" / "report"
    sample.write(run, runs_made.without_gpu())
    for out, linked in ((run / "report", True), (elsewhere, False)):
        page.write(analysed([summarise(read_run(run))]), out)
        texts = [file.read_text("utf-8") for file in html_files(out)]
        assert any('href="../../' in text for text in texts) is linked
        assert not any(str(tmp_path.name) in text for text in texts)


def test_pages_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    page.write(analysed([summary(runs_made.full_gpu())]), tmp_path)
    mine = tmp_path / site.FOLDER / "mine.html"
    mine.write_text("mine", encoding="utf-8")
    page.write_single(analysed([summary(runs_made.full_gpu())]), tmp_path)
    assert list((tmp_path / site.FOLDER).glob("*.html")) == [mine]
    assert "Each technique: expected" in (tmp_path / site.FRONT).read_text("utf-8")
