"""The first screen: whole training steps, then building blocks, each with its grade; what is in
doubt stands behind, and what an erratum withholds is in none of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.bounds import trained_model
from gpulift.analysis.doubts import NO_DOUBTS, Doubts, doubts_of
from gpulift.analysis.errata import read_errata
from gpulift.analysis.gains import UNFINISHED, headline
from gpulift.analysis.standing import BEYOND, CONTROL, HOST_BOUND
from gpulift.analysis.summary import Summary, summarise
from gpulift.exchange.github import github_text
from gpulift.ground.markup import code
from gpulift.records.parse import read_record
from gpulift.records.read import read_run
from gpulift.report import planned, tables
from gpulift.report.limits import USUAL
from gpulift.report.machine_views import SAVES, MachineView
from tests import sample
from tests.analysis.machine.test_qualify_feeding import ladder
from tests.analysis.machine.test_qualify_training import RESNET, steps
from tests.figures import (
    analysed,
    machine_views,
    summary,
    undrawn,
    undrawn_pages,
)
from tests.sample import Json, arm, launches

pytestmark = pytest.mark.world

ERRATUM = """
[[errata]]
number = 1
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
    return machine_views(summaries, doubts)[0]


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


def test_steps_come_before_blocks_and_of_each_the_largest_gain_is_first(tmp_path: Path) -> None:
    many = [
        one
        for size in (1, 2, 3)
        for one in launches(3, "transfer/copy", {"size": size}, [arm("x", 2e-3), arm("y", 1e-3)])
    ]
    large = launches(3, "allocator/pool", {"n": 1}, [arm("x", 2.5e-2), arm("y", 1e-3)])
    huge = launches(3, "input/lists", {"n": 1}, [arm("x", 2e-1), arm("y", 1e-3)])
    made = summary(
        [
            *huge,
            *many,
            *large,
            *step("launch/graph", {"model": "gpt2"}, 1.2),
            *step("precision/mixed", {"model": "gpt2"}, 4.3, memory=1 << 29),
            *step("layout/last", {"model": "lstm"}, 9.0),
        ]
    )
    view = screen([made])
    assert steps_of(view) == ["precision/mixed", "launch/graph", "layout/last"]
    assert [theme.name for theme in view.themes] == ["allocator", "transfer", "input"]
    assert view.leading["input/lists"].qualm == BEYOND
    html = undrawn(analysed([made], tmp_path), tmp_path)
    places = [
        html.index(f'<a href="pages/t-{name}.html#t-{name}">')
        for name in ("precision-mixed", "layout-last", "allocator-pool", "input-lists")
    ]
    assert places == sorted(places)
    heads = [html.index(f'<h3 id="t-{name}">') for name in ("precision-mixed", "allocator-pool")]
    assert max(heads) < html.index('<h3 id="t-transfer-copy">')
    assert "Building blocks, by theme: a training step gains less" in html
    assert "better; 0.500× the memory" in html
    assert '<td data-label="baseline"><span>plain</span>' in html
    answer = (tmp_path / "report.md").read_text("utf-8")
    assert answer.index("precision/mixed") < answer.index("allocator/pool")
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


