"""Money and joules of a million images or samples, and of a billion tokens, from records.

A price is what the user gives: of an hour of one GPU with its share of the host, or of a machine
without a GPU. An arm of several ranks on as many GPUs costs as many times that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpulift.analysis import arms
from gpulift.analysis.bounds import trained_model
from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.facts import UNKNOWN, facts
from gpulift.analysis.gains import FIRST_MODELS, Gain, gain_of
from gpulift.analysis.summary import Summary, Worth
from gpulift.ground import text
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate
from gpulift.records.find import require_model
from gpulift.records.model import Arm, Record
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

MILLION, BILLION = 1e6, 1e9
# What a training step works through, and of how many it is told what they cost; a copy or a call of
# a collective costs nobody a million.
AMOUNTS = {"image": MILLION, "sample": MILLION, "token": BILLION}
HOUR_S = 3600.0
CENT = 0.01
NO_CARD = "no GPU: joules are read from a card's counter"
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
    """What a million or a billion items cost with one arm of one case on one machine."""

    summary: Summary
    case: Case
    arm: str
    baseline: bool
    item: str
    gpus: int
    gain: Gain | None  # over the case's baseline, of which it is None
    time_s: Estimate  # of all of them
    usd: Estimate | None  # None without a price
    joules: float | None  # of all its cards
    why_no_joules: str

    @property
    def front(self) -> bool:
        """Whether nothing speaks against its speedup."""
        return self.gain is not None and not (self.gain.behind or self.gain.grade.withheld)

    @property
    def model(self) -> str:
        """The machine's slug."""
        return self.case.first.context.slug

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The same for the same work on another machine."""
        return (self.case.technique, self.case.case_id, self.arm, self.item)


def read_prices(given: Sequence[str], models: Sequence[str]) -> Prices:
    """The prices of `--usd-per-hour`; raises GpuliftError for what is none, or of no model."""
    every: float | None = None
    by_model: dict[str, float] = {}
    for one in given:
        name, named, price = one.rpartition("=")
        if named:
            model = require_model(name, models, "--usd-per-hour: there are no records")
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


def cost_rows(
    summary: Summary, prices: Prices, doubts: Doubts = NO_DOUBTS, *, every: bool = False
) -> Iterator[CostRow]:
    """Each arm of each whole training step, or of `every` case whose records count items, by what
    is trained; cases stand last in which something speaks against each speedup."""
    worths = {row.key: row for row in summary.worths}
    cases: list[list[CostRow]] = []
    for case in summary.cases:
        if trained_model(case.first) or (every and not arms.is_ceiling(case.first)):
            keys = ((case.technique, case.case_id, arm.name) for arm in case.first.arms)
            both = zip(case.first.arms, map(worths.get, keys), strict=True)
            found = (_row(summary, case, arm, worth, prices, doubts) for arm, worth in both)
            cases.append([row for row in found if row is not None])
    for rows in sorted(filter(None, cases), key=_place):
        yield from rows


def _place(rows: Sequence[CostRow]) -> tuple[bool, int, str, str]:
    names, case = list(FIRST_MODELS), rows[0].case
    model = trained_model(case.first)
    place = names.index(model) if model in names else len(names)
    return not any(row.front for row in rows), place, model, case.technique


def _row(
    summary: Summary, case: Case, arm: Arm, worth: Worth | None, prices: Prices, doubts: Doubts
) -> CostRow | None:
    time_s = amount_s(case, arm)
    if time_s is None or arm.cost is None:
        return None
    gpus = gpus_of(case, arm)
    joules = joules_of(case, arm)
    return CostRow(
        summary=summary,
        case=case,
        arm=arm.name,
        baseline=arm.role == "baseline",
        item=arm.cost.item,
        gpus=gpus,
        gain=gain_of(worth, doubts) if worth else None,
        time_s=time_s,
        usd=usd_of(case, arm, prices),
        joules=joules,
        why_no_joules="" if joules is not None else _why_no_joules(case, arm),
    )


def amount_s(case: Case, arm: Arm) -> Estimate | None:
    """Seconds of a million or a billion items; None of an arm that counts none, or was not
    measured."""
    if arm.cost is None or arm.cost.item not in AMOUNTS or arm.name not in case.arms:
        return None
    rate = stats.rate_over(case.arms[arm.name], stats.items)
    return rate and rate.inverse().scaled(AMOUNTS[arm.cost.item])


def amount(item: str) -> str:
    """`billion tokens`, `million images`."""
    return f"{'billion' if AMOUNTS.get(item) == BILLION else 'million'} {item}s"


def usd_of(case: Case, arm: Arm, prices: Prices) -> Estimate | None:
    """USD of a million or a billion items; None without a price, too."""
    time_s, price = amount_s(case, arm), prices.of(case.first.context.slug)
    if time_s is None or price is None:
        return None
    return time_s.scaled(price * gpus_of(case, arm) / HOUR_S)


def joules_of(case: Case, arm: Arm) -> float | None:
    """Of the cards, of a million or a billion items; None of an arm that counts none, and where
    not known."""
    joules = facts(case, arm.name).item_joules
    return joules and joules * AMOUNTS.get(arm.cost.item if arm.cost else "", MILLION)


def of_comparison(row: Worth, prices: Prices) -> tuple[str, ...]:
    """For a report: of the arm and of its baseline, and of how many of what."""
    arms_of = [row.case.first.arm(name) for name in (row.arm, row.baseline)]
    found = [(one, usd_of(row.case, one, prices)) for one in arms_of if one is not None]
    if all(usd is None for _, usd in found):
        return (UNKNOWN,)
    items = dict.fromkeys(one.cost.item for one, usd in found if one.cost and usd)
    told = ", ".join(map(amount, items))
    return " / ".join(_plain(usd) for _, usd in found), f"per {told}"


def of_records(records: Sequence[Record], arm: str, prices: Prices) -> str:
    """For models side by side: `120 USD per billion tokens`; empty where it is not known."""
    case = Case("", "", tuple(records))
    one = case.first.arm(arm)
    usd = None if one is None else usd_of(case, one, prices)
    if usd is None or not one or not one.cost:
        return ""
    return f"{_usd(usd.value)} USD per {amount(one.cost.item)}"


def _plain(usd: Estimate | None) -> str:
    return UNKNOWN if usd is None else _usd(usd.value)


def gpus_of(case: Case, arm: Arm) -> int:
    """How many GPUs the arm pays for: one for each of its ranks where the case had several."""
    return max(1, min(arm.ranks, len(case.first.context.gpus)))


def _why_no_joules(case: Case, arm: Arm) -> str:
    if case.first.context.gpu is None:
        return NO_CARD
    return arms.IDLE_GPUS if stats.beside_idle_gpus(case.first, arm) else UNRESOLVED


# --- What is shown ---


def arm_label(row: CostRow) -> str:
    """The arm, whether it is what the others are held against, and of how many GPUs."""
    marks = ["baseline"] * row.baseline + [f"{row.gpus} GPUs"] * (row.gpus > 1)
    return f"{row.arm} ({', '.join(marks)})" if marks else row.arm


def money(usd: Estimate | None) -> str:
    """`0.123 [0.121, 0.125]`, in USD; below a cent what it is below."""
    if usd is None:
        return UNKNOWN
    ends = [_usd(end) for end in (usd.low, usd.high) if end is not None]
    return f"{_usd(usd.value)} [{', '.join(ends)}]" if ends else _usd(usd.value)


def _usd(value: float) -> str:
    return f"<{CENT}" if value < CENT else text.digits(value)
