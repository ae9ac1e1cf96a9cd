"""GPU models side by side in their main facts: a training step of a language model, products,
memory, links, and what a billion tokens cost.

Each is the figure of a model over all known runs of it (`over_runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpulift.analysis import cost as costing
from gpulift.analysis.bounds import HOST, bound_of, trained_model
from gpulift.analysis.choice import NOTHING_KNOWN, Choice
from gpulift.analysis.cost import Prices
from gpulift.analysis.machine.training import TECHNIQUES as STEPS
from gpulift.analysis.over_runs import ModelFigure, RunFigure, model_figure, over_runs
from gpulift.analysis.summary import Summary, summarise
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm, Cost, Record
from gpulift.records.read import Run
from gpulift.verdicts import stats
from gpulift.verdicts.cases import TECHNIQUE, Case

TEXTS = {"llama_1b": "Llama 1B", "gpt2": "GPT-2", "gpt2_large": "GPT-2 large"}
INFERENCE = "inference"
ROOFS = (
    ("gemm/bf16", "burst", "BF16 products, burst"),
    ("gemm/bf16", "sustained", "BF16 products, sustained"),
    ("gemm/fp8", "burst", "FP8 products, burst"),
    ("device_memory", "burst", "memory"),
    ("host_link/h2d", "burst", "link from the host"),
    ("gpu_link", "burst", "link to another GPU"),
)
USD = "USD"

K = TypeVar("K")
V = TypeVar("V")
Key = tuple[str, str, str]  # technique, case and arm; of a roof its name, regime and unit
ByModel = Mapping[str, Sequence[Record]]


@dataclass(frozen=True)
class Fact:
    """A quantity on each model, None where it was not measured, and what it is of."""

    name: str
    about: str
    unit: str  # `tokens/s`, `FLOP/s`, `B/s` or `USD`; empty for a speedup over the baseline
    cells: tuple[ModelFigure | None, ...]
    differs: str = ""  # why the work may not be the same on all
    arm: str = ""
    baseline: str = ""
    same_work: bool = True

    @property
    def change(self) -> float | None:
        """The largest value over the smallest; None where fewer than two can be compared."""
        values = [cell.value.value for cell in self.cells if cell]
        return max(values) / min(values) if len(values) > 1 and self.same_work else None


def per_model(models: Sequence[Iterable[tuple[K, V]]]) -> dict[K, tuple[list[V], ...]]:
    """What each model has, given one after the other, by what it is of."""
    rows: dict[K, tuple[list[V], ...]] = {}
    for at, of_model in enumerate(models):
        for key, value in of_model:
            rows.setdefault(key, tuple([] for _ in models))[at].append(value)
    return rows


def figures(runs: Iterable[Sequence[RunFigure]]) -> tuple[ModelFigure | None, ...]:
    """Of the runs of each model; None of a model without any."""
    return tuple(over_runs(each) if each else None for each in runs)


@dataclass(frozen=True)
class SideBySide:
    """The names of two GPU models or more, and facts that two of them have at least."""

    models: tuple[str, ...]
    facts: tuple[Fact, ...]
    priced: bool

    @property
    def step(self) -> bool:
        """Whether a training step of a language model is among them."""
        return any(fact.unit == "tokens/s" for fact in self.facts)


def side_by_side(
    summaries: Iterable[Summary],
    further: Iterable[Record] = (),
    prices: Prices | None = None,
    choice: Choice = NOTHING_KNOWN,
) -> SideBySide | None:
    """None where no two GPU models have a fact in common."""
    names: dict[str, str] = {}
    records: dict[str, dict[str, Record]] = {}
    for one in summaries:
        context = one.run.records[0].context
        if context.gpu is not None:
            names.setdefault(context.slug, one.run.machine)
            of_model = records.setdefault(context.slug, {})
            of_model.update((record.id, record) for record in one.run.records)
    for record in further:  # with all of its arms
        if record.context.slug in records:
            records[record.context.slug][record.id] = record
    if len(names) < 2:
        return None
    by_model = {
        slug: [
            one
            for one in of_model.values()
            if one.kind == TECHNIQUE and one.outcome == "ok" and not choice.today.gone(one)
        ]
        for slug, of_model in records.items()
    }
    every = (*_steps(by_model, prices, choice), *_roofs(by_model))
    facts = [fact for fact in every if fact.change is not None]
    shown = [at for at in range(len(names)) if any(fact.cells[at] for fact in facts)]
    if not facts:
        return None
    kept = (replace(one, cells=tuple(one.cells[at] for at in shown)) for one in facts)
    titles = list(names.values())
    priced = any(fact.unit == USD for fact in facts)
    return SideBySide(tuple(titles[at] for at in shown), tuple(kept), priced)


# --- A training step ---


@dataclass(frozen=True)
class _Step:
    """An arm of one GPU in one case, on each model."""

    key: Key
    records: tuple[Sequence[Record], ...]
    choice: Choice

    def cells(self, of: Callable[[Case, Arm], Estimate | None]) -> tuple[ModelFigure | None, ...]:
        """A figure of each model that has it."""
        arm = self.key[-1]
        return tuple(
            _figure(records, arm, of, self.choice) if records else None for records in self.records
        )

    @property
    def told(self) -> list[Record]:
        """The newest record of each model's figure."""
        cells = self.cells(_tokens_per_s)
        return [max(one.records, key=lambda record: record.began_at) for one in cells if one]

    @property
    def works(self) -> set[Cost | None]:
        """What a step costs on each."""
        arms = (record.arm(self.key[-1]) for record in self.told)
        return {arm.cost for arm in arms if arm}

    @property
    def differs(self) -> str:
        """Why the work may not be the same on all."""
        same = all(self.choice.today.same_text(self.told[0], one) for one in self.told[1:])
        return "" if same else "different benchmark versions"

    @property
    def rank(self) -> tuple[bool, bool, int, bool, float, Key]:
        """Larger for what tells most: of the same files, bound by the device, the step that
        `qualify` measures first, of two launches or more, the fastest."""
        arm, having = self.key[-1], [one for one in self.records if one]
        waits = any(bound_of(records, arm).kind == HOST for records in having)
        rates = [one.value for one in self.cells(_tokens_per_s) if one]
        sure = not any(rate.one_launch for rate in rates)
        slowest = min(rate.value for rate in rates)
        place = STEPS[::-1].index(self.key[0]) if self.key[0] in STEPS else -1
        return not self.differs, not waits, place, sure, slowest, self.key