def test_what_is_faster_and_what_saves_memory_are_two_lists(tmp_path: Path) -> None:
    small, half, third, quarter = (int(one * (1 << 30)) for one in (0.9, 0.5, 0.33, 0.25))
    made = summary(
        [
            *step("a/checkpoints", {"model": "gpt2"}, 0.8, memory=half),
            *step("b/offload", {"model": "gpt2"}, 0.1, memory=quarter),
            *step("b/offload", {"model": "gpt2", "part": "all"}, 0.5, memory=small),
            *step("c/both", {"model": "gpt2", "n": 1}, 2.0, memory=half),
            *step("c/both", {"model": "gpt2", "n": 2}, 0.9, memory=third),
            *step("d/slow", {"model": "gpt2"}, 0.7),
            *step("e/same", {"model": "gpt2"}, 1.0),
        ]
    )
    view = screen([made])
    faster, savers, rest = view.lists.faster, view.lists.savers, view.lists.rest
    assert [line.technique for line in faster] == ["c/both"]
    assert [line.technique for line in savers] == ["b/offload", "a/checkpoints"]
    assert [one.about for one in savers[0].gains] == ["better"], "what saves most"
    assert [line.technique for line in rest] == ["e/same", "d/slow"]
    assert (view.slower, view.quiet) == (["d/slow"], ["e/same"])
    html = undrawn(analysed([made], tmp_path), tmp_path)
    answer = (tmp_path / "report.md").read_text("utf-8")
    for shown in (html, answer):
        lists = [shown.index(f"{title}: whole") for title in ("What is faster", SAVES)]
        assert lists == sorted(lists)
        assert "saving no memory: d/slow." in shown
    table = html[html.index('id="savers-0"') :].partition("</table>")[0]
    assert table.index("<b>0.250× the memory</b>") < table.index("<b>0.500× the memory</b>")
    assert "| b/offload | 0.250× the memory, ▼ 0.1" in answer


def test_a_model_of_which_nothing_was_measured_has_no_column(tmp_path: Path) -> None:
    for model, column in (("lstm", "another model"), ("resnet50", "ResNet-50")):
        undrawn(analysed([summary(step("a/b", {"model": model}, 2.0))], tmp_path), tmp_path)
        answer = (tmp_path / "report.md").read_text("utf-8")
        assert f"| technique | {column} | baseline |" in answer


def test_what_is_in_doubt_stands_behind_and_one_launch_says_so(tmp_path: Path) -> None:
    case: Json = {"model": "gpt2"}
    above = tmp_path / "nvidia-h200"
    runs = [
        recorded(above / "sure", step("z/sure", case, 1.1)),
        recorded(above / "once", step("a/once", case, 9.0, count=1)),
        recorded(above / "left", step("a/left", case, 8.0, count=2), state="running"),
        recorded(above / "wrong", step("a/wrong", case, 7.0)),
    ]
    (tmp_path / "errata.toml").write_text(ERRATUM, encoding="utf-8")
    doubts = doubts_of(runs, read_errata(tmp_path / "errata.toml"))
    view = screen(runs, doubts)
    assert steps_of(view)[0] == "z/sure"
    assert set(steps_of(view)[1:]) == {"a/once", "a/left", "a/wrong"}
    assert view.kept_back == []
    html = undrawn(analysed(runs, tmp_path), tmp_path / "out")
    table = html[html.index('id="steps-0"') :].partition("</table>")[0]
    mark = 'href="pages/reading.html#e-1" title="known error: the clock was &lt;wrong&gt;">E1</a>'
    assert table.count(mark) == 1
    assert table.count(UNFINISHED) == 2, "a/once, a/left"
    assert table.count("●●○") == 2
    assert table.count("●○○") == 2
    assert '<dt id="e-1">E1</dt>' in html
    answer = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "bound by device E1 |" in answer
    assert "- E1: the clock was &lt;wrong" in answer


def test_a_run_without_run_json_is_unfinished_where_launches_are_missing() -> None:
    whole = summary(step("a/b", {"model": "gpt2"}, 2.0, count=3))
    assert (whole.unfinished, whole.marks) == (False, ())
    broken_off = summary(step("a/b", {"model": "gpt2"}, 2.0, count=2))
    assert (broken_off.unfinished, broken_off.marks) == (True, ("unfinished run",))
    cases = [one.worths[0].case for one in (whole, broken_off)]
    assert [one.lacks_launches for one in cases] == [False, True]


