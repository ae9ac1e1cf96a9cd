"""results/BEGIN.md: what stands in it, in which order and with which grade, and that it is not
stale."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpulift.analysis import begin_rows, things
from gpulift.analysis.begin_rows import Answer, Known
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import worth_over
from gpulift.analysis.today import UNKNOWN, Declared, Today, read_today
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.verdicts.cases import Case
from tests import sample
from tests.analysis.test_ladder import rung
from tests.conftest import CHECKOUT
from tests.figures import summary
from tests.sample import Json, arm
from tools import begin, begin_cells

RESULTS = CHECKOUT / "results"
SEVERAL = {
    **sample.GPU_CONTEXT,
    "gpus": [sample.GPU_CONTEXT["gpu"]] * 2,
    "environment": {"NCCL_NVLS_ENABLE": "0"},
}
LLAMA: Json = {"model": "llama_1b"}
FRONTIER: Json = {**LLAMA, "tokens": 16384}


def step(
    technique: str,
    gains: dict[str, float],
    case: Json = LLAMA,
    count: int = 3,
    memory: int = 1 << 30,
    **top: object,
) -> list[Json]:
    """A whole training step whose arms gain so much over its first, and hold so much memory."""
    (first, _), *others = gains.items()
    arms = [arm(first, 1e-2, memory=1 << 30, ranks=int(str(top.get("ranks", 1))))]
    ranks = top.pop("ranks", 1)
    arms += [arm(name, 1e-2 / gain, memory=memory, ranks=ranks) for name, gain in others]
    return sample.launches(count, technique, case, arms, **top)


def known(records: Sequence[Json], errata: Sequence[Erratum] = (), today: Today = UNKNOWN) -> Known:
    made = summary([*records]) if records else None
    cases: dict[str, list[Case]] = {}
    every: dict[str, list[Record]] = {}
    for case in made.cases if made else ():
        cases.setdefault(case.technique, []).append(case)
        every.setdefault(case.technique, []).extend(case.records)
    doubts = doubts_of([made] if made else [], errata, today)
    reference = find_reference(RESULTS, "nvidia-h200")
    return Known(cases, doubts, today, every, {"nvidia-h200": reference} if reference else {})


def rows(page: str, title: str) -> list[list[str]]:
    """The rows of the table below a head that begins so, cell by cell."""
    table = page[page.index(f"\n## {title}") :].partition("\n| ")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in f"| {table}".splitlines()][2:]


def answer(words: str, found: Known, situation: things.Situation = things.FASTER) -> Answer:
    every = begin_rows.answers(situation, found)
    return next(one for one in every if one.thing.words == words)


@pytest.mark.world
@pytest.mark.skipif(
    shutil.which("git") is None or not (CHECKOUT / ".git").exists(),
    reason="not a git checkout: which records are committed is not known",
)
def test_the_committed_page_is_that_of_the_committed_records() -> None:
    committed = (RESULTS / begin.PAGE).read_text("utf-8")
    made = begin.page(begin_rows.known_from(RESULTS))
    assert committed == made, "run python -m tools.begin in scripts/, commit what it writes"


def test_each_row_asks_arms_and_cases_that_are_there_today() -> None:
    today = read_today(RESULTS)
    for situation in things.SITUATIONS:
        for source in (one for thing in situation.things for one in thing.sources):
            declared = today.declared(source.technique)
            assert declared is not None, source
            asked = {*source.arms, source.over or declared.arms[0]}
            assert asked <= {*declared.arms}, source
            found = [re.search(source.cases, id) for id in begin_rows.cases_today(declared)]
            assert any(found), source


def test_where_nothing_was_measured_the_one_case_that_would_fill_a_row_stands_there() -> None:
    today = Today(
        {"compile/regions": Declared(("eager", "layers"), {"model": ("gpt2", "llama_1b")})}
    )
    page = begin.page(known([], today=today))
    assert not re.search(r"\d×|`[0-9a-f]{12}`", page)
    told = rows(page, things.FASTER.title)
    assert {row[1] for row in told} == {"not measured"}
    command = "`./gpulift run '^compile/regions/model:llama_1b/' --launches 3`"
    assert f"| `torch.compile` | {command} | not known |" in page


def test_what_brings_most_on_the_first_job_is_first_then_what_other_jobs_have() -> None:
    records = [
        *step("compile/regions", {"eager": 1.0, "layers": 1.2}),
        *step("fusion/step_kernels", {"torch": 1.0, "all": 1.5}, {**LLAMA, "form": "eager"}),
        *step(
            "layout/channels_last",
            {"contiguous": 1.0, "channels_last": 9.0},
            {"model": "resnet50", "precision": "bf16"},
        ),
    ]
    told = rows(begin.page(known(records)), things.FASTER.title)
    assert [re.findall(r"\*\*(\d+)\.\*\* (.{9})", row[0]) for row in told[:3]] == [
        [("1", "a library")],
        [("2", "`torch.co")],
        [("3", "`channels")],
    ]


def test_a_row_says_how_over_what_on_which_job_and_on_how_much_it_rests() -> None:
    load = {"own_cores": 1.0, "other_cores": 18.4, "stolen_cores": 0.0}
    once = step("compile/regions", {"eager": 1.0, "layers": 1.25}, count=1, memory=1 << 29)
    records = [{**one, "host_load": load} for one in once]
    files = {"compile/regions": Declared(("eager", "layers"), {"model": ("llama_1b",)})}
    (row, *_) = rows(begin.page(known(records, today=Today(files))), things.FASTER.title)
    name, speed, memory, _, on, evidence = row
    how = "`layer.compile()` for each layer, `torch.compile(loss)`"
    assert name.startswith(f"**1.** `torch.compile`<br>{how}<br><sub>an eighth of Llama 8B ")
    assert speed == "**1.25×**", "one launch has no interval over launches"
    assert memory == "**0.500×**, 512 MiB"
    assert on == "Llama 1B, H200<br>over the same, eager"
    assert re.fullmatch(r"●○○<br>before&nbsp;\(2026-11-\d\d\)<br>shared&nbsp;host", evidence)
    assert "| GPU-bound; others kept 18.4 of" in begin.page(known(records))
    thrice = known(step("compile/regions", {"eager": 1.0, "layers": 1.25}))
    assert rows(begin.page(thrice), things.FASTER.title)[0][5] == "●●○"


def test_another_job_has_a_row_where_its_answer_differs() -> None:
    def told(other: float) -> list[str]:
        gains = {"llama_1b": 1.2, "gpt2": other, "vit_l16": 1.21}
        records = [
            one
            for model, gain in gains.items()
            for one in step("job/step", {"bf16": 1.0, "compiled": gain}, {"model": model})
        ]
        return [one.job for one in answer("`torch.compile`", known(records)).shown]

    assert told(1.5) == ["Llama 1B", "GPT-2"]
    assert told(1.19) == ["Llama 1B"]


def test_of_a_job_more_launches_stand_before_an_earlier_source() -> None:
    once = step("job/ladder", {"fused_adamw": 1.0, "compiled": 1.9}, count=1)
    thrice = step("compile/regions", {"eager": 1.0, "layers": 1.2})
    (shown,) = answer("`torch.compile`", known([*once, *thrice])).shown
    assert shown.gain.row.technique == "compile/regions"


def test_what_an_erratum_withholds_has_the_reason_and_no_figure() -> None:
    error = Erratum("it is wrong", "x", "x", "x", runs=("*",), arms="^layers$", leads=False)
    found = known(step("compile/regions", {"eager": 1.0, "layers": 1.7}), [error])
    page = begin.page(found)
    assert "withheld: it is wrong" in page
    assert "1.7" not in page
    other = step("job/step", {"bf16": 1.0, "compiled": 1.3})
    made = known([*step("compile/regions", {"eager": 1.0, "layers": 1.7}), *other], [error])
    assert [one.gain.row.technique for one in answer("`torch.compile`", made).shown] == ["job/step"]


def test_what_is_gone_is_no_figure() -> None:
    today = Today({"compile/regions": Declared(("eager", "layers"), {"model": ("gpt2",)})})
    found = answer(
        "`torch.compile`", known(step("compile/regions", {"eager": 1, "layers": 2}), today=today)
    )
    assert (found.shown, found.why_none) == ((), "an older form alone was measured (case)")


def test_a_case_that_makes_a_row_surer_says_what_three_launches_take() -> None:
    case = step("compile/regions", {"eager": 1.0, "layers": 1.2}, count=1)
    records = [{**one, "time_s": {"total": 40.0}} for one in case]
    surer = answer("`torch.compile`", known(records)).surer
    assert surer is not None
    assert (surer.case, surer.seconds) == ("model:llama_1b", 123.0), "and a second between launches"


def test_of_what_saves_memory_the_one_that_costs_least_time_is_first() -> None:
    arms = {"none": 1.0, "budget": 0.8, "full": 0.2}
    page = begin.page(known(step("job/frontier", arms, FRONTIER, memory=1 << 29)))
    first, second, *_ = rows(page, things.SMALLER.title)
    assert first[0].startswith("**1.** `torch.compile` with half its memory")
    assert second[0].startswith("**2.** activation checkpointing, full")
    assert first[1] == "**0.500×**, 512 MiB"
    assert re.match(r"▼ \*\*0\.(80|79)\d*×\*\*", first[2])


def test_several_gpus_say_how_many_were_measured_and_without_what() -> None:
    case = {"gpus": 2, "model": "llama_1b", "scaling": "weak", "compiled": "yes"}
    records = step("distributed/data_parallel", {"one_gpu": 1.0, "ddp": 1.8}, case, context=SEVERAL)
    page = begin.page(known(records))
    assert f"## {things.SEVERAL.title} (measured on 2, NVLink SHARP off)\n" in page
    on = {**SEVERAL, "environment": {}}
    records = step("distributed/data_parallel", {"one_gpu": 1.0, "ddp": 1.8}, case, context=on)
    assert f"## {things.SEVERAL.title} (measured on 2)\n" in begin.page(known(records))


def climbed() -> list[Json]:
    """A ladder whose steps do 100 TFLOP; FP8 is less exact, and has a roof of its own."""
    seconds = {"torch_default": 1.6, "tf32": 0.4, "bf16": 0.2, "compiled": 0.16, "fp8": 0.125}
    arms = []
    for place, (name, time) in enumerate(seconds.items()):
        roof = "gemm/fp8" if name == "fp8" else "gemm/bf16"
        cost = {"items": 8000.0, "item": "token", "flops": 1e14, "roof": roof}
        arms.append(rung(name, time, memory=(20 - place) << 30, cost=cost))
    made = sample.launches(3, "job/ladder", LLAMA, arms)
    for one in (found for record in made for found in record["arms"]):
        one |= {"check_error": 0.46 if one["name"] == "fp8" else 0.04, "check_tolerance": 0.5}
    return [{**one, "check": {"meaning": "gradients of a step", "tolerance": 0.5}} for one in made]


@pytest.mark.parametrize(
    ("meaning", "told"),
    [("gradients of a step", "0.46 (0.04)"), ("losses", "0.46 (0.04) of losses"), ("pixels", "–")],
)
def test_an_error_says_of_what_it_is_and_is_none_of_what_nobody_asks(
    meaning: str, told: str
) -> None:
    check = {"meaning": meaning, "tolerance": 0.5}
    (case,) = known([{**one, "check": check} for one in climbed()]).cases["job/ladder"]
    row = worth_over(case, "fp8", "compiled")
    assert row
    assert begin_cells.error(row) == told


def test_a_check_of_gradients_says_nothing_of_another_update() -> None:
    renamed = climbed()
    for record in renamed:
        record["arms"][-1]["name"] = "full_half_optimizer_on_host"
    (case,) = known(renamed).cases["job/ladder"]
    assert begin_cells.error_of(case, "compiled") == "0.04"
    assert begin_cells.error_of(case, "full_half_optimizer_on_host") == "–"


def test_on_the_ladder_of_speed_bf16_is_one_and_fp8_has_its_error_and_no_mfu() -> None:
    page = begin.page(known(climbed()))
    first, tf32, bf16, compiled, fp8 = rows(page, "Speed: settings added up, Llama 1B on H200")
    assert first[0] == "*FP32 (default)*"
    assert bf16[3] == "1.00×"
    assert re.search(r"\*\*0\.50\d*×\*\*", tf32[3])
    assert re.search(r"\*\*1\.25\d*×\*\*", compiled[3])
    assert (bf16[4], fp8[4]) == ("500 (51 %)", "800"), "of 989 TFLOP/s"
    assert (bf16[6], fp8[6]) == ("0.04", "0.46")


def test_the_frontier_has_a_bar_for_each_setting_and_its_figure_where_it_is_drawn() -> None:
    records = step("job/frontier", {"none": 1.0, "full": 0.8}, FRONTIER, memory=1 << 29)
    page = begin.page(known(records))
    _, full = rows(page, "Memory: a row of 16,384 tokens, Llama 1B on H200")
    assert full[1:4] == ["512 MiB", "0.500×", f"`{'█' * 10}{'░' * 10}`"]
    assert "fit.svg" not in page
    drawn = replace(known(records), figures=frozenset({"fit.svg"}))
    assert "](figures/fit.svg)" in begin.page(drawn)
    other = step("job/frontier", {"none": 1.0, "full": 0.8}, {**FRONTIER, "tokens": 4096})
    assert "fit.svg" not in begin.page(replace(drawn, cases=known(other).cases))


def test_without_the_baseline_the_frontier_has_memory_alone() -> None:
    records = step("job/frontier", {"none": 1.0, "full": 0.8}, FRONTIER, memory=1 << 29)
    for one in records:
        one["arms"][0] |= {"outcome": "failed", "reason": "no room"}
    (full,) = rows(begin.page(known(records)), "Memory: a row of 16,384 tokens, Llama 1B on H200")
    assert full[1:5] == ["512 MiB", "–", "", "–"]


def test_each_length_of_a_row_has_its_frontier_in_bold_the_shortest_first() -> None:
    gains = {"none": 1.0, "full": 0.8, "mlp_rest_on_host": 0.9, "attention": 0.7}
    sides = {"full": 0.9, "mlp_rest_on_host": 0.7}
    long, short = (
        step("job/frontier", {**gains, **faster}, {**LLAMA, "tokens": tokens}, memory=1 << 29)
        for tokens, faster in ((65536, {}), (4096, sides))
    )
    page = begin.page(known([*long, *short]))
    best = []
    for tokens in ("4,096", "65,536"):
        told = rows(page, f"Memory: a row of {tokens} tokens, Llama 1B on H200")
        best.append([row[0].split("<br>")[0] for row in told if row[0].startswith("**")])
    assert best == [
        ["**all activations kept**", "**full checkpointing**"],
        ["**all activations kept**", "**MLPs recomputed, the rest offloaded**"],
    ]
    assert page.index("row of 4,096") < page.index("row of 65,536")
    assert "speed over all activations kept" in page


def test_records_that_are_not_there_are_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="git lists no files here"):
        begin_rows.known_from(tmp_path)
