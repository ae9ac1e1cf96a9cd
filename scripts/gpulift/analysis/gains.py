"""What techniques are worth, in the order of a reader's questions: whole training steps first, what
is faster before what saves memory and costs time, then building blocks by theme.

Each list begins with what is worth most: of steps on the models that have columns of their own.
What is in doubt stands behind the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gpulift.analysis.bounds import MODEL, trained_model
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.standing import why_not_leading
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text

# They have columns of their own.
FIRST_MODELS = {"llama_1b": "Llama 1B", "gpt2": "GPT-2", "resnet50": "ResNet-50"}
NO_DIFFERENCE = "no difference shown"
NO_INTERVAL = "no interval"
FASTER = "faster"
SAME_MEMORY = 0.01  # a difference that is not worth a word


@dataclass(frozen=True)
class Gain:
    """A comparison, the folder of its run, and what speaks against it."""

    row: Worth
    run: str
    doubted: bool = False
    unfinished: bool = False  # launches are missing
    why_not: str = ""  # it may not lead

    @property
    def rank(self) -> tuple[bool, float]:
        """Better ones are larger: what is not in doubt, then what surely gains most."""
        return not self.doubted, self.least

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

    @property
    def faster(self) -> bool:
        """Whether the whole interval is above 1."""
        return text.verdict(self.row.speedup)[1] == FASTER

    @property
    def saves(self) -> bool:
        """Whether it takes less memory, and is not faster."""
        share = memory_share(self.row)
        return not self.faster and share is not None and share < 1 - SAME_MEMORY

    @property
    def basis(self) -> str:
        """`bound by device; 3 launches, one run, one card`."""
        return basis(self.row)


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
    def drawn(self) -> list[Gain]:
        """What a figure has of it: the models that have columns, without what is in doubt or shows
        no effect, or where nothing is left all that there is."""
        first = [one for one in self.first if one]
        sure = [one for one in first if not one.doubted and _shows_effect([one.row])]
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
    def doubted(self) -> bool:
        """Whether all of its gains are."""
        return all(one.doubted for one in self.gains)

    @property
    def order(self) -> tuple[int, float]:
        """Smaller ones stand first."""
        first = [one for one in self.first if one]
        kinds = (
            [one for one in first if not one.doubted],
            [one for one in self.gains if not one.doubted],
            first or self.gains,
        )
        place = next(place for place, found in enumerate(kinds) if found)
        return place, -fmean(map(self._worth, kinds[place]))

    def _worth(self, one: Gain) -> float:
        return math.log(1 / (memory_share(one.row) or 1.0) if self.saves else one.least)


@dataclass(frozen=True)
class StepLists:
    """Techniques in whole training steps. One may be in the first two."""

    faster: tuple[StepLine, ...] = ()
    savers: tuple[StepLine, ...] = ()  # of memory, which cost time
    rest: tuple[StepLine, ...] = ()  # that show no effect, or cost time and save nothing

    @property
    def every(self) -> tuple[StepLine, ...]:
        """In the order of a first screen."""
        return self.faster + self.savers + self.rest


@dataclass(frozen=True)
class AnswerLine:
    """A building block: its largest gain, and where it gains least."""

    technique: str
    anchor: str
    best: Worth
    worst: Worth | None
    run: str  # the folder's name of the run that the largest comes from
    doubted: bool = False
    unfinished: bool = False

    @property
    def ends(self) -> list[Worth]:
        """Its largest and its least gain; one where there is no other."""
        return [self.best, self.worst] if self.worst else [self.best]

    @property
    def basis(self) -> str:
        """As of a gain: of the largest."""
        return basis(self.best)

    @property
    def matters(self) -> bool:
        """Whether any effect is shown in the two."""
        return _shows_effect(self.ends)

    @property
    def order(self) -> tuple[bool, float, str]:
        """Smaller ones stand first."""
        return self.doubted, -(self.best.speedup.low or self.best.speedup.value), self.technique


@dataclass(frozen=True)
class Theme:
    """Building blocks whose ids begin alike."""

    name: str
    lines: tuple[AnswerLine, ...]


def gains_of(summaries: Sequence[Summary], doubts: Doubts = NO_DOUBTS) -> Iterator[Gain]:
    """All comparisons of a machine's runs, with what keeps them from leading.

    One is taken from the first run that has it: of many runs of a case, the extremes would be those
    of noise.
    """
    owner: dict[tuple[str, str, str], Summary] = {}
    for one in summaries:
        for row in one.worths:
            if owner.setdefault(row.key, one) is one:
                yield gain_of(row, doubts)


def gain_of(row: Worth, doubts: Doubts) -> Gain:
    """The comparison with what speaks against it."""
    run, unfinished = row.case.first.file.parent.name, row.case.lacks_launches
    return Gain(row, run, doubts.doubted(row), unfinished, why_not_leading(row, doubts))


def headline(summary: Summary, doubts: Doubts = NO_DOUBTS) -> list[Worth]:
    """For each technique the comparison that gains most and the one that gains least: of what may
    not lead only where there is nothing else."""
    chosen: list[Worth] = []
    for technique in dict.fromkeys(row.technique for row in summary.worths):
        every = summary.worths_of(technique)
        rows = [row for row in every if not why_not_leading(row, doubts)] or every
        chosen += rows if len(rows) < 2 else [rows[0], rows[-1]]
    return chosen


def ordered(rows: Iterable[Worth], doubts: Doubts = NO_DOUBTS) -> list[Worth]:
    """The rows by technique in the order of a first screen: whole training steps, then building
    blocks. Of a technique the largest gain is first; what is in doubt stands behind, and what may
    not lead last."""
    found = [gain_of(row, doubts) for row in rows]
    anchors = {one.row.technique: "" for one in found}
    own = [one for one in found if not one.why_not]
    steps = (line.technique for line in step_lists(own, anchors).every)
    blocks = (line.technique for theme in themes(own, anchors) for line in theme.lines)
    ids = dict.fromkeys((*steps, *blocks, *anchors))
    place = {id: number for number, id in enumerate(ids)}

    def order(one: Gain) -> tuple[int, bool, bool, float]:
        row = one.row
        return place[row.technique], bool(one.why_not), one.doubted, -row.speedup.value

    return [one.row for one in sorted(found, key=order)]


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
    why it would be turned on."""
    trained = [one for one in gains if one.model]
    lines = _step_lines(trained, anchors)
    savers = _step_lines([one for one in trained if one.saves], anchors, saves=True)
    faster = [line for line in lines if any(one.faster for one in line.gains)]
    listed = {line.technique for line in (*faster, *savers)}
    rest = (line for line in lines if line.technique not in listed)
    return StepLists(tuple(faster), tuple(savers), tuple(rest))


