"""The first screen: whole training steps, then building blocks; what is in doubt comes last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpulift import tables
from gpulift.analysis.doubts import NO_DOUBTS, Doubts, doubts_of
from gpulift.analysis.gains import trained_model
from gpulift.analysis.summary import Summary, headline, summarise
from gpulift.citing.errata import read_errata
from gpulift.exchange.github import code, github_text
from gpulift.records.parse import read_record
from gpulift.records.read import read_run
from gpulift.report import escaping, page, planned, views
from gpulift.report.limits import USUAL
from gpulift.report.views import MachineView
from tests import sample
from tests.figures import summary
from tests.sample import Json, arm, launches

ERRATUM = """
[[errata]]
short = "the clock was <wrong>"
runs = ["nvidia-h200/wrong"]
records = "some records"
wrong = "what is wrong"
later = "mended"
"""


def step(
    technique: str, case: Json, gain: float, count: int = 3, memory: int = 1 << 30, **top: Any
) -> list[Json]:
    """A technique in whole training steps with that gain."""
    arms = [arm("plain", gain * 1e-2, memory=1 << 30), arm("better", 1e-2, memory=memory)]
    return launches(count, technique, case, arms, **top)


def screen(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> MachineView:
    anchors = escaping.anchors(views.technique_ids(summaries), "t")
    return views.machine_views([(one, ()) for one in summaries], anchors, doubts)[0]


def steps_of(view: MachineView) -> list[str]:
    return [line.technique for line in view.steps]


def recorded(folder: Path, records: Sequence[Json], state: str = "complete") -> Summary:
    sample.write(folder, records)
    (folder / "run.json").write_text(json.dumps({"state": state}), encoding="utf-8")
    return summarise(read_run(folder))


@pytest.mark.parametrize(
    ("case", "notes", "model"),
    [
        ({"model": "gpt2", "batch": "equal"}, {}, "gpt2"),
        ({"model": "resnet50_128"}, {}, "resnet50"),
        ({"model": "gpt2_large"}, {}, "gpt2_large"),
        ({"link": "host"}, {"model": "gpt2, 8 rows a shard"}, "gpt2"),
        ({"bytes": 4096}, {}, ""),
        ({"model": "resnet50"}, {"step": "training on the GPU"}, "resnet50"),
        ({"model": "resnet50"}, {"step": "emulated: sleeps 5 ms"}, ""),
    ],
)
def test_the_record_says_which_model_a_step_trains(
    case: Json, notes: dict[str, str], model: str
) -> None:
    one = read_record(sample.record("a/b", case, [arm("x", 1.0)], notes=notes))
    assert trained_model(one) == model


def test_an_operation_on_the_tensors_of_a_model_is_no_step_of_it() -> None:
    moving = arm("x", 1.0, cost={"bytes": 4e9})
    assert trained_model(read_record(sample.record("a/b", {"model": "gpt2"}, [moving]))) == ""


def test_steps_come_before_blocks_and_the_largest_ratio_heads_nothing(tmp_path: Path) -> None:
    many = [
        one
        for size in (1, 2, 3)
        for one in launches(3, "transfer/copy", {"size": size}, [arm("x", 2e-3), arm("y", 1e-3)])
    ]
    huge = launches(3, "allocator/pool", {"n": 1}, [arm("x", 12.4), arm("y", 1e-3)])
    made = summary(
        [
            *huge,
            *many,
            *step("launch/graph", {"model": "gpt2"}, 1.2),
            *step("precision/mixed", {"model": "gpt2"}, 4.3, memory=1 << 29),
            *step("layout/last", {"model": "lstm"}, 9.0),
        ]
    )
    view = screen([made])
    assert steps_of(view) == ["precision/mixed", "launch/graph", "layout/last"]
    assert [theme.name for theme in view.themes] == ["transfer", "allocator"]
    html = page.write([made], tmp_path, results=tmp_path).read_text("utf-8")
    places = [
        html.index(f'<a href="#t-{name}">')
        for name in ("precision-mixed", "layout-last", "transfer-copy", "allocator-pool")
    ]
    assert places == sorted(places)
    heads = [html.index(f'<h3 id="t-{name}">') for name in ("precision-mixed", "transfer-copy")]
    assert max(heads) < html.index('<h3 id="t-allocator-pool">')
    assert "better; 0.500× the memory" in html
    assert '<td data-label="baseline"><span>plain</span>' in html
    twin = (tmp_path / "report.md").read_text("utf-8")
    assert twin.index("precision/mixed") < twin.index("allocator/pool")
    figure = planned.of_machines([view], USUAL)
    alt = next(one.alt for one in figure if one and one.name == "techniques-0")
    assert alt.startswith(
        "Gains in whole training steps on NVIDIA H200: precision/mixed better 4.30× on GPT-2; "
    )


def test_a_line_has_the_largest_gain_on_each_model_and_on_any_other() -> None:
    made = summary(
        [
            *step("a/b", {"model": "gpt2", "batch": "equal"}, 2.0),
            *step("a/b", {"model": "gpt2", "batch": "largest"}, 3.0),
            *step("a/b", {"model": "resnet50_128", "batch": "equal"}, 1.5),
            *step("a/b", {"model": "lstm", "batch": "equal"}, 1.1),
            *step("a/b", {"model": "mlp", "batch": "equal"}, 1.3),
        ]
    )
    (line,) = screen([made]).steps
    assert [one.about for one in line.first if one] == ["better, largest", "better, equal"]
    assert line.other is not None
    assert (line.other.model, line.others) == ("mlp", 2)


def test_one_launch_a_run_left_unfinished_and_a_known_error_stand_behind(tmp_path: Path) -> None:
    case: Json = {"model": "gpt2"}
    above = tmp_path / "nvidia-h200"
    runs = [
        recorded(above / "sure", step("z/sure", case, 1.1)),
        recorded(above / "once", step("a/once", case, 9.0, count=1)),
        recorded(above / "left", step("a/left", case, 8.0), state="running"),
        recorded(above / "wrong", step("a/wrong", case, 7.0)),
    ]
    (tmp_path / "errata.toml").write_text(ERRATUM, encoding="utf-8")
    doubts = doubts_of(runs, read_errata(tmp_path / "errata.toml"))
    view = screen(runs, doubts)
    assert steps_of(view) == ["z/sure", "a/once", "a/left", "a/wrong"]
    html = page.write(runs, tmp_path / "out", results=tmp_path).read_text("utf-8")
    table = html[html.index('id="steps-0"') :].partition("</table>")[0]
    mark = '<a class="err" href="#e-1" title="known error: the clock was &lt;wrong&gt;">E1</a>'
    assert table.count(mark) == 1
    assert table.count("unfinished run") == 1
    assert table.count("one launch") == 1
    assert '<dt id="e-1">E1</dt>' in html
    twin = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "better E1 |" in twin
    assert "- E1: the clock was &lt;wrong" in twin


def test_an_error_of_metrics_alone_leaves_the_times_their_place(tmp_path: Path) -> None:
    arms = [arm("x", 7e-3, metrics={"peak_bytes": 1.0}), arm("y", 1e-3)]
    case: Json = {"model": "gpt2"}
    runs = [
        recorded(tmp_path / "wrong", launches(3, "a/wrong", case, arms)),
        recorded(tmp_path / "sure", step("z/sure", case, 1.1)),
    ]
    (tmp_path / "errata.toml").write_text(f'{ERRATUM}metrics = ["peak_bytes"]\n', "utf-8")
    doubts = doubts_of(runs, read_errata(tmp_path / "errata.toml"))
    assert steps_of(screen(runs, doubts)) == ["a/wrong", "z/sure"]
    assert doubts.errors(runs[0].run.records) == [1]


def test_of_a_block_the_ends_are_those_without_doubt() -> None:
    pair = [arm("x", 5e-3), arm("y", 1e-3)]
    sure = [arm("x", 2e-3), arm("y", 1e-3)]
    made = summary([*launches(1, "a/b", {"n": 1}, pair), *launches(2, "a/b", {"n": 2}, sure)])
    (line,) = screen([made]).lines
    assert (line.best.case.case_id, line.worst, line.doubted) == ("n:2", None, False)


def test_the_terminal_and_github_have_the_order_of_the_first_screen() -> None:
    huge = [arm("x", 12.4), arm("y", 1e-3), arm("z", 1e-4)]
    made = summary(
        [
            *launches(3, "allocator/pool", {"n": 1}, huge),
            *step("launch/graph", {"model": "gpt2"}, 1.2),
            *step("launch/graph", {"model": "lstm"}, 9.0, count=1),
            *step("precision/half", {"model": "gpt2"}, 4.3),
        ]
    )
    wanted = [
        ("precision/half", "model gpt2", "better"),
        ("launch/graph", "model gpt2", "better"),
        ("launch/graph", "model lstm", "better"),
        ("allocator/pool", "n 1", "z"),
        ("allocator/pool", "n 1", "y"),
    ]
    table = tables.worths(made)
    ids, cases, arms, *_ = (list(column.cells) for column in table.columns)
    assert list(zip(ids, cases, arms, strict=True)) == wanted
    page = github_text([made])
    places = [
        page.index(f"| {code(id)} | {code(where)} | {code(name)}") for id, where, name in wanted
    ]
    assert places == sorted(places)


def controlled(*arms: Json, controls: Sequence[str], **top: Any) -> Summary:
    """Arms of a block, and which of them are controls."""
    return summary(launches(3, "a/b", {"n": 1}, arms, controls=list(controls), **top))


def test_no_table_begins_with_a_control(tmp_path: Path) -> None:
    arms = [arm("pool", 2e-3), arm("arena", 1e-3), arm("malloc", 1e-5)]
    made = controlled(*arms, controls=["malloc"])
    (line,) = screen([made]).lines
    assert (line.best.arm, line.worst, line.comparisons) == ("arena", None, 1)
    assert [row.arm for row in headline(made)] == ["arena"]
    names = list(tables.worths(made).columns[2].cells)
    assert names == ["arena", "malloc (control)"]
    page.write([made], tmp_path, results=tmp_path)
    html, twin = ((tmp_path / f"report.{kind}").read_text("utf-8") for kind in ("html", "md"))
    assert '<b>malloc</b> <span class="muted">control</span>' in html
    assert html.index("<li>arena: ") < html.index("<li>malloc: ")
    assert "| malloc (control) |" in twin


def test_beside_a_ratio_stands_the_time_that_a_step_saves(tmp_path: Path) -> None:
    still = {"noise": 1e-6, "launch_noise": 1e-6}
    arms = [arm("pool", 3e-3, **still), arm("arena", 1e-6, **still), arm("lazy", 8e-3, **still)]
    made = controlled(*arms, controls=[])
    page.write([made], tmp_path, results=tmp_path)
    html, twin = ((tmp_path / f"report.{kind}").read_text("utf-8") for kind in ("html", "md"))
    terminal = "".join(str(cell) for cell in tables.worths(made).columns[4].cells)
    for shown, most in ((html, 2), (twin, 2), (terminal, 1), (github_text([made]), 1)):
        assert shown.count("3.00 ms less a step") == most
        assert shown.count("5.00 ms more a step") == 1


def test_steps_of_other_work_save_no_time() -> None:
    item = {"items": 1.0, "item": "image"}
    arms = [arm("small", 1e-3, cost=item), arm("large", 3e-3, cost={**item, "items": 4.0})]
    made = controlled(*arms, controls=[])
    assert made.worths[0].pair.per_item == "image"
    assert made.worths[0].saved_s is None
    assert "a step" not in "".join(map(str, tables.worths(made).columns[4].cells))


def test_what_was_measured_against_controls_alone_is_named(tmp_path: Path) -> None:
    arms = [arm("malloc", 1.0), arm("pool", 1e-3)]
    made = controlled(*arms, controls=["malloc"])
    view = screen([made])
    assert (view.lines, view.controls) == ((), ["a/b"])
    page.write([made], tmp_path, results=tmp_path)
    assert "<code>pool</code> (control) |" in github_text([made])
    for kind in ("html", "md"):
        shown = (tmp_path / f"report.{kind}").read_text("utf-8")
        assert "Against controls alone were measured a/b." in shown


def test_of_records_below_1_9_controls_are_known_by_name() -> None:
    arms = [arm("fp32", 4e-3), arm("fp32_every_block", 5e-3), arm("bf16", 1e-3)]
    case: Json = {"model": "gpt2", "batch": "equal"}
    id = "batch/activation_checkpointing"
    (old,) = screen([summary(launches(3, id, case, arms, schema="1.8"))]).steps
    assert old.first[0] is not None
    assert old.first[0].row.arm == "fp32_every_block"
    (new,) = screen([summary(launches(3, id, case, arms))]).steps
    assert new.first[0] is not None
    assert new.first[0].row.arm == "bf16"


def test_without_errata_no_section_names_them(tmp_path: Path) -> None:
    html = page.write([summary(step("a/b", {"model": "gpt2"}, 2.0))], tmp_path).read_text("utf-8")
    assert 'id="errata"' not in html
    assert 'class="err"' not in html
