"""What techniques are worth, in the order of a reader's questions: whole training steps first, what
is faster before what saves memory and costs time, then building blocks by theme.

Each list begins with what is worth most: of steps on the models that have columns of their own. A
row is shown with its grade, whatever that is; what is gone, in doubt or has a qualm stands behind
the rest, and withheld is what an erratum calls wrong for these very arms alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from gpulift.analysis.bounds import MODEL, trained_model
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.grade import Grade, grade_of, grade_of_arms
from gpulift.analysis.standing import LADDERS, qualm
from gpulift.analysis.summary import Summary, Worth, worth_over
from gpulift.ground import text
from gpulift.ground.estimate import Estimate

# They have columns of their own.
FIRST_MODELS = {
    "llama_1b": "Llama 1B",
    "gpt2": "GPT-2",
    "resnet50": "ResNet-50",
    "vit_l16": "ViT-L/16",
}
MODELS = {**FIRST_MODELS, "llama_8b_slice": "4 layers of Llama 8B", "llama_3b": "Llama 3B"}
BF16 = "bf16"  # the arm where training begins today
NO_DIFFERENCE = "no difference shown"
FASTER, SLOWER = "faster", "slower"
UNFINISHED = "fewer launches than were planned"
SAME_MEMORY = 0.01  # a difference that is not worth a word
SAME_SPEED = 0.02  # one that a launch without an interval does not show


@dataclass(frozen=True)
class Gain:
    """A comparison, the folder of its run, how much it rests on, and what speaks against it."""

    row: Worth
    run: str
    grade: Grade
    qualm: str = ""
    doubted: bool = False

    @property
    def behind(self) -> bool:
        """Whether it stands behind others, however much it gains."""
        return bool(self.grade.gone or self.qualm or self.doubted)

    @property
    def order(self) -> tuple[bool, bool, bool, int, float]:
        """Smaller ones stand first: what is there today, then what nothing speaks against, then
        what rests on most launches, then what surely gains most."""
        grade = self.grade
        return bool(grade.gone), bool(self.qualm), self.doubted, -grade.level, -self.least

    @property
    def least(self) -> float:
        """The low end of the interval: a gain that is not certain counts for little."""
        return self.row.speedup.low or self.row.speedup.value

    @property
    def model(self) -> str:
        """The one whose step it is."""
        return trained_model(self.row.case.first)

    @property
    def place(self) -> int:
        """Of the model among those that have columns."""
        names = list(FIRST_MODELS)
        return names.index(self.model) if self.model in names else len(names)

    @property
    def about(self) -> str:
        """`bf16, equal`: the arm, and the case without its model."""
        axes = self.row.case.case_id.split("/")
        rest = "/".join(axis for axis in axes if not axis.startswith(f"{MODEL}:"))
        return ", ".join(filter(None, (self.row.arm, text.case_label(rest, short=True))))

    @property
    def told(self) -> str:
        """`1.24× ●●○`, in one line of a terminal."""
        return f"{text.ratio(self.row.speedup.value)} {self.grade.marks}"

    @property
    def memory(self) -> str:
        """`0.53× the memory`; empty where it is as large, or not known."""
        return memory_ratio(self.row)

    @property
    def faster(self) -> bool:
        """Whether it shows that."""
        return leaning(self.row.speedup) == FASTER

    @property
    def saves(self) -> bool:
        """Whether it takes less memory, and is not faster."""
        share = memory_share(self.row)
        return not self.faster and share is not None and share < 1 - SAME_MEMORY

    @property
    def words(self) -> str:
        """`3 launches, one run, one card; today's; bound by device`, and what speaks against it."""
        parts = (self.grade.words, self.row.clocks, self.qualm, self.unfinished)
        return "; ".join(filter(None, parts))

    @property
    def unfinished(self) -> str:
        """Whether launches of its case are missing, in words."""
        return UNFINISHED if self.row.case.lacks_launches else ""


@dataclass(frozen=True)
class StepLine:
    """A technique in whole training steps: its largest gain on each model that has a column, and
    the largest on any other; or where `saves`, its largest savings of memory."""

    technique: str
    anchor: str
    first: tuple[Gain | None, ...]
    other: Gain | None
    others: int  # how many other models there are
    saves: bool = False

    @property
    def gains(self) -> list[Gain]:
        """Those that are there."""
        return [one for one in (*self.first, self.other) if one]

    @property
    def leading(self) -> Gain:
        """The one that speaks for the technique: of the first model that has one."""
        return min(self.gains, key=lambda one: one.behind)

    @property
    def drawn(self) -> list[Gain]:
        """What a figure has of it: the models that have columns, without what stands behind or
        shows no effect, or where nothing is left all that there is."""
        first = [one for one in self.first if one]
        sure = [one for one in first if not one.behind and _shows_effect([one.row])]
        return sure or first or self.gains

    @property
    def baselines(self) -> str:
        """What the gains are held against."""
        return ", ".join(dict.fromkeys(one.row.baseline for one in self.gains))

    @property
    def matters(self) -> bool:
        """Whether any effect is shown."""
        return _shows_effect(one.row for one in self.gains)

    @property
    def behind(self) -> bool:
        """Whether all of its gains are."""
        return all(one.behind for one in self.gains)

    @property
    def order(self) -> tuple[int, float]:
        """Smaller ones stand first."""
        first = [one for one in self.first if one]
        kinds = (
            [one for one in first if not one.behind],
            [one for one in self.gains if not one.behind],
            first or self.gains,
        )
        place = next(place for place, found in enumerate(kinds) if found)
        return place, -fmean(map(self._worth, kinds[place]))

    def _worth(self, one: Gain) -> float:
        return math.log(1 / (memory_share(one.row) or 1.0) if self.saves else one.least)


@dataclass(frozen=True)
class StepLists:
    """Techniques in whole training steps, each in one of the lists."""

    faster: tuple[StepLine, ...] = ()
    savers: tuple[StepLine, ...] = ()  # of memory, which cost time
    rest: tuple[StepLine, ...] = ()  # that show no effect, or cost time and save nothing

    @property
    def every(self) -> tuple[StepLine, ...]:
        """In the order of a first screen."""
        return self.faster + self.savers + self.rest


@dataclass(frozen=True)
class AnswerLine:
    """A building block: the gain that speaks for it, and where it gains least."""

    technique: str
    anchor: str
    leading: Gain
    least: Gain | None

    @property
    def best(self) -> Worth:
        """The comparison that speaks for it."""
        return self.leading.row

    @property
    def worst(self) -> Worth | None:
        """Where it gains least; None where there is no other."""
        return self.least.row if self.least else None

    @property
    def ends(self) -> list[Worth]:
        """Its largest and its least gain; one where there is no other."""
        return [one for one in (self.best, self.worst) if one]

    @property
    def matters(self) -> bool:
        """Whether any effect is shown in the two."""
        return _shows_effect(self.ends)

    @property
    def behind(self) -> bool:
        """Whether nothing of it stands in front."""
        return self.leading.behind

    @property
    def order(self) -> tuple[bool, float, str]:
        """Smaller ones stand first."""
        return self.behind, -self.leading.least, self.technique


@dataclass(frozen=True)
class Theme:
    """Building blocks whose ids begin alike."""

    name: str
    lines: tuple[AnswerLine, ...]


def gains_of(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> Iterator[Gain]:
    """All comparisons of a machine's runs, those that are withheld, too.

    One is taken from the first run that has it: of many runs of a case, the extremes would be those
    of noise. Rungs of a ladder are over BF16, where training begins, and not over FP32.
    """
    owner: dict[tuple[str, str, str], Summary] = {}
    for one in summaries:
        for row in one.worths:
            if owner.setdefault(row.key, one) is one and (shown := _over_bf16(row)):
                yield gain_of(shown, doubts, one.run.folder.name)


def gain_of(row: Worth, doubts: Doubts, run: str = "") -> Gain:
    """The comparison with its grade, and what speaks against it; without the name of its run's
    folder that of its first record's."""
    folder = run or row.case.first.file.parent.name
    return Gain(row, folder, _grade(row, doubts), qualm(row), doubts.doubted(row))


