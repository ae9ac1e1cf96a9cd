"""Reports, tables and figures: drawn once from sample data, tested through what they show."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpulift.analysis.gains import headline
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground import terminal, text
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate
from gpulift.records.read import Run
from gpulift.report import page as report
from gpulift.report import plots, tables
from tests import runs_made, sample
from tests.conftest import CHECKOUT
from tests.figures import analysed, written

from gpulift.records.parse import read_record  # isort: skip

pytestmark = pytest.mark.world

VOID = {"meta", "br", "img", "link", "hr", "input", "wbr"}
CELLS = {"td", "th"}
ENDED_BY = {"td": CELLS, "th": CELLS, "tr": CELLS | {"tr"}}  # HTML lets one leave their ends out


def summary(records: list[sample.Json]) -> Summary:
    run = Run(Path("2026-11-21-abc1234"), tuple(read_record(one) for one in records))
    return summarise(run, find_reference(CHECKOUT / "results", run.records[0].context.slug))


class Page(HTMLParser):
    """Collects the text, and complains about tags that are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._end(ENDED_BY.get(tag, set()))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._end(ENDED_BY["tr"])
        assert self.open.pop() == tag

    def _end(self, tags: set[str]) -> None:
        while self.open and self.open[-1] in tags:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not {"style", "script", "nav"} & set(self.open):
            self.text += data


def pages(summaries: list[Summary], out: Path) -> tuple[Page, str]:
    """The HTML pages, and report.md."""
    html = written(report.write(analysed(summaries), out).parent)
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:|//)|@import|url\(h", html)
    assert not re.search(r"</t[dhr]>", html), "the page would be 4 % larger"
    return Page(html), (out / "report.md").read_text(encoding="utf-8")


def test_full_gpu_run(tmp_path: Path) -> None:
    full = summary(runs_made.full_gpu())
    page, answer = pages([full], tmp_path)
    assert "85.7 %" in page.text, "of the datasheet"
    figures = re.findall(r"\]\((figures/\S+\.svg)\)", answer)
    assert figures
    assert all((tmp_path / figure).is_file() for figure in figures)
    assert (tmp_path / "figures" / "roofs-0.svg").is_file()


def test_nothing_to_report_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="nothing to report"):
        report.write(analysed([]), tmp_path)


def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuliftError, match="cannot be written"):
        report.write(analysed([summary(runs_made.without_gpu())]), tmp_path / "file" / "out")


def test_a_report_takes_the_place_of_a_report_alone(tmp_path: Path) -> None:
    analysis = analysed([summary(runs_made.without_gpu())])
    theirs = tmp_path / "report.md"
    theirs.write_text("theirs", encoding="utf-8")
    with pytest.raises(GpuliftError, match=r"report.md: is there already and no report of ours"):
        report.write(analysis, tmp_path)
    assert theirs.read_text(encoding="utf-8") == "theirs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.md"]
    theirs.unlink()
    for _ in range(2):
        assert report.write(analysis, tmp_path).is_file()


def test_summary_sorts_best_first_and_keeps_the_best_roof() -> None:
    full = summary(runs_made.full_gpu())
    speedups = [row.speedup.value for row in full.worths]
    assert speedups == sorted(speedups, reverse=True)
    memory = next(roof for roof in full.roofs if roof.name == "device_memory")
    assert memory.arm == "read"
    assert memory.fraction == pytest.approx(4.3 / 4.8, rel=0.01)
    sustained = [roof.rate.value for roof in full.roofs if roof.name == "gemm/bf16"]
    assert sustained[1] / sustained[0] == pytest.approx(0.87, rel=0.01)
    best = full.worths[0]
    assert best.roof_fraction == pytest.approx(
        best.case.first.arms[3].cost.flops  # type: ignore[union-attr]
        / best.time_s.value
        / 1490e12,
        rel=0.01,
    )
    assert full.unit_costs[0].time_s.value == pytest.approx(2e-6, rel=0.01)


def test_summary_says_where_the_time_went_and_what_was_noted() -> None:
    records = runs_made.full_gpu()
    # A plan is for later launches, and nobody reads its bytes.
    records[0] |= {"notes": {"algorithm": "copy engine 1", "plan/a": "00ff", "plan": "00ff"}}
    made = summary(records)
    assert made.total_s == pytest.approx(len(records))
    assert made.measuring_share == pytest.approx(0.9)
    assert [(key, value) for _, key, value in made.notes] == [("algorithm", "copy engine 1")]


def test_a_note_that_is_the_same_in_all_cases_is_told_once() -> None:
    records = runs_made.full_gpu()
    for one in records:
        one["notes"] = {"torch": "2.11.0", "algorithm": one["case_id"]}
    made = summary(records)
    together = [len(cases) for cases, key, _ in made.notes if key == "torch"]
    assert together == [len(made.cases)]
    assert sum(key == "algorithm" for _, key, _ in made.notes) == len(made.cases)


