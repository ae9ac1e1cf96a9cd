"""The page of a fleet and those of its nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulift.fleet.judge import judge_fleet
from gpulift.fleet.page import write_page
from gpulift.ground.errors import GpuliftError
from tests import browser
from tests.fleet import made
from tests.report.test_browser import axe_core

pytestmark = pytest.mark.world

HOSTILE = "<b>x&y"


def folder_of(folder: Path) -> Path:
    """Nodes that pass, fail, are outliers, and do not answer, in two racks."""
    names = ["sound1", "sound2", "sound3", HOSTILE]
    for number, name in enumerate(names):
        made.node(folder, name, [made.check(made.MEMORY, 4e12 + 1e9 * number)])
    made.node(folder, "failed", [made.check("health/ecc", verdict="fail", reason="why")], 1)
    made.node(folder, "slow", [made.check(made.MEMORY, 3e12)], card="gpu5")
    made.meeting(folder, "pairs", ["sound1", "sound2"], 40e9)
    made.meeting(folder, "pairs", ["sound3", "failed"], None, code=1)
    labels = {"sound1": "rack1", "slow": "rack1", "failed": "rack2"}
    return made.fleet(folder, [*names, "failed", "slow", "gone"], labels)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_of(tmp_path_factory.mktemp("fleet"))
    return write_page(judge_fleet(folder), folder)


def test_nodes_that_fail_are_first_and_each_has_its_page(page: Path) -> None:
    text = page.read_text("utf-8")
    assert "7 nodes: 2 fail, 1 no answer, 4 pass; 1 fault of pairs and groups" in text
    links = re.findall(r'<th scope="row"><a href="(nodes/[^"]+)">', text)
    assert links[:3] == ["nodes/n-failed.html", "nodes/n-slow.html", "nodes/n-gone.html"]
    assert len(links) == 7
    for link in links:
        assert (page.parent / link).is_file()


def test_racks_have_their_nodes_by_how_near_they_are(page: Path) -> None:
    text = page.read_text("utf-8")
    racks = re.findall(r'<tr><th scope="row">(no rack|rack\d)<td>(.*)', text)
    assert [rack for rack, _ in racks] == ["no rack", "rack1", "rack2"]
    assert 'class="h4" href="nodes/n-slow.html" title="slow: fail">✗<' in racks[1][1]
    assert 'class="hx" href="nodes/n-failed.html"' in racks[2][1]


def test_without_labels_there_is_no_map(tmp_path: Path) -> None:
    made.fleet(folder_of(tmp_path), ["sound1"])
    assert "Racks" not in write_page(judge_fleet(tmp_path), tmp_path).read_text("utf-8")


def test_a_node_has_its_checks_its_roofs_and_its_pairs(page: Path) -> None:
    failed = (page.parent / "nodes" / "n-failed.html").read_text("utf-8")
    assert "health/ecc" in failed
    assert "why" in failed
    assert "pairs: sound3, failed" in failed
    assert "No rate of it is compared with others" in failed
    slow = (page.parent / "nodes" / "n-slow.html").read_text("utf-8")
    assert "gpu5" in slow
    assert "▼ -25.0 %" in slow
    assert "40.0 GB/s" in (page.parent / "nodes" / "n-sound1.html").read_text("utf-8")


def test_names_of_nodes_are_no_markup(page: Path) -> None:
    for file in (page, *(page.parent / "nodes").iterdir()):
        assert "<b>x" not in file.read_text("utf-8")
    assert "../../nodes/%3Cb%3Ex%26y/log.txt" in (page.parent / "nodes" / "n-b-x-y.html").read_text(
        "utf-8"
    )


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    fleet = judge_fleet(folder_of(tmp_path))
    (tmp_path / "report").write_text("", "utf-8")
    with pytest.raises(GpuliftError, match="cannot be written"):
        write_page(fleet, tmp_path)


@pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [browser.PHONE, browser.WIDE], ids=["phone", "wide"])
def test_the_pages_are_accessible_fit_and_fetch_nothing(
    page: Path, size: dict[str, int], scheme: str
) -> None:
    axe = axe_core()
    nodes = page.parent / "nodes"
    with browser.browser() as opened:
        for file in (page, nodes / "n-slow.html", nodes / "n-failed.html"):
            with browser.page(opened, file, **browser.options(size, scheme)) as (shown, seen):
                width = shown.evaluate("document.documentElement.scrollWidth")
                assert width <= size["width"], file.name
                found = axe.run(shown, options={"resultTypes": ["violations"]})
                assert found.violations_count == 0, f"{file.name}: {found.generate_report()}"
                assert seen.all() == []


@pytest.mark.skipif(bool(browser.missing()), reason=browser.missing())
def test_nodes_are_filtered_by_rack(page: Path) -> None:
    with browser.browser() as opened, browser.page(opened, page) as (shown, _):
        shown.locator("#words").fill("rack1")
        rows = shown.locator("table.index tbody tr").filter(visible=True)
        assert rows.count() == 2