def _step_lines(
    gains: Iterable[Gain], anchors: Mapping[str, str], *, saves: bool = False
) -> list[StepLine]:
    found: dict[str, dict[str, list[Gain]]] = {}
    for one in gains:
        found.setdefault(one.row.technique, {}).setdefault(one.model, []).append(one)
    lines = [_step_line(id, anchors[id], models, saves) for id, models in found.items()]
    return sorted(lines, key=lambda line: line.order)


def _step_line(id: str, anchor: str, models: Mapping[str, Sequence[Gain]], saves: bool) -> StepLine:
    def rank(one: Gain) -> tuple[bool, float]:
        return (not one.doubted, -(memory_share(one.row) or 1.0)) if saves else one.rank

    best = {model: max(found, key=rank) for model, found in models.items()}
    others = [one for model, one in best.items() if model not in FIRST_MODELS]
    return StepLine(
        technique=id,
        anchor=anchor,
        first=tuple(best.get(model) for model in FIRST_MODELS),
        other=max(others, key=rank, default=None),
        others=len(others),
        saves=saves,
    )


def themes(gains: Iterable[Gain], anchors: Mapping[str, str]) -> list[Theme]:
    """The building blocks by theme, the largest gain first."""
    found: dict[str, list[Gain]] = {}
    for one in gains:
        if not trained_model(one.row.case.first):
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
        doubted=best.doubted,
        unfinished=best.unfinished,
    )


def in_order(steps: Sequence[StepLine], blocks: Sequence[AnswerLine]) -> Iterator[Worth]:
    """What a figure of the first screen has, from the top down; of a block both ends."""
    for line in steps:
        yield from (one.row for one in line.drawn)
    for block in blocks:
        yield from block.ends


def _shows_effect(rows: Iterable[Worth]) -> bool:
    words = {text.verdict(row.speedup)[1] for row in rows}
    return bool(words - {NO_DIFFERENCE, NO_INTERVAL})
