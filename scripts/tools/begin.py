"""results/BEGIN.md, what to turn on and in which order: `python -m tools.begin`, from committed
records.

The list of things is ours. What each is worth, and with it the order, comes from rows that may lead
(`analysis.standing`); where there is none the page says why, and which command measures it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.analysis import errata, gains
from gpulift.analysis.choice import cases_of
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.errata import Erratum
from gpulift.analysis.gains import FIRST_MODELS, Gain, gains_of
from gpulift.analysis.ladder import Ladder, Rung, ladders_of
from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.models import as_model, with_models
from gpulift.analysis.neighbours import neighbours_at
from gpulift.analysis.standing import CONTROL, LADDER, REASONS
from gpulift.analysis.summary import summarise
from gpulift.analysis.today import read_today
from gpulift.ground import text
from gpulift.ground.entry import say
from gpulift.records.files import stem_of
from tools.page import write_page
from tools.showcase import runs_of

MODELS = ("nvidia-h100-80gb-hbm3", "nvidia-h200")
PAGE = "BEGIN.md"
MOST_GPUS = 8
DOUBTED = "in doubt"
NO_RECORD = "no record"
HEAD = """# Where to begin

What to turn on, and in which order: measure after each, and stop where it is fast enough or fits.
A figure is baseline time / time with it, of a whole training step, with its 95 % interval, from a
committed record; ▲ faster, ▼ slower. Settings added up were measured together; all below them each
alone, and these do not multiply. Where nothing that was measured may lead yet, the reason and the
command that measures it stand there
([what leads](../scripts/gpulift/METHOD.md#what-leads), [known errors](ERRATA.md)).
"""


@dataclass(frozen=True)
class Thing:
    """What can be turned on, and the technique that measures it, or which of its arms."""

    words: str
    technique: str
    arms: tuple[str, ...] = ()

    def has(self, arm: str) -> bool:
        """Whether the arm measures it."""
        return not self.arms or arm in self.arms


@dataclass(frozen=True)
class Situation:
    """Who asks: on one GPU or on several, with a model that fits or not."""

    title: str
    order: str
    several: bool
    saves: bool  # memory is what is asked for
    things: tuple[Thing, ...]


BF16 = Thing("BF16 in place of FP32 or TF32", "precision/training_step", ("bf16",))
SITUATIONS = (
    Situation(
        "One GPU, and the model fits: faster",
        "the largest gain first",
        several=False,
        saves=False,
        things=(
            BF16,
            Thing("`torch.compile`", "compile/torch_compile"),
            Thing("`channels_last`, of convolutions", "layout/channels_last"),
            Thing("the optimiser fused or in a graph", "optimizer/step_share"),
            Thing("a CUDA graph of the whole step", "launch/whole_step_graph"),
            Thing("pinned batches, copied while the step works", "transfer/training_prefetch"),
            Thing("FP8 in linear layers", "precision/fp8_step"),
        ),
    ),
    Situation(
        "One GPU, and the model does not fit: smaller",
        "what costs least time first",
        several=False,
        saves=True,
        things=(
            BF16,
            Thing("the loss by a library, or in chunks", "loss/chunked_cross_entropy"),
            Thing("micro-batches, accumulated", "batch/gradient_accumulation"),
            Thing(
                "8-bit states of the optimiser",
                "job/fit",
                ("adamw_8bit_torchao", "adamw_8bit_bitsandbytes"),
            ),
            Thing("checkpoints of activations", "batch/activation_checkpointing"),
            Thing("the compiler with half its budget of memory", "job/fit", ("memory_budget",)),
            Thing("activations on the host", "job/fit", ("activation_offload",)),
            Thing("the optimiser on the host", "job/fit", ("optimizer_offload",)),
        ),
    ),
    Situation(
        "Eight GPUs, and the model fits on one: faster",
        "the largest gain first",
        several=True,
        saves=False,
        things=(
            Thing("DistributedDataParallel", "distributed/data_parallel"),
            Thing("`no_sync` between updates", "distributed/no_sync"),
            Thing("buckets that overlap", "distributed/overlap"),
            Thing("gradients in 16 bits", "distributed/gradient_compression"),
        ),
    ),
    Situation(
        "Eight GPUs, and the model does not fit on one: smaller",
        "what costs least time first",
        several=True,
        saves=True,
        things=(
            Thing("shards of states and weights (ZeRO, FSDP2)", "distributed/sharding"),
            Thing("tensor parallel", "distributed/tensor_parallel"),
            Thing("pipeline parallel", "distributed/pipeline_parallel"),
        ),
    ),
)


@dataclass(frozen=True)
class Line:
    """A thing with the rows that may lead for it, or why there is none."""

    situation: Situation
    thing: Thing
    best: tuple[Gain, ...] = ()
    why_not: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[bool, float]:
        """Smaller ones stand first: what was measured, the faster one before the slower."""
        worth = [math.log(one.least) for one in self.best]
        return not worth, -max(worth, default=0.0)

    @property
    def command(self) -> str:
        """What measures it."""
        gpus = " --gpus all" if self.situation.several else ""
        return f"./gpulift run '^{self.thing.technique}/'{gpus}"


def gains_by_technique(results: Path, known: Sequence[Erratum]) -> dict[str, list[Gain]]:
    """Of whole training steps in the committed records of all GPU models."""
    techniques = {one.technique for situation in SITUATIONS for one in situation.things}
    stems = {one.replace("/", ".") for one in techniques}
    found: dict[str, list[Gain]] = {}
    for model in MODELS:
        files = [file for file in committed_files(results, model) if stem_of(file) in stems]
        runs = cases_of(results, sorted({file.parent for file in files}), stems)
        every = records_of_models(files, [model], techniques, say)
        summaries = [as_model(one) for one in with_models([summarise(run) for run in runs], every)]
        neighbours = neighbours_at([one.run for one in summaries], say)
        doubts = doubts_of(summaries, known, read_today(results), neighbours)
        for gain in gains_of(summaries, doubts):
            if gain.model:
                found.setdefault(gain.row.technique, []).append(gain)
    return found


def ladders(results: Path, known: Sequence[Erratum]) -> list[Ladder]:
    """Of the committed records of all GPU models, those whose rungs may all lead."""
    found: list[Ladder] = []
    for model in MODELS:
        summaries = runs_of(LADDER, results, model)
        found += ladders_of(summaries, doubts_of(summaries, known, read_today(results)))
    return [one for one in found if all(rung.brings for rung in one.rungs[1:])]


def lines_of(situation: Situation, found: Mapping[str, Sequence[Gain]]) -> list[Line]:
    """Its things in the order in which to turn them on."""
    lines = (_line(situation, thing, found.get(thing.technique, ())) for thing in situation.things)
    return sorted(lines, key=lambda line: line.order)


def _line(situation: Situation, thing: Thing, found: Iterable[Gain]) -> Line:
    asked = [one for one in found if thing.has(one.row.arm) and _answers(situation, one)]
    leading = [one for one in asked if not (one.why_not or one.doubted)]
    if not leading:
        reasons = {one.why_not or DOUBTED for one in asked} or {NO_RECORD}
        told = reasons - {CONTROL} or reasons  # a baseline that was never meant to lead
        every = (*REASONS, DOUBTED, NO_RECORD)
        return Line(situation, thing, why_not=tuple(one for one in every if one in told))
    groups: dict[tuple[str, str], list[Gain]] = {}
    for one in leading:
        groups.setdefault((one.row.case.first.context.slug, one.model), []).append(one)
    best = (max(group, key=_rank) for group in groups.values())
    return Line(situation, thing, tuple(sorted(best, key=_first_models)))


def _answers(situation: Situation, one: Gain) -> bool:
    """Whether it is of so many GPUs, and where memory is asked for, takes less."""
    ranks = _ranks(one)
    if situation.several != (ranks > 1) or ranks > MOST_GPUS:
        return False
    return not situation.saves or (gains.memory_share(one.row) or 1.0) < 1 - gains.SAME_MEMORY


def _rank(one: Gain) -> tuple[int, float]:
    """Of one model's rows the one of most GPUs leads, then the fastest."""
    return _ranks(one), one.least


def _ranks(one: Gain) -> int:
    return one.row.case.arms[one.row.arm][0].ranks


def _first_models(one: Gain) -> tuple[int, str]:
    names = list(FIRST_MODELS)
    return (names.index(one.model) if one.model in names else len(names)), _gpu(one)


def _gpu(one: Gain) -> str:
    gpu = one.row.case.first.context.gpu
    return gpu.name.removeprefix("NVIDIA ") if gpu else ""


# --- The page ---


def page(found: Mapping[str, Sequence[Gain]], climbed: Sequence[Ladder] = ()) -> str:
    """The content of BEGIN.md."""
    return HEAD + "".join(
        (
            *(f"\n## {_title(one)}\n\n{_rungs(one)}" for one in climbed),
            *(f"\n## {one.title}\n\n{_table(one, lines_of(one, found))}" for one in SITUATIONS),
        )
    )


def _title(one: Ladder) -> str:
    gpu = one.case.first.context.gpu
    return f"Settings added up: {one.model} on {gpu.name.removeprefix('NVIDIA ') if gpu else ''}"


def _rungs(one: Ladder) -> str:
    head = (
        f"| with all above it | {one.item}s/s | over the one above | peak memory |\n"
        "| --- | ---: | --- | ---: |\n"
    )
    rows = (
        (rung.name, f"{rung.per_s.value:.0f}", _brings(rung), text.size(rung.memory_bytes))
        for rung in one.rungs
    )
    ids = one.case.record_ids(one.rungs[0].name)
    cited = f"\n{len(ids)} launches; the first is `{ids[0]}`.\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows) + cited


def _brings(rung: Rung) -> str:
    if rung.brings is None:
        return "–"
    return f"{text.verdict(rung.brings.speedup)[0]} {text.speedup(rung.brings.speedup)}"


def _table(situation: Situation, lines: Sequence[Line]) -> str:
    head = (
        f"| turn on ({situation.order}) | worth | bound by, and how much it rests on | record |\n"
        "| --- | --- | --- | --- |\n"
    )
    rows = (" | ".join(cells) for cells in _cells(lines))
    return head + "".join(f"| {row} |\n" for row in rows)


def _cells(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    number = 0
    for line in lines:
        if not line.best:
            why = f"not told yet: {', '.join(line.why_not)}"
            yield line.thing.words, why, "", f"`{line.command}`"
            continue
        number += 1
        yield (
            f"{number}. {line.thing.words}",
            "<br>".join(_worth(line.situation, one) for one in line.best),
            "<br>".join(one.basis for one in line.best),
            "<br>".join(f"`{one.row.record_ids[0]}`" for one in line.best),
        )


def _worth(situation: Situation, one: Gain) -> str:
    """`▲ 1.45× [1.44, 1.47], 0.53× the memory (bf16; over tf32; ResNet-50, H200)`; the memory first
    where it is what is asked for."""
    speed = f"{text.verdict(one.row.speedup)[0]} {text.speedup(one.row.speedup)}"
    parts = [one.memory, speed] if situation.saves else [speed, one.memory]
    of = f"{one.about}; over {one.row.baseline}; {FIRST_MODELS.get(one.model, one.model)}"
    return f"{', '.join(filter(None, parts))} ({of}, {_gpu(one)})"


def _made(results: Path) -> str:
    known = errata.read_errata(results / errata.FILE)
    return page(gains_by_technique(results, known), ladders(results, known))


if __name__ == "__main__":
    write_page(PAGE, _made)