def _grade(row: Worth, doubts: Doubts) -> Grade:
    """Of an arm over another than the baseline, too, where it is nothing that the baseline is
    another today."""
    over = row.case.first.arm(row.baseline)
    if over is not None and over.role == "baseline":
        return grade_of(row, doubts)
    graded = grade_of_arms(row.case.measured, (row.arm, row.baseline), doubts)
    return replace(graded, bound=row.bound)


def _over_bf16(row: Worth) -> Worth | None:
    """Of a ladder that has BF16 the rung over that, and none of the lesser ones."""
    names = [arm.name for arm in row.case.first.arms]
    if row.technique not in LADDERS or BF16 not in names or row.baseline == BF16:
        return row
    above = names.index(row.arm) > names.index(BF16)
    return worth_over(row.case, row.arm, BF16) if above else None


def without_withheld(summary: Summary, doubts: Doubts) -> Summary:
    """The run without the comparisons that errata withhold."""
    kept = (
        row
        for row in summary.worths
        if not doubts.withheld(row.case.measured, (row.arm, row.baseline))
    )
    return replace(summary, worths=tuple(kept))


def leading(gains: Iterable[Gain]) -> dict[str, Gain]:
    """By technique the one figure that speaks for it wherever a page or a terminal has room for
    one: of whole steps on the first model that has one, of a ladder all that it adds up."""
    found = list(gains)
    anchors = dict.fromkeys((one.row.technique for one in found), "")
    steps, blocks = step_lists(found, anchors).every, themes(found, anchors)
    lines: list[StepLine | AnswerLine] = [*steps]
    lines += [line for theme in blocks for line in theme.lines]
    ladders: dict[str, list[Gain]] = {}
    for one in found:
        if one.row.technique in LADDERS:
            ladders.setdefault(one.row.technique, []).append(one)
    tops = {
        id: max(rungs, key=lambda one: (-one.place, one.least)) for id, rungs in ladders.items()
    }
    return {line.technique: line.leading for line in lines} | tops


