"""GPU models in their main facts: the step that they share, and on how much a figure rests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.cost import Prices
from gpulift.analysis.side_by_side import USD, SideBySide, side_by_side
from gpulift.analysis.summary import Summary, summarise
from gpulift.records.read import read_run
from tests import runs_made, sample
from tests.figures import on_gpu, summary
from tests.sample import Json

H100 = "NVIDIA H100 80GB HBM3"
STEP = "precision/training_step"


def step(
    context: Json, seconds: float, technique: str = STEP, tokens: float = 8192.0, **top: Any
) -> list[Json]:
    """A training step of GPT-2, whose case may be named."""
    cost = {"items": tokens, "item": "token"}
    arms = [sample.arm("tf32", 2 * seconds, cost=cost), sample.arm("bf16", seconds, cost=cost)]
    case = top.pop("case", {"model": "gpt2"})
    return sample.launches(2, technique, case, arms, context=context, **top)


def memory(context: Json, rate: float) -> list[Json]:
    ceiling = [sample.arm("read", 1e9 / rate, cost={"bytes": 1e9, "roof": "device_memory"})]
    return sample.launches(2, "ceiling/device_memory", {"n": 1}, ceiling, context=context)


def gpu(name: str, card: str = "0a1b2c3d") -> Json:
    return on_gpu(name, card)


def found(*summaries: Summary, prices: Prices | None = None) -> SideBySide:
    made = side_by_side(summaries, prices=prices)
    assert made is not None
    return made


def test_the_step_is_the_one_that_both_have_with_its_price() -> None:
    one, other = gpu("NVIDIA H200"), gpu(H100)
    here = summary([*step(one, 0.04), *step(one, 0.01, "a/alone")], "one")
    there = summary(step(other, 0.05), "other")
    made = found(here, there, prices=Prices(3.6))
    assert made.models == ("NVIDIA H200", H100)
    tokens, usd = made.facts
    assert (tokens.name, tokens.unit) == ("GPT-2, a training step", "tokens/s")
    assert tokens.about == f"{STEP}, bf16, gpt2"
    values = [cell.value.value for cell in tokens.cells if cell]
    assert values == pytest.approx([8192 / 0.04, 8192 / 0.05], rel=0.02)
    assert usd.unit == USD
    costs = [cell.value.value for cell in usd.cells if cell]
    assert costs == pytest.approx([1e6 / value for value in values])
    assert (made.step, made.priced) == (True, True)
    assert not found(here, there).priced


def test_the_job_is_the_step_where_both_have_it_and_its_model_is_first() -> None:
    llama: Json = {"model": "llama_1b"}
    machines = [
        summary(
            [
                *step(gpu(name), 0.04),
                *step(gpu(name), 0.2, "job/step", case=llama),
                *step(gpu(name), 0.1, case=llama),
                *step(gpu(name), 0.05, "a/faster", case=llama),
            ],
            name[-4:],
        )
        for name in ("NVIDIA H200", H100)
    ]
    assert [(fact.name, fact.about) for fact in found(*machines).facts] == [
        ("Llama 1B, a training step", "job/step, bf16, llama_1b"),
        ("GPT-2, a training step", f"{STEP}, bf16, gpt2"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        step(gpu(H100), 0.05, tokens=4096.0),
        step(gpu(H100), 0.05, case={"model": "gpt2", "task": "inference"}),
        step(gpu(H100), 0.05, case={"model": "resnet50"}),
        step(gpu(H100), 0.05, "a/other"),
    ],
)
def test_what_is_not_the_same_step_is_not_held_against_it(other: list[Json]) -> None:
    one = gpu("NVIDIA H200")
    here = summary([*step(one, 0.04), *memory(one, 4.6e12)], "one")
    made = found(here, summary([*other, *memory(gpu(H100), 3.3e12)], "other"))
    assert [fact.name for fact in made.facts] == ["memory"]
    assert not made.step


def test_steps_of_other_files_say_so_and_stand_behind_others() -> None:
    old, new = ({"training_step.py": 64 * letter} for letter in "ab")
    here = summary(step(gpu("NVIDIA H200"), 0.04, source=old), "one")
    there = summary(step(gpu(H100), 0.05, source=new), "other")
    (fact,) = found(here, there).facts
    assert fact.differs == "different benchmark versions"
    both = [
        summary([*step(gpu(name), 0.04, source=of), *step(gpu(name), 0.03, "a/b")], name[-4:])
        for name, of in (("NVIDIA H200", old), (H100, new))
    ]
    (fact,) = found(*both).facts
    assert (fact.about.partition(",")[0], fact.differs) == ("a/b", "")


def test_a_figure_is_the_median_over_all_runs_that_are_known(tmp_path: Path) -> None:
    runs = []
    for card, rate in (("a", 4.5e12), ("b", 4.6e12), ("c", 4.7e12)):
        sample.write(tmp_path / card, memory(gpu("NVIDIA H200", card), rate))
        runs.append(summarise(read_run(tmp_path / card)))
    there = summary(memory(gpu(H100), 3.3e12), "other")
    further = [record for one in runs[1:] for record in one.run.records]
    made = side_by_side([runs[0], there], further)
    assert made is not None
    mine, theirs = made.facts[0].cells
    assert mine is not None
    assert theirs is not None
    assert (mine.basis, theirs.basis) == ("3 runs, 3 cards", "one run")
    assert mine.value.value == pytest.approx(4.6e12, rel=0.01)
    assert made.facts[0].change == pytest.approx(4.6 / 3.3, rel=0.02)


def test_a_model_with_nothing_in_common_has_no_column() -> None:
    models = [
        summary(memory(gpu(name), rate), name[-3:])
        for name, rate in (("NVIDIA H200", 4.6e12), (H100, 3.3e12))
    ]
    step_alone = summary(step(gpu("NVIDIA A100"), 0.1), "a100")
    made = found(step_alone, *models)
    assert made.models == ("NVIDIA H200", H100)
    assert [len(fact.cells) for fact in made.facts] == [2]


def test_of_one_gpu_model_there_is_nothing_to_hold_side_by_side() -> None:
    here = summary(runs_made.full_gpu())
    assert side_by_side([here]) is None
    assert side_by_side([here, summary(runs_made.without_gpu())]) is None
    assert side_by_side([here, summary(step(gpu(H100), 0.05), "other")]) is None
    assert side_by_side([]) is None
