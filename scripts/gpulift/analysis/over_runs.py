"""The figure of a model: a median over runs, with its interval over runs.

Whatever says what something is worth on a model (`claims`, `report`, `show`, README's figures)
takes it from here. Launches of one run share card, host and day: their interval is about that run
alone, and is called one run's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpulift.analysis.choice import NOTHING_KNOWN, Choice
from gpulift.analysis.today import UNKNOWN, Today
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import TELLS_ALL, Record
from gpulift.verdicts import stats
from gpulift.verdicts.work import of_own_size, other_work

ENOUGH_RUNS = 3
SPLIT_BY_CHANCE = 0.05
UNTOLD_FILES = "files not known to be equal"  # of records below schema 1.7, that name none
UNTOLD_KERNELS = "kernels not known to be equal"  # below 1.10, that name the technique's own alone

Value = Callable[[Sequence[Record]], "Estimate | None"]  # of the launches of a run
Interval = tuple[float, float]


@dataclass(frozen=True)
class RunFigure:
    """What one run says of a case, with its own interval, and the card and host that it was on."""

    run: str
    card: str
    value: Estimate
    records: tuple[Record, ...] = field(repr=False)
    host: str = ""

    def shares(self, other: RunFigure) -> bool:
        """Whether it was on the same card or host, or both tell neither."""
        same_card, same_host = self.card == other.card, self.host == other.host
        if not (self.card or self.host):
            return same_card and same_host
        return bool((self.card and same_card) or (self.host and same_host))


@dataclass(frozen=True)
class ModelFigure:
    """What all runs of a model say of a case. Of fewer than three it is called theirs."""

    value: Estimate
    new_run: Interval | None  # holds what one more run gives, in 95 of 100 cases
    runs: tuple[RunFigure, ...]  # oldest first

    @property
    def of_model(self) -> bool:
        """Whether there are enough runs to speak of the model."""
        return len(self.runs) >= ENOUGH_RUNS

    @property
    def decides(self) -> bool:
        """Whether its interval holds more than what one launch varies by."""
        return self.of_model or any(one.value.launches > 1 for one in self.runs)

    @property
    def cards(self) -> tuple[str, ...]:
        """Short hashes of the cards that took part; none where no run tells its card."""
        return tuple(sorted({one.card for one in self.runs} - {""}))

    @property
    def records(self) -> tuple[Record, ...]:
        """All that it stands on."""
        return tuple(record for one in self.runs for record in one.records)

    def run_of(self, records: Sequence[Record]) -> RunFigure | None:
        """The run that any of these records is of; None where it took no part."""
        ids = {record.id for record in records}
        return next((run for run in self.runs if any(one.id in ids for one in run.records)), None)

    @property
    def basis(self) -> str:
        """`12 runs, 9 cards`, `two runs`, `one run`, `one launch`."""
        if not self.of_model:
            alone = "one launch" if self.value.one_launch else "one run"
            return "two runs" if len(self.runs) == 2 else alone
        hosts = len(apart(self.runs)) if all(one.host for one in self.runs) else 0
        counted = {"run": len(self.runs), "card": len(self.cards), "host": hosts}
        return ", ".join(f"{many} {of}{'s'[: many > 1]}" for of, many in counted.items() if many)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What may be in it beside what one run differs from the next by."""
        untold = ""
        if len(self.runs) > 1 and not all(record.source for record in self.records):
            untold = UNTOLD_FILES
        elif len(self.runs) > 1 and any(record.minor < TELLS_ALL for record in self.records):
            untold = UNTOLD_KERNELS
        return tuple(filter(None, (untold, split([*map(_value, self.runs)]))))

    @property
    def shown(self) -> str:
        """`5.31× [5.02, 5.61], 12 runs, 9 cards`, and what is in doubt."""
        said = text.speedup(self.value)
        return said if self.value.one_launch else ", ".join((said, self.basis, *self.doubts))


def _value(run: RunFigure) -> float:
    return run.value.value


def split(values: Sequence[float]) -> str:
    """`runs split: the first 8 at 5.18 to 5.50, the later 7 at 6.00 to 8.42`, of values by time;
    empty where chance parts runs so, at any place, in more than 5 of 100 cases."""
    count = len(values)
    cuts = range(ENOUGH_RUNS, count - ENOUGH_RUNS + 1)
    apart = [
        cut
        for cut in cuts
        if max(values[:cut]) < min(values[cut:]) or max(values[cut:]) < min(values[:cut])
    ]
    if not apart:
        return ""
    cut = max(apart, key=lambda one: math.comb(count, one))  # the least likely
    if 2 * len(cuts) / math.comb(count, cut) > SPLIT_BY_CHANCE:
        return ""
    first, later = (
        f"{text.digits(min(side))} to {text.digits(max(side))}"
        for side in (values[:cut], values[cut:])
    )
    return f"runs split: the first {cut} at {first}, the later {count - cut} at {later}"