def test_what_hangs_on_a_busy_host_says_so_and_stands_behind() -> None:
    load = {"own_cores": 1.0, "other_cores": 2.25, "stolen_cores": 0.0}
    waits = [arm("x", 2e-5), arm("y", 1e-6, held=False, clock="host")]
    works = [arm("x", 2e-3), arm("y", 1e-3)]
    busy = summary(launches(3, "a/waits", {"n": 1}, waits, host_load=load))
    sound = summary(launches(3, "a/works", {"n": 1}, works, host_load=load))
    assert busy.worths[0].remarks == ("host-bound: y 1.00", "others kept 2.2 cores busy")
    assert sound.worths[0].remarks == ()
    assert [line.behind for one in (busy, sound) for line in screen([one]).lines] == [True, False]


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
    assert [one.name for one in doubts.known(runs[0].run.records)] == ["E1"]


def test_what_an_error_withholds_is_named_and_in_no_line(tmp_path: Path) -> None:
    more = 'techniques = "^a/"\nleads = false\n'
    every = ERRATUM.replace("nvidia-h200/wrong", "*")
    (tmp_path / "errata.toml").write_text(every + more, "utf-8")
    made = summary([*step("a/mixed", {"model": "gpt2"}, 4.3), *step("z/b", {"model": "gpt2"}, 2.0)])
    html = undrawn(analysed([made], tmp_path), tmp_path)
    front, _, rest = html.partition("</html>")
    assert "better (gpt2)" in rest
    assert "4.30" not in rest
    said = "Withheld, as known to be wrong:.*the clock was.*E1.*: a/mixed"
    for shown in (front, (tmp_path / "report.md").read_text("utf-8")):
        assert "2.00" in shown
        assert "4.30" not in shown
        assert re.search(said, shown, re.S)


def test_of_a_technique_an_erratum_withholds_the_arms_that_it_names_alone(tmp_path: Path) -> None:
    every = ERRATUM.replace("nvidia-h200/wrong", "*")
    errata = f'{every}arms = "^wrong$"\nleads = false\n'
    (tmp_path / "errata.toml").write_text(errata, "utf-8")
    arms = [arm("old", 4e-3), arm("right", 2e-3), arm("wrong", 5e-4)]
    made = summary(launches(3, "a/b", {"model": "gpt2"}, arms))
    html = undrawn(analysed([made], tmp_path), tmp_path)
    for shown in (html, (tmp_path / "report.md").read_text("utf-8")):
        assert "2.00" in shown
        assert "8.0" not in shown
    assert "ithheld: wrong (gpt2). the clock was" in html
    assert "Withheld, as known" not in html, "another arm speaks for the technique"


def test_the_index_has_a_figure_for_every_technique_that_has_one(tmp_path: Path) -> None:
    made = summary(
        [
            *step("a/once", {"model": "gpt2"}, 1.5, count=1),
            *launches(3, "b/block", {"n": 1}, [arm("x", 3e-3), arm("y", 1e-3)]),
            *launches(3, "b/block", {"n": 2}, [arm("x", 7e-3), arm("y", 1e-3)]),
            *step("c/wrong", {"model": "gpt2"}, 9.0),
        ]
    )
    every = ERRATUM.replace("nvidia-h200/wrong", "*")
    errata = f'{every}techniques = "wrong"\nleads = false\n'
    (tmp_path / "errata.toml").write_text(errata, "utf-8")
    front = undrawn_pages(analysed([made], tmp_path))["index.html"]
    index = front[front.index('id="index-t"') :].partition("</table>")[0]
    assert re.search(r"1\.49\d×(?s:.)*?●○○", index)
    assert "withheld: the clock was" in index
    assert not re.search(r"[^.\d]9\.0\d*×", front)
    assert index.count("7.00×") == front.count("7.00×") // 2 == 1, "the figure of its line"