def test_discarded_blocks_and_throttling_are_marks() -> None:
    records = runs_made.full_gpu()
    records[0] |= {"discarded_blocks": 2}
    made = summary(records)
    assert made.marks == ("2 blocks discarded: the hardware slowed down",)
    assert made.roofs[0].throttle == ("sw_power_cap",)


def test_a_card_or_a_driver_that_changes_in_the_midst_of_a_run_is_marked() -> None:
    made = sample.launches(3, "a/b", {"n": 1}, [sample.arm("x", 1e-3)])
    changed = copy.deepcopy(made)
    changed[2]["context"]["gpu"]["card"] = "zzzz"
    changed[2]["context"]["driver"] = "999"
    card, driver = (sample.GPU_CONTEXT["gpu"]["card"], sample.GPU_CONTEXT["driver"])
    marks = summary(changed).marks
    assert f"records of several cards: {card}, zzzz" in marks
    assert f"records of several drivers: {driver}, 999" in marks
    assert not [mark for mark in summary(made).marks if "several" in mark]


@pytest.mark.parametrize(("other", "stolen"), [(1.0, 0.0), (0.4, 0.6)])
def test_cases_during_which_others_worked_are_a_mark(other: float, stolen: float) -> None:
    records = runs_made.full_gpu()
    assert summary(records).marks == ()
    for one in records:
        if one["technique"] == "launch/cuda_graph":
            one["host_load"] = {"own_cores": 9.0, "other_cores": other, "stolen_cores": stolen}
    (mark,) = summary(records).marks
    cases = len({one["case_id"] for one in records if one["technique"] == "launch/cuda_graph"})
    assert mark.startswith(f"{cases} case")
    assert mark.endswith("while other processes kept a core or more busy")


def test_marks_tell_restarts_from_discarded_blocks() -> None:
    records = runs_made.full_gpu()
    records[0] |= {"restarts": 1}
    assert summary(records).marks == ("1 restart of a case: the pace changed",)
    records[1] |= {"restarts": 2, "discarded_blocks": 1}
    assert summary(records).marks == (
        "1 block discarded: the hardware slowed down",
        "3 restarts of a case: the pace changed",
    )
    records[1] |= {"schema": "1.0"}
    assert "hardware slowed down or the pace changed" in summary(records).marks[0]


def test_marks_count_burst_cases_with_few_blocks() -> None:
    arms = [sample.arm("x", 1e-3), sample.arm("y", 1e-3)]
    few = [
        *sample.launches(3, "a/b", {"n": 1}, arms, blocks=7),
        *sample.launches(2, "a/b", {"n": 2}, arms, blocks=8),
        sample.record("a/b", {"n": 2}, arms, launch=2, blocks=2),
        *sample.launches(3, "a/b", {"n": 3}, arms, blocks=8),
    ]
    long = sample.launches(3, "a/b", {"regime": "sustained"}, arms, blocks=2)
    assert summary([*few, *long]).marks == ("2 cases with fewer blocks than planned in a launch",)
    assert summary(long).marks == ()


@pytest.mark.parametrize(("planned", "marked"), [(4, False), (5, True)])
@pytest.mark.parametrize("regime", ["burst", "sustained"])
def test_few_blocks_are_as_planned_where_the_plan_says_so(
    planned: int, marked: bool, regime: str
) -> None:
    stop = {"reason": "planned", "blocks": 4, "planned_blocks": planned}
    slow = [sample.arm("x", 1e-1), sample.arm("y", 1e-1)]
    made = sample.launches(3, "a/b", {"regime": regime}, slow, blocks=4, stop=stop)
    assert bool(summary(made).marks) is marked


def test_a_device_time_that_was_not_held_is_marked_as_the_hosts(tmp_path: Path) -> None:
    cost = {"items": 1000.0}
    arms = [
        sample.arm("host_cost", 2e-3, cost=cost, clock="host", held=False),
        sample.arm("device_cost", 2e-3, cost=cost, held=False),
    ]
    made = summary(sample.launches(2, "ceiling/launch", {"launches": 1000}, arms))
    remark = "bound by the host's launch rate: not held"
    assert [(row.arm, row.held, row.remark) for row in made.unit_costs] == [
        ("host_cost", False, ""),
        ("device_cost", False, remark),
    ]
    page, _ = pages([made], tmp_path)
    screen = terminal.console()
    with screen.capture() as shown:
        screen.print(tables.unit_costs(made))
    for text_shown in (page.text, shown.get()):
        assert text_shown.count(remark) == 1
    assert all(not row.remark for row in summary(runs_made.full_gpu()).unit_costs)


def test_headline_has_best_and_worst_of_each_technique() -> None:
    rows = headline(summary(runs_made.full_gpu()))
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    assert all(best.technique == worst.technique for best, worst in pairs)
    assert all(best.speedup.value > worst.speedup.value for best, worst in pairs)
    assert [(best.arm, worst.arm) for best, worst in pairs] == [
        ("fp8", "fp8"),
        ("pinned", "pinned_afresh"),
        ("graph", "graph"),
    ]


