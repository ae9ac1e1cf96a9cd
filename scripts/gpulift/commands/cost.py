"""`gpulift cost`: money and joules of a million images or a billion tokens, from records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from gpulift.analysis.bounds import bound_of
from gpulift.analysis.choice import choice_of, read_cases
from gpulift.analysis.cost import (
    AMOUNTS,
    HOUR_S,
    CostRow,
    amount,
    arm_label,
    cost_rows,
    money,
    read_prices,
)
from gpulift.analysis.doubts import doubts_of
from gpulift.analysis.facts import UNKNOWN
from gpulift.analysis.standing import HOST_BOUND
from gpulift.commands import shared as commands
from gpulift.engine import machine
from gpulift.ground import terminal, text
from gpulift.ground.arguments import Filter, Json, Price, SomeResults, Wide
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate
from gpulift.verdicts.matching import selected

WORK = ("technique", "case", "arm", "of a")  # columns that say of what

Every = Annotated[bool, typer.Option("--all", help="Building blocks, too, not whole steps alone.")]


def cost(
    results: SomeResults = None,
    usd_per_hour: Price = None,
    filter: Filter = None,
    every: Every = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """USD and joules of a million images or a billion tokens of each training step, with speedups.

    Without RESULTS those of the checkout. A case counts where its records name these items.
    """
    runs = read_cases(results or [machine.all_records()])
    summaries = [commands.summary_of(run) for run in selected(runs, filter)]
    models = list(dict.fromkeys(one.run.records[0].context.slug for one in summaries))
    prices = read_prices(usd_per_hour or [], models)
    choice = choice_of(commands.results_folder())
    doubts = doubts_of(summaries, choice.errata, choice.today)
    found = [row for one in summaries for row in cost_rows(one, prices, doubts, every=every)]
    if not found:
        raise GpuliftError(
            "no record of a whole training step counts images, samples or tokens; --all asks"
            " building blocks, too"
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


def table(rows: Sequence[CostRow]) -> Table:
    """The rows of one model; money and joules are those of a million or a billion items."""
    machine = f"{rows[0].summary.run.machine} ({rows[0].model})"
    title = f"What does training cost on {machine}?"
    priced = any(row.usd for row in rows)
    numbers = ("speedup", "time", *(["USD"] if priced else []), "joules of its cards")
    made = terminal.titled(title, ("joules of its cards", "of a"), (*WORK, *numbers), numbers)
    for row in rows:
        cells = [row.case.technique, text.case_label(row.case.case_id, short=True), arm_label(row)]
        cells += [amount(row.item), _speedup(row), duration(row.time_s.value)]
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
    names = dict.fromkeys(row.model for row in rows)
    title = f"Models side by side: {what}"
    made = terminal.titled(title, columns=(*WORK, *names), numbers=names)
    for models in beside:
        first = next(iter(models.values()))
        label = text.case_label(first.case.case_id, short=True)
        made.add_row(
            first.case.technique,
            label,
            first.arm,
            amount(first.item),
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
        yield f"{UNKNOWN} joules of {text.counted(count, 'arm')}: {reason}."
    yield "Joules are of an arm's cards alone, without host and cooling; intervals are of 95 %."


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
    gain = row.gain
    if gain is None:
        return ""
    if gain.grade.withheld:
        return f"withheld: {gain.grade.withheld}"
    qualm = gain.qualm if gain.qualm != HOST_BOUND else ""  # which remarks say
    told = f"{text.speedup(gain.row.speedup)} {gain.grade.marks}"
    return "\n".join(filter(None, (told, *gain.row.remarks, qualm)))


def _on_model(row: CostRow | None, priced: bool) -> str:
    if row is None:
        return UNKNOWN
    return money(row.usd) if priced else duration(row.time_s.value)


def as_dict(row: CostRow) -> Mapping[str, Any]:
    """All of it as JSON, time, money and joules of so many `items`; no speedup that is withheld."""
    shown = row.gain if row.gain and not row.gain.grade.withheld else None
    return {
        "model": row.model,
        "run": row.summary.run.folder.name,
        "technique": row.case.technique,
        "case": row.case.case_id,
        "arm": row.arm,
        "baseline": row.baseline,
        "item": row.item,
        "gpus": row.gpus,
        "speedup": _ends(shown.row.speedup) if shown else None,
        "evidence": row.gain.words if row.gain else "",
        "bound": bound_of(row.case.measured, row.arm).shown,
        "items": AMOUNTS[row.item],
        "seconds": _ends(row.time_s),
        "usd": _ends(row.usd),
        "joules": row.joules,
        "why_no_joules": row.why_no_joules,
        "records": list(row.case.record_ids(row.arm)),
    }


def _ends(one: Estimate | None) -> Mapping[str, float | None] | None:
    return None if one is None else {"value": one.value, "low": one.low, "high": one.high}
