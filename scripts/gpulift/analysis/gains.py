"""What techniques are worth, in the order of a reader's questions: whole training steps first, then
building blocks by theme.

A step's techniques are ordered by what they bring on the models that have columns of their own,
building blocks by how much was measured of them: their ratios are of unlike things. What is in
doubt stands behind the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from gpulift import text
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.summary import Summary, Worth
from gpulift.records.model import Record

MODEL = "model"  # an axis of the cases, or a note: what a step trains
STEP, EMULATED = "step", "emulated"  # a note, and how it begins where nothing was trained
FIRST_MODELS = {"gpt2": "GPT-2", "resnet50": "ResNet-50"}  # have columns of their own
NO_DIFFERENCE = "no difference shown"
NO_INTERVAL = "no interval"
SAME_MEMORY = 0.01  # a difference that is not worth a word


@dataclass(frozen=True)
class Gain:
    """A comparison, the folder of its run, and whether a table must not begin with it."""

    row: Worth
    run: str
    doubted: bool = False
    unfinished: bool = False  # the run was

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Better ones are larger: what is not in doubt, then what compares equal batches, then what
        surely gains most."""
        return not self.doubted, self.equal_work, self.least

    @property
    def equal_work(self) -> bool:
        """Whether a step of both does as much, so that nothing but the technique differs."""
        return not self.row.pair.per_item

    @property
    def least(self) -> float:
        """The low end of the interval: a gain that is not certain counts for little."""
        return self.row.speedup.low or self.row.speedup.value

    @property
    def model(self) -> str:
        """The one whose step it is."""
        return trained_model(self.row.case.first)

    @property
    def about(self) -> str:
        """`bf16, equal`: the arm, and the case without its model."""
        axes = self.row.case.case_id.split("/")
        rest = "/".join(axis for axis in axes if not axis.startswith(f"{MODEL}:"))
        return ", ".join(filter(None, (self.row.arm, text.case_label(rest, short=True))))

    @property
    def memory(self) -> str:
        """`0.53× the memory`; empty where it is as large, or not known."""
        return memory_ratio(self.row)


@dataclass(frozen=True)
class StepLine:
    """A technique in whole training steps: its largest gain on each model that has a column, and
    the largest on any other."""

    technique: str
    anchor: str
    first: tuple[Gain | None, ...]
    other: Gain | None
    others: int  # how many other models there are

    @property
    def gains(self) -> list[Gain]:
        """Those that are there."""
        return [one for one in (*self.first, self.other) if one]

    @property
    def drawn(self) -> list[Gain]:
        """What a figure has of it: the models that have columns, without what is in doubt, or where
        nothing is left all that there is."""
        sure = [one for one in self.first if one and not one.doubted]
        return sure or [one for one in self.first if one] or self.gains

    @property
    def baselines(self) -> str:
        """What the gains are held against."""
        return ", ".join(dict.fromkeys(one.row.baseline for one in self.gains))

    @property
    def matters(self) -> bool:
        """Whether any effect is shown."""
        return _shows_effect(one.row for one in self.gains)

    @property
    def doubted(self) -> bool:
        """Whether all of its gains are."""
        return all(one.doubted for one in self.gains)

    @property
    def order(self) -> tuple[int, float]:
        """Smaller ones stand first."""
        first = [one for one in self.first if one]
        kinds = (
            [one for one in first if not one.doubted and one.equal_work],
            [one for one in first if not one.doubted],
            [one for one in self.gains if not one.doubted],
            first or self.gains,
        )
        place = next(place for place, found in enumerate(kinds) if found)
        return place, -fmean(math.log(one.least) for one in kinds[place])


@dataclass(frozen=True)
class AnswerLine:
    """A building block: its largest gain, and where it gains least."""

    technique: str
    anchor: str
    best: Worth
    worst: Worth | None
    run: str  # the folder's name of the run that the largest comes from
    comparisons: int
    doubted: bool = False
    unfinished: bool = False

    @property
    def ends(self) -> list[Worth]:
        """Its largest and its least gain; one where there is no other."""
        return [self.best, self.worst] if self.worst else [self.best]

    @property
    def matters(self) -> bool:
        """Whether any effect is shown in the two."""
        return _shows_effect(self.ends)


@dataclass(frozen=True)
class Theme:
    """Building blocks whose ids begin alike."""

    name: str
    lines: tuple[AnswerLine, ...]