def test_launches_of_one_case_report_their_worst_outcome_once() -> None:
    ok = sample.launches(2, "a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 1e-3)])
    bad = sample.unmeasured("a/b", {"n": 1}, "failed", "arms disagree", launch=2)
    made = summary([*ok, bad])
    assert [problem.reason for problem in made.broken] == ["arms disagree"]
    assert made.worths[0].speedup.launches == 2


def test_forest_draws_every_row_and_its_interval() -> None:
    rows = [plots.worth_row(row) for row in headline(summary(runs_made.full_gpu()))]
    (axes,) = plots.forest(rows, "speedup").axes
    assert len([t for t in axes.texts if "×" in t.get_text()]) == len(rows)
    low, high = axes.get_xlim()
    assert all(low < row.estimate.value < high for row in rows)


def test_sweep_draws_one_line_per_arm_and_panel() -> None:
    full = summary(runs_made.full_gpu())
    copies = [row for row in full.worths if row.technique == "transfer/pinned_copy"]
    assert plots.sweep_axis(copies) == "bytes"
    panels = plots.sweep(copies).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["direction d2h", "direction h2d"]
    assert all(len(axes.containers) == 3 for axes in panels)
    graphs = [row for row in full.worths if row.technique == "launch/cuda_graph"]
    assert plots.sweep_axis(graphs[:2]) is None


@pytest.mark.parametrize(("gain", "least"), [(1.02, 3), (1.3, 3), (40.0, 4)])
def test_a_sweep_has_a_few_ratios_at_its_side_however_narrow_it_is(gain: float, least: int) -> None:
    records = []
    for number in (10, 100, 1000):
        arms = [sample.arm("launches", 1e-3), sample.arm("graph", 1e-3 / gain)]
        records += sample.launches(3, "a/b", {"kernels": number}, arms)
    (axes,) = plots.sweep(summary(records).worths).axes
    low, high = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert least <= len(ticks) <= 8
    assert 1.0 in ticks


def test_bars_need_a_datasheet(tmp_path: Path) -> None:
    report.write(analysed([summary(runs_made.without_gpu())]), tmp_path)
    drawn = {file.stem for file in (tmp_path / "figures").glob("*.svg")}
    assert "techniques-0" in drawn
    assert "roofs-0" not in drawn


@pytest.mark.parametrize(
    ("low", "high"), [(0.1, 30), (0.5, 2.5), (0.98, 1.05), (0.9999, 1.0001), (1, 1e4)]
)
def test_ratio_axes_have_a_few_ticks(low: float, high: float) -> None:
    ticks = plots.ratio_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert all(low <= tick <= high * (1 + 1e-9) for tick in ticks)
    assert any(tick == pytest.approx(1) for tick in ticks)


def test_tables_name_what_they_show() -> None:
    full, bare = summary(runs_made.full_gpu()), summary(runs_made.without_gpu())
    screen = terminal.console()
    with screen.capture() as shown:
        screen.print(tables.roofs(bare, [full]))
        screen.print(tables.worths(bare, [full]))
        screen.print(tables.unit_costs(full))
        screen.print(tables.problems(bare.problems, "Skipped"))
    for words in ("848 TFLOP/s", "1.429× [1.424, 1.435]", "2.00 µs", "mimalloc: libmimalloc.so.2"):
        assert words in shown.get()


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        *((4.8e12, "B/s", "4.80 TB/s"), (55.4e9, "B/s", "55.4 GB/s"), (999.0, "B/s", "999 B/s")),
        (0.5, "B/s", "0.500 B/s"),
        *((4324.2, "images/s", "4324 images/s"), (143510.0, "images/s", "143510 images/s")),
        (3.07e6, "images/s", "3.07 million images/s"),  # a prefix is never glued to a word
    ],
)
def test_rates(value: float, unit: str, shown: str) -> None:
    assert text.rate(value, unit) == shown


def test_memory_on_the_terminal_says_of_which_kind_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arms = [sample.arm("fp32", 1e-3, memory=3 << 20), sample.arm("bf16", 5e-4, memory=1 << 20)]
    screen = terminal.console()
    screen.print(tables.worths(summary(sample.launches(3, "a/b", {"n": 1}, arms))))
    assert "device 1.00 MiB / 3.00 MiB" in capsys.readouterr().out


def test_other_texts() -> None:
    assert text.seconds(0.00123) == "1.23 ms"
    assert text.size(None) == "–"
    assert text.size(1536) == "1.50 KiB"
    assert text.speedup(Estimate(1.9, 1.7, 2.1, 3)) == "1.9× [1.7, 2.1]"
    assert text.speedup(Estimate(1.9, None, None, 1)).endswith("(too few blocks for an interval)")
    assert text.verdict(Estimate(1.0, 0.9, 1.1, 3)) == ("≈", "no difference shown")