def test_how_fast_it_trains_and_is_fed_comes_first(tmp_path: Path) -> None:
    trained = steps(RESNET, "image", 128, 3.1e12, (0.045, 0.03))
    fed = ladder(context=trained["context"])
    made = summary([*step("a/b", {"model": "gpt2"}, 2.0), trained, *fed])
    html = undrawn(analysed([made], tmp_path), tmp_path)
    for shown in (html, (tmp_path / "report.md").read_text("utf-8")):
        said = (
            "ResNet-50 trains at 4267 images/s",
            "ResNet-50: 2 cores feed",
            "Undecided: no speed",
        )
        places = [shown.index(words) for words in said]
        assert places == sorted(places)
        assert places[0] < shown.index("2.00")


def test_of_a_block_the_ends_are_those_without_doubt() -> None:
    pair = [arm("x", 5e-3), arm("y", 1e-3)]
    sure = [arm("x", 2e-3), arm("y", 1e-3)]
    made = summary([*launches(1, "a/b", {"n": 1}, pair), *launches(3, "a/b", {"n": 2}, sure)])
    (line,) = screen([made]).lines
    assert (line.best.case.case_id, line.worst, line.behind) == ("n:2", None, False)


def test_the_terminal_and_github_have_the_order_of_the_first_screen() -> None:
    huge = [arm("x", 2.5e-2), arm("y", 1e-2), arm("z", 1e-3)]
    made = summary(
        [
            *launches(3, "allocator/pool", {"n": 1}, huge),
            *step("launch/graph", {"model": "resnet50"}, 1.2),
            *step("launch/graph", {"model": "lstm"}, 9.0, count=1),
            *step("precision/half", {"model": "resnet50"}, 4.3),
        ]
    )
    wanted = [
        ("precision/half", "model resnet50", "better"),
        ("launch/graph", "model resnet50", "better"),
        ("launch/graph", "model lstm", "better"),
        ("allocator/pool", "n 1", "z"),
        ("allocator/pool", "n 1", "y"),
    ]
    table = tables.worths(made)
    ids, cases, arms, *_ = (list(column.cells) for column in table.columns)
    assert list(zip(ids, cases, arms, strict=True)) == wanted
    page = github_text(analysed([made]))
    sure = [one for one in wanted if one[1] != "model lstm"]  # that lacks launches
    places = [
        page.index(f"| {code(id)} | {code(where)} | {code(name)}") for id, where, name in sure
    ]
    assert places == sorted(places)


def controlled(*arms: Json, controls: Sequence[str], **top: Any) -> Summary:
    """Arms of a block, and which of them are controls."""
    return summary(launches(3, "a/b", {"n": 1}, arms, controls=list(controls), **top))


def test_no_table_begins_with_a_control(tmp_path: Path) -> None:
    arms = [arm("pool", 2e-3), arm("arena", 1e-3), arm("malloc", 1e-5)]
    made = controlled(*arms, controls=["malloc"])
    (line,) = screen([made]).lines
    assert (line.best.arm, line.worst) == ("arena", None)
    assert [row.arm for row in headline(made)] == ["arena"]
    names = list(tables.worths(made).columns[2].cells)
    assert names == ["arena", "malloc (control)"]
    html = undrawn(analysed([made], tmp_path))
    assert '<b>malloc</b> <span class="muted">control</span>' in html
    assert html.index("<li>arena: ") < html.index("<li>malloc: ")


def test_beside_a_ratio_stands_the_time_that_a_step_saves(tmp_path: Path) -> None:
    still = {"noise": 1e-6, "launch_noise": 1e-6}
    arms = [arm("pool", 3.2e-3, **still), arm("arena", 2e-4, **still), arm("lazy", 8.2e-3, **still)]
    made = controlled(*arms, controls=[])
    html = undrawn(analysed([made], tmp_path), tmp_path)
    answer = (tmp_path / "report.md").read_text("utf-8")
    assert answer.count("3.00 ms less a step") == 1
    terminal = "".join(str(cell) for cell in tables.worths(made).columns[4].cells)
    for shown, most in ((html, 2), (terminal, 1), (github_text(analysed([made])), 1)):
        assert shown.count("3.00 ms less a step") == most
        assert shown.count("5.00 ms more a step") == 1