def gains_of(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> Iterator[Gain]:
    """All comparisons of a machine's runs, without those of controls.

    A case is taken from the first run that has it: of many runs of a case, the extremes would be
    those of noise.
    """
    owner: dict[tuple[str, str], Summary] = {}
    for one in summaries:
        for row in one.worths:
            first = owner.setdefault((row.technique, row.case.case_id), one) is one
            if first and not row.of_control:
                yield gain_of(row, one.run.folder, doubts)


def gain_of(row: Worth, folder: Path, doubts: Doubts) -> Gain:
    """The comparison of the run in this folder with what speaks against it."""
    return Gain(row, folder.name, doubts.bars(row, folder), folder in doubts.unfinished)


def ordered(rows: Iterable[Worth], doubts: Doubts = NO_DOUBTS) -> list[Worth]:
    """The rows by technique in the order of a first screen: whole training steps, then building
    blocks. Of a technique the largest gain is first; what is in doubt stands behind, and controls
    last."""
    found = [gain_of(row, row.case.first.file.parent, doubts) for row in rows]
    anchors = {one.row.technique: "" for one in found}
    own = [one for one in found if not one.row.of_control]
    steps = (line.technique for line in step_lines(own, anchors))
    blocks = (line.technique for theme in themes(own, anchors) for line in theme.lines)
    ids = dict.fromkeys((*steps, *blocks, *anchors))
    place = {id: number for number, id in enumerate(ids)}

    def order(one: Gain) -> tuple[int, bool, bool, float]:
        row = one.row
        return place[row.technique], row.of_control, one.doubted, -row.speedup.value

    return [one.row for one in sorted(found, key=order)]


def memory_ratio(row: Worth) -> str:
    """`0.53× the memory`: the arm's peak over its baseline's on the device; empty where it is as
    large, or one is not known."""
    mine, theirs = row.facts.device_bytes, row.baseline_facts.device_bytes
    if not mine or not theirs or abs(mine / theirs - 1) < SAME_MEMORY:
        return ""
    return f"{text.ratio(mine / theirs)} the memory"


def trained_model(record: Record) -> str:
    """The model of which a whole training step was measured; empty for a building block, as what
    counts the bytes that it moves is, though they may be a model's.

    `resnet50_128` is the same model with so many images.
    """
    emulated = record.notes.get(STEP, "").startswith(EMULATED)
    if emulated or any(arm.cost and arm.cost.bytes for arm in record.arms):
        return ""
    named = str(record.case.get(MODEL) or record.notes.get(MODEL, "").partition(",")[0])
    name, _, size = named.rpartition("_")
    return name if name and size.isdecimal() else named


def step_lines(gains: Iterable[Gain], anchors: Mapping[str, str]) -> list[StepLine]:
    """A line for each technique that was measured in whole training steps."""
    found: dict[str, dict[str, list[Gain]]] = {}
    for one in gains:
        if model := trained_model(one.row.case.first):
            found.setdefault(one.row.technique, {}).setdefault(model, []).append(one)
    lines = [_step_line(id, anchors[id], models) for id, models in found.items()]
    return sorted(lines, key=lambda line: line.order)


def _step_line(id: str, anchor: str, models: Mapping[str, Sequence[Gain]]) -> StepLine:
    best = {model: max(found, key=lambda one: one.rank) for model, found in models.items()}
    others = [one for model, one in best.items() if model not in FIRST_MODELS]
    return StepLine(
        technique=id,
        anchor=anchor,
        first=tuple(best.get(model) for model in FIRST_MODELS),
        other=max(others, key=lambda one: one.rank, default=None),
        others=len(others),
    )


def themes(gains: Iterable[Gain], anchors: Mapping[str, str]) -> list[Theme]:
    """The building blocks by theme, those of which most was measured first."""
    found: dict[str, list[Gain]] = {}
    for one in gains:
        if not trained_model(one.row.case.first):
            found.setdefault(one.row.technique, []).append(one)
    groups: dict[str, list[AnswerLine]] = {}
    for id, members in found.items():
        groups.setdefault(id.partition("/")[0], []).append(_line(id, anchors[id], members))
    made = [Theme(name, tuple(sorted(lines, key=_order))) for name, lines in groups.items()]
    return sorted(made, key=_theme_order)


def _line(id: str, anchor: str, gains: Sequence[Gain]) -> AnswerLine:
    """Its ends, of what is not in doubt where there is any."""
    sure = [one for one in gains if not one.doubted] or gains
    best = max(sure, key=lambda one: one.row.speedup.value)
    worst = min(sure, key=lambda one: one.row.speedup.value)
    return AnswerLine(
        technique=id,
        anchor=anchor,
        best=best.row,
        worst=worst.row if len(sure) > 1 else None,
        run=best.run,
        comparisons=len(gains),
        doubted=best.doubted,
        unfinished=best.unfinished,
    )


def _order(line: AnswerLine) -> tuple[bool, int, str]:
    return line.doubted, -line.comparisons, line.technique


def _theme_order(theme: Theme) -> tuple[bool, int, str]:
    comparisons = sum(line.comparisons for line in theme.lines)
    return all(line.doubted for line in theme.lines), -comparisons, theme.name


def in_order(steps: Sequence[StepLine], blocks: Sequence[AnswerLine]) -> Iterator[Worth]:
    """What a figure of the first screen has, from the top down; of a block both ends."""
    for line in steps:
        yield from (one.row for one in line.drawn)
    for block in blocks:
        yield from block.ends


def _shows_effect(rows: Iterable[Worth]) -> bool:
    words = {text.verdict(row.speedup)[1] for row in rows}
    return bool(words - {NO_DIFFERENCE, NO_INTERVAL})
