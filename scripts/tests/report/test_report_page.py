"""The page itself: what it may load, what it links, what it says of runs that lack something."""

from __future__ import annotations

import base64
import copy
import hashlib
import math
import os
import re
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from gpulift.advise.records import records_of, write
from gpulift.analysis.summary import Summary, summarise, with_roofs
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import percent
from gpulift.records.read import read_run
from gpulift.report import escaping, figures, limits, page, planned, render
from gpulift.report import machine_views as of_machines
from gpulift.report.drawing import Drawing
from gpulift.report.machine_views import SYNTHETIC, technique_ids
from tests import runs_made, sample
from tests.advise.made import replay, silent
from tests.conftest import CHECKOUT, DATA
from tests.figures import analysed, machine_views, undrawn, written
from tests.report.test_report import Page, pages, summary

pytestmark = pytest.mark.world


def html_of(records: list[sample.Json], out: Path) -> str:
    return undrawn(analysed([summary(records)]), out)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a full run on a GPU, and its files."""
    out = tmp_path_factory.mktemp("full")
    page.write(analysed([summary(runs_made.full_gpu())]), out)
    return out


def test_nothing_is_loaded_and_the_one_script_is_named_by_its_hash(full: Path) -> None:
    for file in full.rglob("*.html"):
        html = file.read_text("utf-8")
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
        (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy.startswith("default-src 'none'; ")
        assert f"script-src 'sha256-{digest}'" in policy
        assert html.count("<style") == 1
        assert not re.search(r"<link|<img|<iframe|\bon\w+=", html.replace(script, ""))


def test_headings_skip_no_level_and_tables_have_captions_and_heads(full: Path) -> None:
    html = written(full)
    for page_text in html.split("</html>")[:-1]:
        levels = [int(level) for level in re.findall(r"<h([1-6])\b", page_text)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
    tables = re.findall(r"<table.*?</table>", html, flags=re.DOTALL)
    assert len(tables) > 5
    assert all("<caption" in one and 'scope="col"' in one for one in tables)
    assert all('scope="row"' in one for one in tables if "<tbody>\n<tr>" in one)


def test_every_figure_is_an_svg_file(full: Path) -> None:
    names = {file.stem for file in (full / "figures").glob("*.svg")}
    assert {"roofs-0", "roofline-0", "techniques-0", "t-transfer-pinned-copy-0"} <= names
    for file in (full / "figures").glob("*.svg"):
        assert "<svg" in file.read_text("utf-8")


def test_the_label_of_a_figure_states_what_was_found(full: Path) -> None:
    html = written(full)
    labels = re.findall(r'role="img" aria-label="([^"]*)"', html)
    (bars,) = [one for one in labels if one.startswith("The measured ceilings")]
    assert re.search(r"are \d+\.\d % \(gemm/.*\) to \d+\.\d % \(.*\) of the datasheet", bars)
    (sweep,) = [one for one in labels if one.startswith("transfer/pinned_copy on NVIDIA H200, ")]
    assert "pinned: faster in 10 of 10 cases: " in sweep


def test_figures_lead_to_the_records_that_they_come_from(full: Path) -> None:
    html = written(full)
    records = summary(runs_made.full_gpu()).run.records
    for record in records:
        assert html.count(f'id="r-{record.id}"') == 1
        assert f'./gpulift show <span class="id">{record.citation}</span>' in html
    matmul = [r for r in records if r.technique == "precision/matmul" and r.case_id == "n:8192"]
    for record in matmul:
        assert html.count(f'href="#r-{record.id}"') >= 3


def test_raw_windows_are_drawn_for_every_case(full: Path) -> None:
    html = written(full)
    worths = summary(runs_made.full_gpu()).worths
    cases = {(row.technique, row.case.case_id) for row in worths}
    assert html.count('<svg class="strip"') == len(cases)


def test_claims_have_computed_verdicts_and_the_open_ones_are_folded() -> None:
    case = {"direction": "h2d", "bytes": 1 << 20}
    arms = [sample.arm("pageable", 4e-3), sample.arm("pinned", 1e-3)]
    records = sample.launches(3, "transfer/pinned_copy", case, arms)
    confirmed = analysed([summary(records)], CHECKOUT / "results")
    html = undrawn(confirmed)
    text = Page(html).text
    part = Page(html[html.index('<h2 id="claims">') :].partition("</main>")[0]).text
    assert "Pinned memory speeds up copies to the GPU." in part
    assert "✓ confirmed" in part
    assert "Alluxio, undated: E-book on the performance of training with PyTorch: “" in part
    (folded,) = re.findall(r"<details><summary>\d+ claims that are not in.*?</details>", html, re.S)
    assert "In part: convolutions are not compared." in folded
    assert "… not yet measured" in folded
    assert "no measured records of" in folded
    about = text[text.index("Published claims about it:") :]
    assert about[:200].count("✓ confirmed") == 1


def test_synthetic_records_are_marked(tmp_path: Path) -> None:
    records = runs_made.without_gpu()
    for one in records:
        one["context"] = {**one["context"], "options": {"synthetic": True, "launches": 3}}
    text = Page(html_of(records, tmp_path)).text
    assert text.index(SYNTHETIC) < text.index("How close is it")
    assert f"**{SYNTHETIC}**" in (tmp_path / "report.md").read_text("utf-8")


def test_joules_are_there_where_any_arm_has_them_and_else_said_to_be_missing(
    tmp_path: Path,
) -> None:
    arms = [sample.arm("x", 1e-3), sample.arm("y", 1e-3)]
    records = sample.launches(3, "a/b", {"n": 1}, arms)
    assert "Joules of a step: no arm" in Page(html_of(records, tmp_path / "without")).text
    for one in records:
        for arm in one["arms"]:
            windows = arm["windows"]
            windows["energy_j"] = [5.0 for _ in windows["host_s"]]
    text = Page(html_of(records, tmp_path / "with")).text
    assert "Joules of a step: no arm" not in text
    assert "0.500 J / 0.500 J" in text or "500 mJ / 500 mJ" in text


@pytest.mark.parametrize("roof", ["gemm/bf16", ""])
def test_a_roof_is_missed_only_where_an_arm_names_one(tmp_path: Path, roof: str) -> None:
    cost = {"flops": 1e9, "roof": roof} if roof else {"items": 1.0}
    arms = [sample.arm(name, 1e-3, cost=cost) for name in ("x", "y")]
    text = Page(html_of(sample.launches(3, "a/b", {"n": 1}, arms), tmp_path)).text
    assert ("Share of the measured roof: no arm has" in text) == bool(roof)


@pytest.mark.parametrize(
    ("alt", "caption"),
    [
        ("Head against base: 0.99 to 1.01 times as long.", "Head against base"),
        ("a/b on H200 (one card). Changes most: n 1.", "a/b on H200 (one card)"),
        (
            "The ceilings are 40.5 % to 97.1 % of the datasheet.",
            "The ceilings are 40.5 % to 97.1 % of the datasheet",
        ),
    ],
)
def test_a_caption_is_the_first_sentence_of_what_a_figure_says(alt: str, caption: str) -> None:
    assert render._caption(alt) == caption


def test_only_skipped_records(tmp_path: Path) -> None:
    skipped = [sample.unmeasured("a/b", {"n": 1}, "skipped", "no such card", remedy="buy one")]
    shown, answer = pages([summary(skipped)], tmp_path)
    for words in ("No technique was measured.", "Undecided: no speed was judged"):
        assert words in shown.text
        assert words in answer
    for words in ("no such card", "buy one"):
        assert words in shown.text
    assert not list((tmp_path / "figures").glob("t*"))


@pytest.mark.parametrize("minor", ["1.0", "1.1", "1.2", "1.3", "1.4", "1.7"])
def test_records_of_every_minor_of_the_schema(minor: str) -> None:
    text = Page(undrawn(analysed([summarise(read_run(DATA / minor))]))).text
    assert f"schema {minor}" in text
    assert "transfer/pinned_copy" in text


def test_a_font_that_is_not_there_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(matplotlib.rcParams, "font.family", ["No Such Font"])
    page.write(analysed([summary(runs_made.without_gpu())]), tmp_path)
    assert (tmp_path / "figures" / "techniques-0.svg").is_file()


@pytest.mark.parametrize("file", ["figures/techniques-0.svg", "index.html"])
def test_what_cannot_be_written_is_a_clear_error(tmp_path: Path, file: str) -> None:
    (tmp_path / file).mkdir(parents=True)
    with pytest.raises(GpuliftError, match="cannot be written"):
        page.write(analysed([summary(runs_made.without_gpu())]), tmp_path)


def empty(name: str) -> Drawing:
    return Drawing(name, "alt", lambda: Figure(figsize=(1, 1)))


def test_each_figure_is_for_the_page_and_in_files(tmp_path: Path) -> None:
    for png in (True, False):
        found = figures.drawn([empty("one"), empty("two")], tmp_path, png)
        assert all(figure.svg.startswith("<svg ") for figure in found.values())
        names = {"one.svg", "two.svg", figures.MADE} | ({"one.png", "two.png"} if png else set())
        assert {file.name for file in tmp_path.iterdir()} == names
        assert not png or (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_figures_come_from_this_process_where_another_is_killed(tmp_path: Path) -> None:
    here = os.getpid()

    def draw() -> Figure:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return Figure(figsize=(1, 1))

    found = figures.drawn([empty("one"), Drawing("two", "alt", draw)], tmp_path)
    assert list(found) == ["one", "two"]
    assert (tmp_path / "two.svg").stat().st_size > 0


def test_what_keeps_a_figure_from_being_drawn_is_told(tmp_path: Path) -> None:
    def draw() -> Figure:
        raise ValueError("no such axis")

    with pytest.raises(ValueError, match="no such axis"):
        figures.drawn([empty("one"), Drawing("two", "alt", draw)], tmp_path)


def test_a_figure_that_the_page_does_not_show_is_written_as_files_alone(tmp_path: Path) -> None:
    found = figures.drawn([replace(empty("hidden"), inline=False)], tmp_path)
    assert found["hidden"].svg == ""
    assert {"hidden.svg"} < {file.name for file in tmp_path.iterdir()}


def test_figures_of_an_earlier_report_go_and_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_text("a slide", encoding="utf-8")
    for names in (["old", "kept"], ["kept", "new"]):
        figures.drawn([*map(empty, names)], tmp_path)
    left = {file.name for file in tmp_path.glob("*.*g")}
    assert left == {"mine.png", "kept.svg", "new.svg"}


@pytest.mark.parametrize(
    "listed", [b"../mine.png", b"mine.txt", b"/mine.png", b"\xff\nmine.png", b""]
)
def test_a_list_of_figures_leads_to_no_other_file(listed: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    mine = [tmp_path / "mine.png", folder / "mine.txt", folder / "mine.png"]
    for file in mine:
        file.write_text("mine", encoding="utf-8")
    (folder / figures.MADE).write_bytes(listed)
    figures.clear(folder)
    assert all(file.exists() for file in mine)


def test_a_large_report_draws_less_and_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGE", 10)
    machines = [summary(runs_made.full_gpu()), summary(runs_made.without_gpu())]
    shown, _ = pages(machines, tmp_path)
    assert "Figures of 1 machines" in shown.text
    assert not (tmp_path / "figures" / "techniques-1.svg").exists()
    assert (tmp_path / "figures" / "techniques-0.svg").exists()


def test_usual_reports_draw_everything() -> None:
    one = summary(runs_made.full_gpu())
    anchors = escaping.anchors(technique_ids([one]), "t")
    (machine,) = machine_views([one])
    assert limits.limits(171) == limits.USUAL
    assert planned.left_out([machine], anchors, 3, 3, limits.USUAL) == ""


def test_a_figure_of_too_many_techniques_has_those_of_the_largest_effects() -> None:
    one = summary(runs_made.full_gpu())
    anchors = escaping.anchors(technique_ids([one]), "t")
    (machine,) = machine_views([one])
    effects = [
        max(abs(math.log(row.speedup.value)) for row in (line.best, line.worst) if row)
        for line in machine.lines
    ]
    largest = machine.lines[effects.index(max(effects))].technique
    most = replace(limits.USUAL, forest=2)
    (forest,) = (one for one in planned.of_machines([machine], most) if one and not one.inline)
    count = len(machine.lines)
    which = f"the 2 techniques of {count} with the largest effects"
    assert count > 2
    assert forest.alt.startswith(f"Speedups of the best and worst case on NVIDIA H200 of {which}: ")
    assert forest.alt.count(" up to ") == 2
    assert f" {largest} up to " in forest.alt
    assert (
        planned.left_out([machine], anchors, 0, 0, most) == f"The figure techniques-0 has {which}."
    )


def test_a_run_that_is_named_twice_is_shown_once() -> None:
    first, second = summary(runs_made.full_gpu()), summary(runs_made.without_gpu())
    html = undrawn(analysed([first, second, first]))
    assert re.findall(r"<h1>(.*?)</h1>", html)[0] == "NVIDIA H200 beside AMD EPYC 7B13"
    assert html.count(f'id="r-{first.run.records[0].id}"') == 1


def test_two_runs_of_one_machine_are_told_apart() -> None:
    records = runs_made.without_gpu()
    again = [{**one, "started_at": "2026-11-22T04:00:00Z"} for one in records]
    runs = [summary(records), summary(again)]
    runs[1] = replace(runs[1], run=replace(runs[1].run, folder=Path("2026-11-22-abc1234")))
    text = Page(undrawn(analysed(runs))).text
    for folder in ("2026-11-21-abc1234", "2026-11-22-abc1234"):
        assert f"AMD EPYC 7B13 {folder}" in text


def test_runs_of_one_setting_share_a_list_of_conditions() -> None:
    records = runs_made.full_gpu()
    context = {**records[0]["context"], "options": {"seed": 7}}
    context["build"] = {**context["build"], "commit": "fedcba9", "dirty": True}
    context["gpu"] = {**context["gpu"], "card": "0badcafe"}
    context["host"] = {**context["host"], "id": "1badcafe", "id_of": "machine_id"}
    other = {**records[0]["context"], "driver": "600.1"}
    runs = [
        run_of(records, "2026-11-21-abc1234", "2026-11-21T04:00:00Z"),
        run_of([{**one, "context": context} for one in records], "b", "2026-11-22T04:00:00Z"),
        run_of([{**one, "context": other} for one in records], "c", "2026-11-23T04:00:00Z"),
    ]
    html = undrawn(analysed(runs))
    cards = re.findall(r'<section class="card" aria-label="Conditions of .*?</section>', html, re.S)
    texts = sorted((Page(one).text for one in cards), key=len)
    assert len(texts) == 2
    assert "600.1" in texts[0]
    assert "600.1" not in texts[1]
    for own in (
        "card 0badcafe",
        "host 1badcafe",
        "commit fedcba9",
        "with uncommitted changes",
        "seed 7",
    ):
        assert texts[1].count(own) == 1, own


def run_of(records: list[sample.Json], folder: str, started_at: str) -> Summary:
    one = summary([{**record, "started_at": started_at} for record in records])
    return replace(one, run=replace(one.run, folder=Path(folder)))


def test_a_line_has_the_ends_of_all_runs_but_a_case_of_its_first_run_alone() -> None:
    def gain(n: int, of: float, seed: int = 1) -> list[sample.Json]:
        arms = [sample.arm("x", of * 1e-3), sample.arm("y", 1e-3)]
        return sample.launches(2, "a/b", {"n": n}, arms, seed=seed)

    runs = [
        run_of([*gain(1, 2.0), *gain(2, 3.0)], "first", "2026-11-21T04:00:00Z"),
        run_of([*gain(3, 0.5), *gain(1, 9.0, seed=2)], "second", "2026-11-22T04:00:00Z"),
    ]
    machine, _ = machine_views(runs)
    (line,) = machine.lines
    assert line.worst is not None
    assert (line.best.case.case_id, line.leading.run) == ("n:2", "first"), (
        "not n:1 of the second run"
    )
    assert line.worst.case.case_id == "n:3"


def test_the_run_that_answers_most_speaks_for_its_machine_and_others_add_lines(
    tmp_path: Path,
) -> None:
    full = runs_made.full_gpu()
    quick = [one for one in full if one["technique"] == "launch/cuda_graph"]
    other = sample.launches(3, "a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 5e-4)])
    runs = [
        run_of(quick, "quick", "2026-11-23T04:00:00Z"),
        summary(runs_made.without_gpu()),
        run_of(other, "other", "2026-11-22T04:00:00Z"),
        run_of(full, "old", "2026-11-20T04:00:00Z"),
        run_of(full, "new", "2026-11-21T04:00:00Z"),
    ]
    html = undrawn(analysed(runs, tmp_path))
    answer = html[html.index('id="answer"') : html.index("</html>")]
    heads = re.findall(r'<h3>NVIDIA H200 <span class="muted">(\w+)</span>', answer)
    assert heads == ["new"]
    others = re.findall(r"<li><code>(\w+)</code>, \d+ records(.*?)</li>", answer)
    assert [name for name, _ in others] == ["old", "quick", "other"]
    said = [text for _, text in others]
    assert ": adds a/b." in said[2], "and no verdict where no speed could be told"
    assert "adds" not in said[1]
    assert "; also measures launch/cuda_graph." in said[1]
    table = answer[answer.index('id="worth-0"') : answer.index("</table>")]
    lines = re.findall(r'href="[^"]*#t-[^"]*">([^<]+)</a>', table)
    assert lines == ["precision/matmul", "transfer/pinned_copy", "a/b", "launch/cuda_graph"]
    names = re.findall(r'<span class="muted keep">(\w+)</span>', table)
    assert names == ["new", "new", "other", "new"], "the largest gain first, each with its run"
    assert answer.count('<li><b aria-hidden="true">') == 2  # a line per machine
    graph = html[html.index('<h3 id="t-launch-cuda-graph">') :]
    graph = graph[: graph.index("</main>")]
    assert graph.count("<h4>Measured on NVIDIA H200") == 1
    assert graph.count('<details class="run">') == 2
    Page(html)


def test_a_failure_of_another_run_stands_above_the_techniques(tmp_path: Path) -> None:
    broken = runs_made.with_troubles()
    for one in broken:
        one["context"] = {**one["context"], "build": runs_made.full_gpu()[0]["context"]["build"]}
    runs = [
        run_of(runs_made.full_gpu(), "full", "2026-11-21T04:00:00Z"),
        run_of(broken, "broken", "2026-11-22T04:00:00Z"),
    ]
    html = undrawn(analysed(runs), tmp_path)
    answer = html[html.index('id="answer"') : html.index('id="worth-0"')]
    assert "2 failed</span> in run broken" in answer
    assert "✗ 2 failed in run `broken`" in (tmp_path / "report.md").read_text("utf-8")


def test_another_run_repeats_no_check_that_the_first_answers_for() -> None:
    other = sample.launches(2, "a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 5e-4)])
    runs = [
        run_of(runs_made.full_gpu(), "full", "2026-11-21T04:00:00Z"),
        run_of(other, "other", "2026-11-22T04:00:00Z"),
    ]
    html = undrawn(analysed(runs))
    first, second = (
        html[html.index(f'id="missing-{number}"') :].partition("</section>")[0] for number in (0, 1)
    )
    assert "not measured: filtered out" in first
    assert "2 checks were skipped: 2 × no reference value." in second
    assert "not measured: filtered out" not in second


def test_a_machine_is_judged_by_all_of_its_runs() -> None:
    """That of most techniques measured no roof."""
    full = runs_made.full_gpu()
    roofs = [one for one in full if one["technique"].startswith("ceiling/")]
    rest = [one for one in full if one not in roofs]
    runs = [run_of(rest, "most", "2026-11-22T04:00:00Z")]
    told, ids = [], technique_ids([summary(full)])
    for more in ([], [run_of(roofs, "roofs", "2026-11-21T04:00:00Z")]):
        made = analysed([*runs, *more])
        first, *_ = of_machines.machine_views(made.runs, made.machines, dict.fromkeys(ids, ""))
        assert first.summary.run.folder == Path("most")
        told.append(
            {one.id for one in first.results if one.id.startswith("roof/") and one.estimate}
        )
    assert "roof/device_memory/burst" in told[1] - told[0]


def test_shares_of_roofs_of_another_run_have_a_star_and_their_source() -> None:
    full = runs_made.full_gpu()
    ceilings = [one for one in full if one["technique"].startswith("ceiling/")]
    rest = [one for one in full if not one["technique"].startswith("ceiling/")]
    runs = [
        run_of(ceilings, "ceilings", "2026-11-21T04:00:00Z"),
        run_of(rest, "techniques", "2026-11-22T04:00:00Z"),
    ]
    alone = undrawn(analysed(runs[1:]))
    assert "Of a roof that another run measured" not in alone
    both = undrawn(analysed(runs))
    rows = summary(full).worths
    told = {percent(row.roof_fraction) for row in rows if row.roof_fraction is not None}
    starred = set(re.findall(r'<td class="c7"[^>]*>.*?([\d.]+ %)\*<', both))
    assert starred == told
    assert "* Of a roof that another run measured: ceilings." in both


def test_a_roof_of_another_card_says_so() -> None:
    full = runs_made.full_gpu()
    other_card = copy.deepcopy([one for one in full if one["technique"] == "precision/matmul"])
    for one in other_card:
        one["context"]["gpu"]["card"] = "0123abcd"
    roofs = run_of(full, "roofs", "2026-11-21T04:00:00Z")
    (first, *_) = with_roofs(summary(other_card), [roofs]).worths
    assert first.roof_from == "roofs, on another card"


@pytest.mark.parametrize(
    ("differs", "source"),
    [
        ({}, "roofs"),
        ({"cpu_id": "26-2-1"}, ""),
        ({"cpu": "Another"}, ""),
        ({"cpu_id": ""}, "roofs, on a processor that records do not tell"),
        ({"cores": 8}, "roofs, on a host of other cores or memory"),
        ({"memory_bytes": 5_000_000_000}, "roofs, on a host of other cores or memory"),
    ],
)
def test_a_roof_of_a_host_is_of_its_processor_and_says_what_else_differs(
    differs: sample.Json, source: str
) -> None:
    def run(technique: str, host: sample.Json) -> Summary:
        cost = {"bytes": 1e9, "roof": "host_memory"}
        arms = [sample.arm(name, 0.1, cost=cost, clock="host") for name in ("old", "new")]
        context = copy.deepcopy(sample.GPU_CONTEXT)
        context["host"] |= {"cpu_id": "25-1-1", "memory_bytes": 6_000_000_000, **host}
        made = sample.launches(2, technique, {"n": 1}, arms, context=context)
        return run_of(made, "roofs", "2026-11-21T04:00:00Z")

    (row,) = with_roofs(run("a/b", {}), [run("ceiling/host_memory", differs)]).worths
    assert row.roof_from == source
    assert bool(row.roof_fraction) == bool(source)


def test_processors_of_one_name_are_machines_of_their_own() -> None:
    runs = []
    for cpu_id in ("25-1-1", "26-2-1"):
        context = copy.deepcopy(sample.CPU_CONTEXT)
        context["host"]["cpu_id"] = cpu_id
        arms = [sample.arm("x", 2e-3), sample.arm("y", 1e-3)]
        made = sample.launches(2, "a/b", {"n": 1}, arms, context=context)
        runs.append(run_of(made, cpu_id, "2026-11-21T04:00:00Z"))
    assert [view.main for view in machine_views(runs)] == [True, True]


def test_one_run_has_nothing_folded_away(full: Path) -> None:
    html = written(full)
    assert 'class="run"' not in html
    assert ", run " not in html[: html.index('id="roofs"')]


def test_imported_records_have_their_times_and_their_errors(tmp_path: Path) -> None:
    replays = [replay({"fused": gain}) for gain in (1.1, 1.2, 1.3)]
    made = records_of([*replays, silent()], [], ("python", "train.py"), "2026-11-21T04:00:00Z")
    write(made, tmp_path / "in")
    html = undrawn(analysed([summarise(read_run(tmp_path / "in"))]), tmp_path / "out")
    answer = (tmp_path / "out" / "report.md").read_text("utf-8")
    for text in (Page(html).text, answer):
        assert "another tool made these, and nothing judges them" in text
        assert re.search(r"\d+(\.\d+)? ms \[\d+(\.\d+)? ms, \d+(\.\d+)? ms\]", text)
        assert "commit not known" in text
        assert "Every arm passed its check for equal results" not in text
    assert "the process ended before anything was measured" in html
    assert "every case and arm of the run has a result" not in html.lower()


def test_two_builds_alone_say_so_and_their_errors_are_not_lost(tmp_path: Path) -> None:
    records = runs_made.duet(count=2)
    records.append({**records[0], "launch": 2, "outcome": "error", "reason": "it fell over"})
    html = undrawn(analysed([summary(records)]), tmp_path)
    for text in (html, (tmp_path / "report.md").read_text("utf-8")):
        assert "these records hold two builds against each other" in text
    assert "it fell over" in html