def _steps(by_model: ByModel, prices: Prices | None, choice: Choice) -> Iterator[Fact]:
    """Of each language model the step that most GPUs have in common, and what its tokens cost."""
    for model, name in TEXTS.items():
        step = _common([_by_key(records, model) for records in by_model.values()], choice)
        if step is None:
            continue
        technique, case_id, arm = step.key
        case = text.case_label(case_id, short=True)
        about = f"{technique}, {arm}, {case}"
        tokens, differs = step.cells(_tokens_per_s), step.differs
        yield Fact(f"{name}, a training step", about, "tokens/s", tokens, differs, arm)
        if prices:

            def usd(case: Case, arm: Arm, prices: Prices = prices) -> Estimate | None:
                return costing.usd_of(case, arm, prices)

            yield Fact(f"{name}, a billion tokens", about, USD, step.cells(usd), differs, arm)


def _common(found: Sequence[Mapping[Key, Sequence[Record]]], choice: Choice) -> _Step | None:
    """Of the steps that most models have, at least two, as the same amount of work the one to
    show."""
    keys = dict.fromkeys(key for of_model in found for key in of_model)
    steps = [_Step(key, tuple(of_model.get(key, ()) for of_model in found), choice) for key in keys]
    alike = [one for one in steps if len(one.works) == 1]
    counts = {one.key: sum(map(bool, one.records)) for one in alike}
    most = max(counts.values(), default=0)
    if most < 2:
        return None
    return max((one for one in alike if counts[one.key] == most), key=lambda one: one.rank)


def _by_key(records: Iterable[Record], model: str) -> dict[Key, list[Record]]:
    """Of arms of one GPU, by what they are."""
    found: dict[Key, list[Record]] = {}
    for record in records:
        if trained_model(record) != model or INFERENCE in map(str, record.case.values()):
            continue
        for arm in record.arms:
            tokens = arm.cost is not None and arm.cost.item == "token" and arm.cost.items > 0
            alone = arm.outcome == "ok" and arm.ranks == 1 and not record.is_control(arm.name)
            if tokens and alone:
                found.setdefault((record.technique, record.case_id, arm.name), []).append(record)
    return found


def _figure(
    records: Sequence[Record],
    name: str,
    of: Callable[[Case, Arm], Estimate | None],
    choice: Choice,
) -> ModelFigure | None:
    def value(launches: Sequence[Record]) -> Estimate | None:
        case = Case("", "", tuple(launches))
        arm = case.first.arm(name)
        return of(case, arm) if arm else None

    return model_figure(records, (name,), value, choice)


def _tokens_per_s(case: Case, arm: Arm) -> Estimate | None:
    launches = case.arms.get(arm.name)
    return stats.rate_over(launches, stats.items) if launches else None


# --- Roofs ---


def _roofs(by_model: ByModel) -> Iterator[Fact]:
    rows = per_model([_rates(records) for records in by_model.values()])
    for name, regime, title in ROOFS:
        for (roof, of, unit), runs in rows.items():
            if (roof, of) == (name, regime):
                yield Fact(title, name, unit, figures(runs))


def _rates(records: Iterable[Record]) -> Iterator[tuple[Key, RunFigure]]:
    """What each run reached of each roof, oldest first."""
    runs: dict[Path, list[Record]] = {}
    for record in sorted(records, key=lambda one: one.began_at):
        if record.ceiling:
            runs.setdefault(record.file.parent, []).append(record)
    for folder, of_run in runs.items():
        yield from rates(summarise(Run(folder, tuple(of_run))))


def rates(summary: Summary) -> Iterator[tuple[Key, RunFigure]]:
    """What a run reached of each roof."""
    for roof in summary.roofs:
        figure = run_figure(summary, roof.rate, roof.case.measured)
        yield (roof.name, roof.regime, roof.unit), figure


def run_figure(summary: Summary, value: Estimate, records: tuple[Record, ...]) -> RunFigure:
    """What a run says, with its card and host."""
    context = summary.run.records[0].context
    card = context.gpu.card if context.gpu else ""
    return RunFigure(str(summary.run.folder), card, value, records, context.host.id)