def headline(summary: Summary, doubts: Doubts = NO_DOUBTS) -> list[Worth]:
    """For each technique the comparison that gains most and the one that gains least: of what
    stands behind only where there is nothing else, and of nothing that is withheld."""
    chosen: list[Worth] = []
    for technique in dict.fromkeys(row.technique for row in summary.worths):
        each = [gain_of(row, doubts) for row in summary.worths_of(technique)]
        every = [one for one in each if not one.grade.withheld]
        rows = [one.row for one in every if not one.behind] or [one.row for one in every]
        chosen += rows if len(rows) < 2 else [rows[0], rows[-1]]
    return chosen


def ordered(rows: Iterable[Worth], doubts: Doubts = NO_DOUBTS) -> list[Worth]:
    """The rows by technique in the order of a first screen: whole training steps, then building
    blocks. Of a technique the largest gain is first; what is in doubt or has a qualm stands behind,
    and what is withheld is left out."""
    every = (gain_of(row, doubts) for row in rows)
    found = [one for one in every if not one.grade.withheld]
    anchors = {one.row.technique: "" for one in found}
    steps = (line.technique for line in step_lists(found, anchors).every)
    blocks = (line.technique for theme in themes(found, anchors) for line in theme.lines)
    ids = dict.fromkeys((*steps, *blocks, *anchors))
    place = {id: number for number, id in enumerate(ids)}

    def order(one: Gain) -> tuple[int, bool, float]:
        return place[one.row.technique], one.behind, -one.row.speedup.value

    return [one.row for one in sorted(found, key=order)]


def leaning(speedup: Estimate) -> str:
    """Which side of 1 the whole interval is on; of a value without one, which side it is on if it
    is further away than a launch differs by."""
    if speedup.low is not None and speedup.high is not None:
        return text.verdict(speedup)[1]
    if abs(math.log(speedup.value)) <= SAME_SPEED:
        return NO_DIFFERENCE
    return FASTER if speedup.value > 1 else SLOWER


def basis(row: Worth) -> str:
    """`bound by device; 3 launches, one run, one card`, and of arms at other clocks theirs."""
    return "; ".join(filter(None, (f"bound by {row.bound}", row.clocks, rests_on(row))))


