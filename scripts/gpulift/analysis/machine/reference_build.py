"""Makes the measured entries of a reference from runs on sound cards.

Per check, a card's value is the median of its launches over all runs, and the entry's value the
median of its cards' values. The tolerance, as a fraction:

- from 5 cards on, the one-sided prediction limit for one more card, for a normal distribution of
  the log values: mean -+ k s with k = t(1 - 0.05 / checks; n - 1) sqrt(1 + 1 / n) (G. J. Hahn and
  W. Q. Meeker, Statistical Intervals, Wiley 1991), where checks are all that have so many cards. So
  at most one sound machine in twenty should fail any of them. It is never below 1 %, since runs of
  one card differ too.
- with fewer, 5 % or three standard deviations of the log values of all launches and runs, whichever
  is more.

Both are rounded up to half a percent. Where that is more than 30 %, as with much that the host's
clock times, sound machines differ too much to tell a broken one: the entry informs and judges none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from gpulift.analysis.machine.measured import measured_checks
from gpulift.analysis.machine.results import Check
from gpulift.analysis.reference import SCHEMA, VARIES, Conditions, Measured, Published, Reference
from gpulift.analysis.summary import summarise
from gpulift.ground.errors import GpuliftError
from gpulift.ground.whole import write_whole
from gpulift.records.model import Record
from gpulift.records.read import Run
from gpulift.records.together import was_crowded
from gpulift.verdicts.hardware import slowed_by_hardware

CARDS_FOR_INTERVAL = 5
CHANCE = 0.05  # that a sound machine fails any check
DEFAULT_TOLERANCE = 0.05
ENOUGH_LAUNCHES = 2
LEAST_TOLERANCE = 0.01
MOST_TOLERANCE = 0.30
STEP = 0.005
DIGITS = 6
DATE_MEANS = (
    "datasheet: the day on which the entry was written down; measured: that of its newest record; "
    "published: that of the version of the source"
)


@dataclass(frozen=True)
class _Source:
    """One check of one run on one card."""

    card: str
    check: Check


def build(
    runs: Sequence[Run],
    existing: Reference | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Reference:
    """A reference with an entry for each check that the runs measured; other entries are kept.

    Checks of one launch are left out, which is said. What one clock judged is no sample of what
    another did: an entry is of the clock of its newest record, and what runs hold of it by another
    one is left out. Raises GpuliftError for runs that must not be a reference: of several models,
    from uncommitted changes, an unknown commit or a build that is not Release, of a card that was
    not the same throughout or that the hardware slowed down, with other GPUs busy too, or under
    conditions that cannot be compared.
    """
    if not runs:
        raise GpuliftError("there are no records to build a reference from")
    for run in runs:
        _require_citable(run)
        _require_one_sound_card(run)
    name = _one_model(runs, existing)
    _require_same(runs, "method version", lambda record: record.method)
    _require_same(runs, "CUDA major version", lambda r: r.context.cuda_runtime.partition(".")[0])
    _require_same(runs, "power limit", _power_limit)
    sources: dict[str, list[_Source]] = {}
    for run in runs:
        card = _card(run)
        for check in measured_checks(summarise(run)):
            sources.setdefault(check.id, []).append(_Source(card, check))
    if not sources:
        raise GpuliftError("the records hold no check that was measured; nothing was built")
    sources = {id: _of_newest_clock(found) for id, found in sources.items()}
    single = [id for id, found in sources.items() if _launches(found) < ENOUGH_LAUNCHES]
    if len(single) == len(sources):
        raise GpuliftError(f"{single[0]}: one launch is no reference; measure with 3 or more")
    if single:
        say(f"left out for having one launch: {len(single)}, the first {single[0]}")
        sources = {id: found for id, found in sources.items() if id not in single}
    cards = [{source.card for source in found} for found in sources.values()]
    judged = sum(len(one) >= CARDS_FOR_INTERVAL for one in cards)
    return Reference(
        name=name,
        peaks=existing.peaks if existing else {},
        measured={
            **(existing.measured if existing else {}),
            **{id: _entry(id, sources[id], judged) for id in sorted(sources)},
        },
        published=existing.published if existing else (),
    )


def to_json(reference: Reference) -> str:
    """The text of a reference file: the same for the same reference."""
    entries = [
        *({"kind": "datasheet", **asdict(peak)} for peak in reference.peaks.values()),
        *(_measured_json(entry) for _, entry in sorted(reference.measured.items())),
        *(_published_json(entry) for entry in reference.published),
    ]
    document: dict[str, Any] = {"schema": SCHEMA, "name": reference.name}
    document |= {"date_means": DATE_MEANS, "entries": entries}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write(reference: Reference, file: Path) -> None:
    """Writes a reference file as a whole, or leaves the old one as it was."""
    write_whole(to_json(reference), file)


def tolerance_of_cards(
    logs: Sequence[float], value: float, higher_is_better: bool, checks: int
) -> float:
    """How far from `value` the prediction limit for one more card is, as a fraction.

    `logs` are the cards' log values; a card is judged by so many `checks`.
    """
    count = len(logs)
    k = float(scipy.special.stdtrit(count - 1, 1 - CHANCE / checks)) * math.sqrt(1 + 1 / count)
    mean, sd = float(np.mean(logs)), float(np.std(logs, ddof=1))
    if higher_is_better:
        return 1 - math.exp(mean - k * sd) / value
    return math.exp(mean + k * sd) / value - 1


def rounded_tolerance(tolerance: float) -> float:
    """Up to the next half percent."""
    return round(math.ceil(tolerance / STEP - 1e-9) * STEP, 3)


def _require_citable(run: Run) -> None:
    if any(record.synthetic for record in run.records):
        raise GpuliftError(f"{run.folder}: holds synthetic test data; a reference needs a real GPU")
    if any(record.off_sweep for record in run.records):
        raise GpuliftError(f"{run.folder}: holds cases of no sweep (--axis); measure without them")
    builds = [record.context.build for record in run.records]
    doubt = next((build.doubt for build in builds if build.doubt), "")
    if doubt:
        raise GpuliftError(f"{run.folder}: {doubt}; commit, build, measure")
    types = {build.type for build in builds} - {"Release"}
    if types:
        kind = ", ".join(sorted(types)) or "unknown"
        raise GpuliftError(f"{run.folder}: a build of type {kind}; a reference needs Release")


def _require_one_sound_card(run: Run) -> None:
    if was_crowded(run.folder):
        raise GpuliftError(
            f"{run.folder}: several GPUs were busy at once, which share power, links and the host;"
            " a reference needs each card alone"
        )
    cards = sorted({_card_of(record) for record in run.records})
    if len(cards) > 1:
        raise GpuliftError(f"{run.folder}: records of several cards: {', '.join(cards)}")
    slowed = next((record for record in run.records if slowed_by_hardware(record)), None)
    if slowed is not None:
        raise GpuliftError(
            f"{slowed.file}:{slowed.line}: the hardware slowed itself down in this launch: look"
            " after cooling and power, and measure again"
        )


def _one_model(runs: Sequence[Run], existing: Reference | None) -> str:
    names = {run.machine for run in runs}
    if len(names) > 1:
        raise GpuliftError(f"records of several models: {', '.join(sorted(names))}; take one")
    name = runs[0].machine
    if existing and existing.name != name:
        raise GpuliftError(f"the reference is of {existing.name}, the records are of {name}")
    return name


def _require_same(runs: Sequence[Run], what: str, of: Any) -> None:
    found = sorted({str(of(record)) for run in runs for record in run.records})
    if len(found) > 1:
        raise GpuliftError(f"records of more than one {what}: {', '.join(found)}; take one")


def _power_limit(record: Record) -> float | None:
    return record.context.gpu.power_limit_w if record.context.gpu else None


def _card(run: Run) -> str:
    """Runs without a card's hash count as one card, so that none is counted twice."""
    return _card_of(run.records[0])


