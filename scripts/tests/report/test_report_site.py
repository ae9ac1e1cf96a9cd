"""The report as linked pages: where a section stands, and that every link leads to something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from gpulift.analysis.analyse import Beside, analyse
from gpulift.analysis.errata import Erratum
from gpulift.analysis.summary import Summary, summarise
from gpulift.records.read import read_run
from gpulift.report import page, site
from tests import runs_made, sample
from tests.figures import analysed, undrawn_pages
from tests.report.test_report import summary
from tests.report.test_report_page import run_of

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
        assert text.count('<h2 id="measured"') == 1
    assert '<h2 id="measured"' not in front
    assert "The answer" in front


def test_the_index_has_the_figure_of_most_launches_of_any_run() -> None:
    def measured(launches: int, n: int) -> list[sample.Json]:
        arms = [sample.arm("x", 2e-3), sample.arm("y", 1e-3)]
        return sample.launches(launches, "a/b", {"n": n}, arms)

    def cell(pages: Mapping[str, str]) -> str:
        index = pages[site.FRONT].partition('id="index-t"')[2]
        return index.partition("#t-a-b")[2].partition("<tr>")[0]

    once = run_of([*runs_made.full_gpu(), *measured(1, 1)], "once", "2026-11-22T04:00:00Z")
    thrice = run_of(measured(3, 2), "thrice", "2026-11-21T04:00:00Z")
    alone = cell(undrawn_pages(analysed([once])))
    assert ("●○○" in alone, "y over x, n 1" in alone) == (True, True)
    both = undrawn_pages(analysed([once, thrice]))
    assert 'class="run"' in both["pages/t-a-b.html"]
    assert ("●●○" in cell(both), "y over x, n 2" in cell(both)) == (True, True)


def test_a_run_whose_ratios_are_a_known_error_stands_behind_another() -> None:
    def measured(name: str, day: int, cases: int) -> Summary:
        arms = [sample.arm("x", 2e-3), sample.arm("y", 1e-3)]
        made = [one for n in range(cases) for one in sample.launches(2, "a/b", {"n": n}, arms)]
        asked = [{**one, "question": f"Of the {name}?"} for one in made]
        return run_of(asked, name, f"2026-11-2{day}T04:00:00Z")

    runs = [measured("chains", 1, cases=2), measured("kernels", 2, cases=1)]
    held = analyse(runs, Beside())
    assert '<h3 id="t-a-b">Of the chains?' in undrawn_pages(held)["pages/t-a-b.html"]
    wrong = Erratum("x", "x", "x", "x", runs=("*",), before="2026-11-22", leads=False)
    told = undrawn_pages(analyse(runs, Beside(errata=(wrong,))))["pages/t-a-b.html"]
    assert '<h3 id="t-a-b">Of the kernels?' in told
    (folded,) = re.findall(r'<details class="run">.*?</summary>', told, flags=re.DOTALL)
    assert "chains" in folded


def dead_links(folder: Path) -> list[str]:
    """Links of a report's pages that lead to no place in it."""
    ids = {
        file.resolve(): set(re.findall(r' id="([^"]+)"', file.read_text("utf-8")))
        for file in html_files(folder)
    }
    found = []
    for file in html_files(folder):
        for link in re.findall(r'<a [^>]*href="([^"]+)"', file.read_text("utf-8")):
            path, _, anchor = link.partition("#")
            target = (file.parent / path).resolve() if path else file.resolve()
            if not target.is_file() or (anchor and anchor not in ids[target]):
                found.append(f"{file.name}: {link}")
    return found


def test_every_link_leads_to_a_place_that_is_there(folder: Path) -> None:
    assert dead_links(folder) == []


def test_every_record_is_cited_on_one_page(folder: Path) -> None:
    cited = [
        id
        for file in html_files(folder)
        for id in re.findall(r' id="r-([0-9a-f]+)"', file.read_text("utf-8"))
    ]
    assert sorted(cited) == sorted(r.id for r in summary(runs_made.full_gpu()).run.records)


def test_a_further_run_of_the_same_cases_adds_little_to_any_page() -> None:
    records = runs_made.full_gpu()
    runs = [run_of(records, f"run{n}", f"2026-11-2{n}T04:00:00Z") for n in range(4)]
    sizes = [
        {file: len(text.encode()) for file, text in undrawn_pages(analysed(runs[:count])).items()}
        for count in (1, 2, 3, 4)
    ]
    for before, after in pairwise(sizes):
        assert after.keys() == before.keys()
        grown = {file: size - before[file] for file, size in after.items()}
        assert 0 < grown[site.FRONT] < 4000, "what is new of it, and where to find the rest"
        assert max(grown.values()) < 1000 * len(records)


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
    def measured(*techniques: str) -> Summary:
        arms = [sample.arm("x", 2e-3), sample.arm("y", 1e-3)]
        return summary([one for id in techniques for one in sample.launches(1, id, {"n": 1}, arms)])

    page.write(analysed([measured("a/b", "a/c")]), tmp_path)
    mine = tmp_path / site.FOLDER / "mine.html"
    mine.write_text("mine", encoding="utf-8")
    before = set(html_files(tmp_path))
    page.write(analysed([measured("a/c")]), tmp_path)
    gone = before - set(html_files(tmp_path))
    assert gone == {tmp_path / site.FOLDER / "t-a-b.html"}
    assert mine.read_text(encoding="utf-8") == "mine"