def test_beside_the_ratio_of_what_waits_for_the_host_stands_that_it_does(tmp_path: Path) -> None:
    count = {"metrics": {"kernel_launches_per_step": 768.0}}
    made = controlled(arm("eager", 1e-6, held=False, **count), arm("new", 1e-3), controls=[])
    (line,) = screen([made]).lines
    assert (line.behind, line.leading.qualm) == (True, HOST_BOUND)
    html = undrawn(analysed([made], tmp_path), tmp_path)
    said = "host-bound: eager 1.00, 768 launches a step"
    assert html.count(said) == 1
    for shown in (html, (tmp_path / "report.md").read_text("utf-8")):
        assert HOST_BOUND in shown
    assert said in "".join(str(cell) for cell in tables.worths(made).columns[4].cells)
    assert code(said) in github_text(analysed([made]))


def test_steps_of_other_work_save_no_time() -> None:
    item = {"items": 1.0, "item": "image"}
    arms = [arm("small", 1e-3, cost=item), arm("large", 3e-3, cost={**item, "items": 4.0})]
    made = controlled(*arms, controls=[])
    assert made.worths[0].pair.per_item == "image"
    assert made.worths[0].saved_s is None
    assert "a step" not in "".join(map(str, tables.worths(made).columns[4].cells))


def test_what_was_measured_against_controls_alone_says_so(tmp_path: Path) -> None:
    arms = [arm("malloc", 1e-2), arm("pool", 1e-3)]
    made = controlled(*arms, controls=["malloc"])
    (line,) = screen([made]).lines
    assert (line.behind, line.leading.qualm) == (True, CONTROL)
    html = undrawn(analysed([made], tmp_path), tmp_path)
    assert "`pool` (control) |" in github_text(analysed([made]))
    for shown in (html, (tmp_path / "report.md").read_text("utf-8")):
        assert CONTROL in shown


def test_of_older_records_controls_are_known_by_name() -> None:
    arms = [arm("eager", 4e-3), arm("default", 5e-3), arm("cpp_eager", 1e-3)]
    case: Json = {"model": "gpt2"}
    id = "compile/torch_compile"
    (old,) = screen([summary(launches(3, id, case, arms, schema="1.8"))]).steps
    assert [one.row.arm for one in old.first if one] == ["default"]
    (new,) = screen([summary(launches(3, id, case, arms))]).steps
    assert [one.row.arm for one in new.first if one] == ["cpp_eager"]


def test_of_older_records_a_baseline_that_is_a_control_now_is_one() -> None:
    arms = [arm("fp32", 4e-3), arm("tf32", 2e-3), arm("bf16", 1e-3)]
    id = "precision/mixed"
    view = screen([summary(launches(3, id, {"model": "gpt2"}, arms, schema="1.9"))])
    assert {one.qualm for one in view.gains} == {CONTROL}


def test_without_errata_no_section_names_them(tmp_path: Path) -> None:
    made = summary(step("a/b", {"model": "resnet50"}, 2.0))
    html = undrawn(analysed([made]))
    assert 'id="errata"' not in html
    assert 'class="err"' not in html


def test_what_was_predicted_stands_beside_what_was_measured_and_why_it_was_missed() -> None:
    predict = [
        {"arm": "pinned", "speedup": [1.9, 2.1]},
        {"arm": "pinned", "step_time_s": [4e-3, 5e-3]},
    ]
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    made = sample.launches(
        3,
        "transfer/pinned_copy",
        {"bytes": 64},
        arms,
        predict=predict,
        found="Nobody <knows>.",
        l2="by_size",
    )
    html = undrawn(analysed([summary(made)]))
    assert "As a step begins: L2 by size" in html
    assert "predicted 1.90 to 2.10×" in html
    assert "predicted 1.90 to 2.10×, missed" not in html
    assert "predicted 4.00 ms to 5.00 ms, missed by 4.0" in html
    assert "<b>Found:</b> Nobody &lt;knows&gt;." in html