def over_runs(runs: Sequence[RunFigure]) -> ModelFigure:
    """The figure of these runs, of which there is one at least.

    Two runs have no interval of their own kind: theirs reaches from the lowest to the highest end.
    """
    if len(runs) == 1:
        return ModelFigure(runs[0].value, None, tuple(runs))
    values = [one.value.value for one in runs]
    middle, launches = stats.middle(values), sum(one.value.launches for one in runs)
    if len(runs) < ENOUGH_RUNS:
        low = min(one.value.low or one.value.value for one in runs)
        high = max(one.value.high or one.value.value for one in runs)
        return ModelFigure(Estimate(middle, low, high, launches), None, tuple(runs))
    half = stats.run_spread([[math.log(one.value.value) for one in unit] for unit in _sample(runs)])
    low, high = _around(middle, half.of_median)
    new_run = _around(middle, half.of_new_run)
    return ModelFigure(Estimate(middle, low, high, launches), new_run, tuple(runs))


def apart(runs: Iterable[RunFigure]) -> list[list[RunFigure]]:
    """Those that share a card or a host stand together, in the order of their first."""
    units: list[list[RunFigure]] = []
    for one in runs:
        near = [unit for unit in units if any(map(one.shares, unit))]
        if not near:
            units.append([one])
            continue
        for other in near[1:]:
            near[0] += other
        near[0].append(one)
        units = [unit for unit in units if not any(unit is other for other in near[1:])]
    return units


def _sample(runs: Sequence[RunFigure]) -> list[list[RunFigure]]:
    """What shares neither card nor host where there is enough of it, else cards."""
    units = apart(runs)
    if len(units) >= stats.ENOUGH_CARDS:
        return units
    return apart([replace(one, host="") for one in runs])


def figures_of(
    records: Iterable[Record], arms: Sequence[str], value: Value, today: Today = UNKNOWN
) -> list[ModelFigure]:
    """Of the records of one case on one model: its runs of each kind of work in these arms that has
    the value, the newest first."""
    works = (_runs(group, value) for group in _by_work(records, arms, today))
    return [over_runs(runs) for runs in works if runs]


def model_figure(
    records: Iterable[Record],
    arms: Sequence[str],
    value: Value,
    choice: Choice = NOTHING_KNOWN,
    of: Sequence[Record] = (),
) -> ModelFigure | None:
    """The one of these that stands for the case (`analysis.choice`), or else that of the records
    `of`. None where no run has the value."""
    found = figures_of(records, arms, value, choice.today)
    if of:
        found = [one for one in found if one.run_of(of)]
    return max(found, key=lambda one: choice.order(one.records, arms), default=None)


def speedup_over_runs(
    records: Iterable[Record],
    arm: str,
    baseline: str,
    choice: Choice = NOTHING_KNOWN,
    of: Sequence[Record] = (),
) -> ModelFigure | None:
    """The same for baseline time / arm time."""
    return model_figure(records, (arm, baseline), speedup(arm, baseline), choice, of)


def speedup(arm: str, baseline: str) -> Value:
    """What launches say of baseline time / arm time."""

    def value(launches: Sequence[Record]) -> Estimate | None:
        pair = stats.pair_ratio(launches, arm, baseline)
        return pair.speedup if pair else None

    return value


def case_of(record: Record) -> tuple[str, str, str]:
    return (record.context.slug, record.technique, record.case_id)


def _around(middle: float, half: float) -> Interval:
    return middle * math.exp(-half), middle * math.exp(half)


def _by_work(records: Iterable[Record], arms: Sequence[str], today: Today) -> list[list[Record]]:
    """The records in which all these arms were measured, by kind of work; the newest comes first.

    The work of two is the same where the technique's files, what judges the arms, and the costs
    that they tell are; a size that a run found itself may differ.
    """
    groups: list[list[Record]] = []
    for record in sorted(records, key=lambda one: one.began_at, reverse=True):
        if record.outcome != "ok" or not all(stats.measured_arms([record], arm) for arm in arms):
            continue
        for group in groups:
            if _same_work(group[0], record, arms, today):
                group.append(record)
                break
        else:
            groups.append([record])
    return groups


def _same_work(one: Record, other: Record, arms: Sequence[str], today: Today) -> bool:
    both = (one, other)
    return today.same_text(one, other) and all(
        not other_work(arm, both) or of_own_size(arm, both) for arm in arms
    )


def _runs(records: Sequence[Record], value: Value) -> list[RunFigure]:
    """Those with a value, oldest first."""
    runs: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda one: (one.began_at, one.launch)):
        runs.setdefault(str(record.file.parent), []).append(record)
    found = ((run, launches, value(launches)) for run, launches in runs.items())
    return [
        RunFigure(run, _card(launches[0]), of_run, tuple(launches), launches[0].context.host.id)
        for run, launches, of_run in found
        if of_run is not None and 0 < of_run.value < math.inf
    ]


def _card(record: Record) -> str:
    return record.context.gpu.card if record.context.gpu else ""
