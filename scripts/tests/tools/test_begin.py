"""results/BEGIN.md: made of rows that may lead alone, in their order, and not stale."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpulift.analysis import errata
from gpulift.analysis.doubts import NO_DOUBTS, Doubts, doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.gains import Gain, gains_of
from gpulift.analysis.ladder import ladders_of
from gpulift.ground.errors import GpuliftError
from tests import sample
from tests.analysis.test_ladder import climbed
from tests.conftest import CHECKOUT
from tests.figures import summary
from tests.sample import Json, arm
from tools import begin

pytestmark = pytest.mark.world

FITS, TOO_LARGE, MANY, SHARDED = begin.SITUATIONS
SECOND = {**sample.GPU_CONTEXT, "gpus": [sample.GPU_CONTEXT["gpu"]] * 4}


def step(
    technique: str,
    gain: float,
    memory: int = 1 << 30,
    ranks: int = 1,
    count: int = 3,
    model: str = "gpt2",
    name: str = "better",
) -> list[Json]:
    """A technique in whole training steps of so many GPUs, with that gain."""
    arms = [
        arm("plain", gain * 1e-2, memory=1 << 30),
        arm(name, 1e-2, memory=memory, ranks=ranks),
    ]
    case = {"model": model, "gpus": ranks}
    return sample.launches(count, technique, case, arms, context=SECOND)


def found(records: Sequence[Json], known: Sequence[Erratum] = ()) -> dict[str, list[Gain]]:
    made = summary([*records])
    doubts: Doubts = doubts_of([made], known) if known else NO_DOUBTS
    by_technique: dict[str, list[Gain]] = {}
    for one in gains_of([made], doubts):
        by_technique.setdefault(one.row.technique, []).append(one)
    return by_technique


def named(situation: begin.Situation, records: Sequence[Json]) -> list[str]:
    return [line.thing.technique for line in begin.lines_of(situation, found(records)) if line.best]


@pytest.mark.skipif(
    shutil.which("git") is None or not (CHECKOUT / ".git").exists(),
    reason="not a git checkout: which records are committed is not known",
)
def test_the_committed_page_is_that_of_the_committed_records() -> None:
    results = CHECKOUT / "results"
    known = errata.read_errata(results / errata.FILE)
    made = begin.page(begin.gains_by_technique(results, known), begin.ladders(results, known))
    committed = (results / begin.PAGE).read_text("utf-8")
    assert committed == made, "run python -m tools.begin in scripts/, commit what it writes"


def test_settings_added_up_stand_first() -> None:
    (one,) = ladders_of([summary(climbed())])
    made = begin.page({}, [one])
    first, *_ = re.findall(r"## (.*)", made)
    assert first == "Settings added up: Llama 1B on H200"
    assert re.search(r"\| torch_default \| 5000 \| – \| 20.0 GiB \|", made)
    assert re.search(r"\| tf32 \| 20000 \| ▲ 4\.0\d*× \[.*\] \| 20.0 GiB \|", made)


def test_every_technique_of_the_page_is_there() -> None:
    for situation in begin.SITUATIONS:
        for thing in situation.things:
            files = [CHECKOUT / "benches" / f"{thing.technique}.{end}" for end in ("cpp", "py")]
            assert any(map(Path.is_file, files)), thing.technique


def test_where_nothing_was_measured_no_figure_stands_but_what_measures_it() -> None:
    made = begin.page({})
    assert not re.search(r"\d×|gpulift:", made)
    assert "| `torch.compile` | not told yet: no record |  | `./gpulift run '^compile/torc" in made
    assert "`./gpulift run '^distributed/sharding/' --gpus all`" in made
    assert made.count("not told yet: no record") == sum(len(one.things) for one in begin.SITUATIONS)


def test_the_largest_gain_is_first_with_its_record_and_what_bounds_it() -> None:
    records = [
        *step("launch/whole_step_graph", 1.1),
        *step("precision/training_step", 1.6, name="bf16"),
        *step("precision/training_step", 1.4, model="resnet50", name="bf16"),
        *step("compile/torch_compile", 2.0, count=1),
    ]
    assert named(FITS, records) == ["precision/training_step", "launch/whole_step_graph"]
    made = begin.page(found(records))
    first = made[made.index("| 1. BF16") :].partition(" |\n")[0]
    _, worth, bound, record = first.split(" | ")
    assert re.match(r"▲ 1\.(59|6\d)", worth)
    assert worth.count("<br>") == 1
    assert "(bf16, gpus 1; over plain; GPT-2, H200)" in worth
    assert worth.index("GPT-2, H200") < worth.index("ResNet-50, H200")
    assert bound.startswith("bound by device; 3 launches, one run, one card")
    assert record.startswith("`gpulift:nvidia-h200/")
    assert "| `torch.compile` | not told yet: one launch |" in made


def test_of_what_saves_memory_the_one_that_costs_least_time_is_first() -> None:
    half = 1 << 29
    records = [
        *step("job/fit", 0.3, memory=half // 2, name="optimizer_offload"),
        *step("batch/activation_checkpointing", 0.8, memory=half),
        *step("loss/chunked_cross_entropy", 2.0),
    ]
    techniques = ["batch/activation_checkpointing", "job/fit"]
    assert named(TOO_LARGE, records) == techniques
    made = begin.page(found(records))
    assert re.search(r"\| 1\. checkpoints of activations \| 0\.500× the memory, ▼ 0\.[78]", made)
    assert "| 2. the optimiser on the host | 0.250× the memory" in made
    assert "| activations on the host | not told yet: no record |" in made, "another arm's"
    saves_none = "| the loss by a library, or in chunks | not told yet: no record |"
    assert saves_none in made


def test_on_several_gpus_the_most_are_shown() -> None:
    records = [
        *step("distributed/data_parallel", 1.9, ranks=2),
        *step("distributed/data_parallel", 3.6, ranks=4),
        *step("distributed/sharding", 0.9, memory=1 << 29),
    ]
    (line,) = [one for one in begin.lines_of(MANY, found(records)) if one.best]
    assert [one.about for one in line.best] == ["better, gpus 4"]
    assert named(SHARDED, records) == [], "of one GPU"


def test_what_an_erratum_withholds_or_doubts_is_no_figure(tmp_path: Path) -> None:
    steps = step("precision/training_step", 1.6, name="bf16")
    records = [*steps, *step("launch/whole_step_graph", 1.1)]
    file = tmp_path / errata.FILE
    cells = "".join(f'{key} = "x"\n' for key in errata.TEXTS)
    entry = f'[[errata]]\n{cells}runs = ["*"]\n'
    file.write_text(f'{entry}leads = false\ntechniques = "training"\n{entry}techniques = "graph"\n')
    lines = begin.lines_of(FITS, found(records, errata.read_errata(file)))
    why = {line.thing.technique: line.why_not for line in lines}
    assert not any(line.best for line in lines)
    assert why["precision/training_step"] == ("known error",)
    assert why["launch/whole_step_graph"] == ("in doubt",)


def test_records_that_are_not_there_are_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match="git lists no files here"):
        begin.gains_by_technique(tmp_path, [])
