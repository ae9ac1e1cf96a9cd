"""`gpulift cost`: money and joules of a million images, samples or tokens, from records.

A price is what the user gives: of an hour of one GPU with its share of the host, or of a machine
without a GPU. An arm of several ranks on as many GPUs costs as many times that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from gpulift import commands, terminal, text
from gpulift.analysis import arms
from gpulift.analysis.facts import UNKNOWN, facts
from gpulift.analysis.summary import Case, Summary, Worth
from gpulift.arguments import Filter, Price, SomeResults, Wide
from gpulift.commands import Json
from gpulift.compare.matching import selected
from gpulift.errors import GpuliftError
from gpulift.records.model import Arm, Record
from gpulift.records.read import read_results
from gpulift.stats import Estimate

# What a training step works through; a copy or a call of a collective costs nobody a million.
ITEMS = ("image", "sample", "token")
MILLION = 1e6
HOUR_S = 3600.0
CENT = 0.01
NO_CARD = "no GPU: joules are read from a card's counter"
SEVERAL_CARDS = "several GPUs: the counter of the first alone was read"
UNRESOLVED = "windows too short for the card's counter; sustained cases have joules"


@dataclass(frozen=True)
class Prices:
    """USD per hour that the user named: by model, and for every other one."""

    every: float | None = None
    by_model: Mapping[str, float] | None = None

    def of(self, model: str) -> float | None:
        """Of a GPU of this model, by its slug."""
        return (self.by_model or {}).get(model, self.every)


@dataclass(frozen=True)
class CostRow:
    """What a million items cost with one arm of one case on one machine."""

    summary: Summary
    case: Case
    arm: str
    baseline: bool
    item: str
    gpus: int
    speedup: Estimate | None  # against the case's baseline
    time_s: Estimate  # of a million
    usd: Estimate | None  # None without a price
    joules: float | None  # of the card
    why_no_joules: str

    @property
    def model(self) -> str:
        """The machine's slug."""
        return self.case.first.context.slug

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same for the same work on another machine."""
        return (self.case.technique, self.case.case_id, self.arm, self.item)


def cost(
    results: SomeResults = None,
    usd_per_hour: Price = None,
    filter: Filter = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """USD and joules of a million images, samples or tokens, of each arm, beside its speedup.

    Without RESULTS those of the checkout. A case counts where its records name these items.
    """
    runs = read_results(results or [commands.results_folder()], every_case=True)
    summaries = [commands.summary_of(run) for run in selected(runs, filter)]
    models = list(dict.fromkeys(one.run.records[0].context.slug for one in summaries))
    prices = read_prices(usd_per_hour or [], models)
    found = [row for one in summaries for row in cost_rows(one, prices)]
    if not found:
        raise GpuliftError(
            "no record counts images, samples or tokens; those of whole training steps do"
        )
    if as_json:
        commands.print_json([as_dict(row) for row in found])
        return
    screen = terminal.console(wide=wide)
    for model in models:
        mine = [row for row in found if row.model == model]
        if mine:
            screen.print(table(mine))
    beside = side_by_side(found)
    if beside:
        screen.print(models_table(beside))
    for line in notes(found):
        screen.print(line)


def read_prices(given: Sequence[str], models: Sequence[str]) -> Prices:
    """The prices of `--usd-per-hour`; raises GpuliftError for what is none, or of no model."""
    every: float | None = None
    by_model: dict[str, float] = {}
    for one in given:
        name, named, price = one.rpartition("=")
        if named:
            model = commands.require_model(name, models, "--usd-per-hour: there are no records")
            by_model[model] = _price(price)
        else:
            every = _price(price)
    return Prices(every, by_model)


def _price(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise GpuliftError(f"--usd-per-hour {given}: give USD an hour as a number above 0")
    return value


def cost_rows(summary: Summary, prices: Prices) -> Iterator[CostRow]:
    """Each arm of each case whose records count items, in the order of the records."""
    speedups = {row.key: row.speedup for row in summary.worths}
    for case in summary.cases:
        if not arms.is_ceiling(case.first):
            for arm in case.first.arms:
                speedup = speedups.get((case.technique, case.case_id, arm.name))
                row = _row(summary, case, arm, speedup, prices)
                if row is not None:
                    yield row


def _row(
    summary: Summary, case: Case, arm: Arm, speedup: Estimate | None, prices: Prices
) -> CostRow | None:
    time_s = million_s(case, arm)
    if time_s is None or arm.cost is None:
        return None
    gpus = gpus_of(case, arm)
    joules = None if gpus > 1 else facts(case.arms[arm.name]).joules
    return CostRow(
        summary=summary,
        case=case,
        arm=arm.name,
        baseline=arm.role == "baseline",
        item=arm.cost.item,
        gpus=gpus,
        speedup=speedup,
        time_s=time_s,
        usd=usd_of(case, arm, prices),
        joules=None if joules is None else joules * MILLION / arm.cost.items,
        why_no_joules="" if joules is not None else _why_no_joules(case, gpus),
    )


def million_s(case: Case, arm: Arm) -> Estimate | None:
    """Seconds of a million items; None of an arm that counts none, or was not measured."""
    time_s = case.times_s.get(arm.name)
    if time_s is None or arm.cost is None or arm.cost.item not in ITEMS or arm.cost.items <= 0:
        return None
    return time_s.scaled(MILLION / arm.cost.items)


def usd_of(case: Case, arm: Arm, prices: Prices) -> Estimate | None:
    """USD of a million items; None without a price, too."""
    time_s, price = million_s(case, arm), prices.of(case.first.context.slug)
    if time_s is None or price is None:
        return None
    return time_s.scaled(price * gpus_of(case, arm) / HOUR_S)


def of_comparison(row: Worth, prices: Prices) -> tuple[str, ...]:
    """For a report: of the arm and of its baseline, and of a million what."""
    arms_of = [row.case.first.arm(name) for name in (row.arm, row.baseline)]
    found = [(one, usd_of(row.case, one, prices)) for one in arms_of if one is not None]
    if all(usd is None for _, usd in found):
        return (UNKNOWN,)
    items = dict.fromkeys(one.cost.item for one, usd in found if one.cost and usd)
    return " / ".join(_plain(usd) for _, usd in found), f"per million {', '.join(items)}s"


def of_records(records: Sequence[Record], arm: str, prices: Prices) -> str:
    """For models side by side: `0.12 USD per million tokens`; empty where it is not known."""
    case = Case("", "", tuple(records))
    one = case.first.arm(arm)
    usd = None if one is None else usd_of(case, one, prices)
    return "" if usd is None or not one or not one.cost else _per_million(usd, one.cost.item)


def _per_million(usd: Estimate, item: str) -> str:
    return f"{_usd(usd.value)} USD per million {item}s"


def _plain(usd: Estimate | None) -> str:
    return UNKNOWN if usd is None else _usd(usd.value)


def gpus_of(case: Case, arm: Arm) -> int:
    """How many GPUs the arm pays for: one for each of its ranks where the case had several."""
    return max(1, min(arm.ranks, len(case.first.context.gpus)))


def _why_no_joules(case: Case, gpus: int) -> str:
    if case.first.context.gpu is None:
        return NO_CARD
    return SEVERAL_CARDS if gpus > 1 else UNRESOLVED


# --- What is shown ---


def table(rows: Sequence[CostRow]) -> Table:
    """The rows of one model; money and joules are those of a million."""
    machine = f"{rows[0].summary.run.machine} ({rows[0].model})"
    made = terminal.titled(f"What does a million cost on {machine}?", ["time", "speedup"])
    priced = any(row.usd for row in rows)
    for name in ("technique", "case", "arm", "a million"):
        made.add_column(name)
    for name in ("speedup", "time", *(["USD"] if priced else []), "joules of the card"):
        made.add_column(name, justify="right")
    for row in rows:
        cells = [row.case.technique, text.case_label(row.case.case_id, short=True), arm_label(row)]
        cells += [f"{row.item}s", _speedup(row), duration(row.time_s.value)]
        cells += [money(row.usd)] if priced else []
        made.add_row(*cells, UNKNOWN if row.joules is None else energy(row.joules))
    return made


def side_by_side(rows: Sequence[CostRow]) -> list[dict[str, CostRow]]:
    """The same work on several models: its row of each, by model; of many runs, the first."""
    found: dict[tuple[str, str, str, str], dict[str, CostRow]] = {}
    for row in rows:
        found.setdefault(row.key, {}).setdefault(row.model, row)
    return [models for models in found.values() if len(models) > 1]


def models_table(beside: Sequence[Mapping[str, CostRow]]) -> Table:
    """A column for each model: money where all have a price, else time."""
    rows = [row for models in beside for row in models.values()]
    priced = all(row.usd for row in rows)
    what = "USD" if priced else "time"
    made = terminal.titled(f"Models side by side: {what} of a million")
    names = dict.fromkeys(row.model for row in rows)
    for name in ("technique", "case", "arm", "a million"):
        made.add_column(name)
    for name in names:
        made.add_column(name, justify="right")
    for models in beside:
        first = next(iter(models.values()))
        label = text.case_label(first.case.case_id, short=True)
        made.add_row(
            first.case.technique,
            label,
            first.arm,
            f"{first.item}s",
            *(_on_model(models.get(name), priced) for name in names),
        )
    return made


def notes(rows: Sequence[CostRow]) -> Iterator[str]:
    """How the figures came about, and why some are missing; one line each."""
    if all(row.usd is None for row in rows):
        yield "No USD without a price: --usd-per-hour PRICE gives one."
    elif any(row.usd is None for row in rows):
        models = sorted({row.model for row in rows if row.usd is None})
        yield f"No USD without a price: none was given for {', '.join(models)}."
    for reason in dict.fromkeys(row.why_no_joules for row in rows if row.why_no_joules):
        count = sum(row.why_no_joules == reason for row in rows)
        yield f"{UNKNOWN} joules of {count} arm{'' if count == 1 else 's'}: {reason}."
    yield "Joules are of the card alone, without host and cooling; intervals are of 95 %."


def arm_label(row: CostRow) -> str:
    """The arm, whether it is what the others are held against, and of how many GPUs."""
    marks = ["baseline"] * row.baseline + [f"{row.gpus} GPUs"] * (row.gpus > 1)
    return f"{row.arm} ({', '.join(marks)})" if marks else row.arm


def money(usd: Estimate | None) -> str:
    """`0.123 [0.121, 0.125]`, in USD; below a cent as many digits as it takes."""
    if usd is None:
        return UNKNOWN
    ends = [_usd(end) for end in (usd.low, usd.high) if end is not None]
    return f"{_usd(usd.value)} [{', '.join(ends)}]" if ends else _usd(usd.value)


def _usd(value: float) -> str:
    return f"{value:.3g}" if value < CENT else text.digits(value)


def energy(joules: float) -> str:
    """`384 kJ`; below a kilojoule as of a step."""
    return text.rate(joules, "J") if joules >= 1e3 else text.joules(joules)


def duration(seconds: float) -> str:
    """`1.23 h`, `12.3 min`, `12.3 s`."""
    for unit_s, unit in ((HOUR_S, "h"), (60.0, "min")):
        if seconds >= unit_s:
            return f"{text.digits(seconds / unit_s)} {unit}"
    return text.seconds(seconds)


def _speedup(row: CostRow) -> str:
    return "" if row.speedup is None else text.speedup(row.speedup)


def _on_model(row: CostRow | None, priced: bool) -> str:
    if row is None:
        return UNKNOWN
    return money(row.usd) if priced else duration(row.time_s.value)


def as_dict(row: CostRow) -> Mapping[str, Any]:
    """All of it as JSON, money and joules of a million items."""
    return {
        "model": row.model,
        "run": row.summary.run.folder.name,
        "technique": row.case.technique,
        "case": row.case.case_id,
        "arm": row.arm,
        "baseline": row.baseline,
        "item": row.item,
        "gpus": row.gpus,
        "speedup": _ends(row.speedup),
        "seconds_per_million": _ends(row.time_s),
        "usd_per_million": _ends(row.usd),
        "joules_per_million": row.joules,
        "why_no_joules": row.why_no_joules,
        "records": list(row.case.record_ids(row.arm)),
    }


def _ends(one: Estimate | None) -> Mapping[str, float | None] | None:
    return None if one is None else {"value": one.value, "low": one.low, "high": one.high}