def _card_of(record: Record) -> str:
    gpu = record.context.gpu
    return gpu.card if gpu else ""


def _launches(sources: Sequence[_Source]) -> int:
    return sum(len(source.check.launch_values) for source in sources)


def _of_newest_clock(sources: Sequence[_Source]) -> list[_Source]:
    def clock(source: _Source) -> str:
        arm = source.check.case.first.arm(source.check.arm)
        return arm.clock if arm else ""

    newest = max(sources, key=lambda source: source.check.case.first.began_at)
    return [source for source in sources if clock(source) == clock(newest)]


def _entry(id: str, sources: Sequence[_Source], judged: int) -> Measured:
    first = sources[0].check
    cards: dict[str, list[float]] = {}
    for source in sources:
        cards.setdefault(source.card, []).extend(source.check.launch_values)
    medians = [float(np.median(values)) for values in cards.values()]
    launches = [value for values in cards.values() for value in values]
    value = float(np.median(medians))
    if len(medians) >= CARDS_FOR_INTERVAL:
        logs = [math.log(median) for median in medians]
        found = tolerance_of_cards(logs, value, first.higher_is_better, judged)
        tolerance, tolerance_from = max(found, LEAST_TOLERANCE), "cards"
    else:
        spread = 3 * float(np.std(np.log(launches), ddof=1))
        tolerance, tolerance_from = max(spread, DEFAULT_TOLERANCE), "default"
    tolerance = rounded_tolerance(tolerance)
    if tolerance > MOST_TOLERANCE:
        tolerance, tolerance_from = MOST_TOLERANCE, VARIES
    records = [record for source in sources for record in source.check.case.measured]
    return Measured(
        check=id,
        value=float(f"{value:.{DIGITS}g}"),
        unit=first.unit,
        tolerance=tolerance,
        tolerance_from=tolerance_from,
        cards=len(cards),
        launches=len(launches),
        conditions=_conditions(records),
        source=_joined(record.citation for record in records),
        date=max(record.began_at for record in records)[:10],
    )


def _conditions(records: Sequence[Record]) -> Conditions:
    first = records[0]
    return Conditions(
        method=first.method,
        driver=_joined(record.context.driver for record in records),
        cuda_runtime=_joined(record.context.cuda_runtime for record in records),
        power_limit_w=_power_limit(first),
        commit=_joined(record.context.build.commit for record in records),
        host=_joined(record.context.host.name for record in records),
    )


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(sorted({text for text in texts if text}))


def _measured_json(entry: Measured) -> Mapping[str, Any]:
    return {"kind": "measured", **asdict(entry), "conditions": _filled(asdict(entry.conditions))}


def _published_json(entry: Published) -> Mapping[str, Any]:
    subject = _filled({"roof": entry.roof, "check": entry.check})
    rest = {key: value for key, value in asdict(entry).items() if key not in ("roof", "check")}
    return {"kind": "published", **subject, **_filled(rest)}


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in ("", None)}