def rests_on(row: Worth) -> str:
    """`36 launches, 12 runs, 9 cards`; `3 launches, one card` of one run, without a GPU no card."""
    figure, launches = row.of_model, row.speedup.launches
    whole = figure is not None and figure.value.launches == launches
    records = figure.records if figure and whole else row.case.measured
    cards = {one.context.gpu.card for one in records if one.context.gpu}
    counts = {"run": len({one.file.parent for one in records}), "card": len(cards)}
    said = [f"{many} {of}s" if many > 1 else f"one {of}" for of, many in counts.items() if many]
    doubts = figure.doubts if figure and whole else ()
    return ", ".join([f"{launches} launches" if launches > 1 else "one launch", *said, *doubts])


def memory_ratio(row: Worth) -> str:
    """`0.53× the memory`: the arm's peak over its baseline's on the device; empty where it is as
    large, or one is not known."""
    share = memory_share(row)
    if share is None or abs(share - 1) < SAME_MEMORY:
        return ""
    return f"{text.ratio(share)} the memory"


def memory_share(row: Worth) -> float | None:
    """The arm's peak on the device over its baseline's; None where one is not known."""
    mine, theirs = row.facts.device_bytes, row.baseline_facts.device_bytes
    return mine / theirs if mine and theirs else None


def step_lists(gains: Iterable[Gain], anchors: Mapping[str, str]) -> StepLists:
    """A line for each technique that was measured in whole training steps, in the list that answers
    why it would be turned on. Ladders, which add settings up, have a section of their own."""
    found: dict[str, list[Gain]] = {}
    for one in gains:
        if one.model and one.row.technique not in LADDERS:
            found.setdefault(one.row.technique, []).append(one)
    lists: dict[str, list[StepLine]] = {"faster": [], "savers": [], "rest": []}
    for id, members in found.items():
        line = _step_line(id, anchors[id], members)
        saving = [one for one in members if one.saves]
        if any(one.faster for one in line.gains):
            lists["faster"].append(line)
        elif saving:
            lists["savers"].append(_step_line(id, anchors[id], saving, saves=True))
        else:
            lists["rest"].append(line)
    return StepLists(
        **{name: tuple(sorted(lines, key=lambda line: line.order)) for name, lines in lists.items()}
    )


def _step_line(id: str, anchor: str, gains: Sequence[Gain], saves: bool = False) -> StepLine:
    def order(one: Gain) -> tuple[object, ...]:
        *evidence, worth = one.order
        return (*evidence, memory_share(one.row) if saves else worth)

    models: dict[str, list[Gain]] = {}
    for one in gains:
        models.setdefault(one.model, []).append(one)
    best = {model: min(found, key=order) for model, found in models.items()}
    others = [one for model, one in best.items() if model not in FIRST_MODELS]
    return StepLine(
        technique=id,
        anchor=anchor,
        first=tuple(best.get(model) for model in FIRST_MODELS),
        other=min(others, key=order, default=None),
        others=len(others),
        saves=saves,
    )


def themes(gains: Iterable[Gain], anchors: Mapping[str, str]) -> list[Theme]:
    """The building blocks by theme, the largest gain first."""
    found: dict[str, list[Gain]] = {}
    for one in gains:
        if not one.model:
            found.setdefault(one.row.technique, []).append(one)
    groups: dict[str, list[AnswerLine]] = {}
    for id, members in found.items():
        groups.setdefault(id.partition("/")[0], []).append(_line(id, anchors[id], members))
    made = [
        Theme(name, tuple(sorted(lines, key=lambda line: line.order)))
        for name, lines in groups.items()
    ]
    return sorted(made, key=lambda theme: theme.lines[0].order)


def _line(id: str, anchor: str, gains: Sequence[Gain]) -> AnswerLine:
    """Its ends, of what does not stand behind where there is any."""
    sure = [one for one in gains if not one.behind] or gains
    leading = min(sure, key=lambda one: one.order)
    others = [one for one in sure if one is not leading]
    least = min(others, key=lambda one: one.row.speedup.value, default=None)
    return AnswerLine(id, anchor, leading, least)


def in_order(steps: Sequence[StepLine], blocks: Sequence[AnswerLine]) -> Iterator[Worth]:
    """What a figure of the first screen has, from the top down; of a block both ends."""
    for line in steps:
        yield from (one.row for one in line.drawn)
    for block in blocks:
        yield from block.ends


def _shows_effect(rows: Iterable[Worth]) -> bool:
    return any(leaning(row.speedup) != NO_DIFFERENCE for row in rows)
