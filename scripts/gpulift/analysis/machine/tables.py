"""Tables of verdicts, of reference files and of siblings, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from gpulift.analysis.machine.checks import coverage
from gpulift.analysis.machine.reference_build import DATE_MEANS
from gpulift.analysis.machine.results import (
    INCONCLUSIVE,
    PASS,
    SKIPPED,
    WORST_FIRST,
    CheckResult,
)
from gpulift.analysis.machine.siblings import Siblings
from gpulift.analysis.machine.verdict import GLYPHS, NOTHING_JUDGED, overall
from gpulift.analysis.reference import Measured, Reference
from gpulift.analysis.summary import Summary, highest
from gpulift.ground import text
from gpulift.ground.terminal import titled
from gpulift.records.throttle import throttle_of

TOLERANCES = (
    "A tolerance is how far off a sound card may be: by how cards differ (cards), with fewer than"
    " five of them 5 % or by how launches differ (default), none where sound machines differ too"
    " much (varies)."
)
SPARED = ("judged by", "of it", "limit")  # of verdicts
CUT = "Of several records the first is named: --all names all, --entry PART all of some entries."


def verdicts(results: Sequence[CheckResult], every: bool = False) -> Table:
    """What failed first. Step times that pass are counted, as are skips of one reason.

    `every` gives each check its own row.
    """
    told = f"{NOTHING_JUDGED}; " if overall(results) == SKIPPED else ""
    title = f"Is this machine as fast as it should be? {told}{coverage(results)}"
    numbers = ("measured", "limit", "of it")
    columns = ("", "check", *numbers, "judged by", "reason", "remedy")
    table = titled(title, SPARED, columns, numbers)
    shown = results if every else [r for r in results if not _counted(r)]
    for result in sorted(shown, key=lambda result: WORST_FIRST.index(result.verdict)):
        table.add_row(*_cells(result))
    if not every:
        for row in _groups([result for result in results if _counted(result)]):
            table.add_row(*row)
    return table


def reference_table(reference: Reference, every: bool = False) -> Table:
    """All entries of a reference file. `every` names each source of an entry, not the first."""
    numbers, of_it = ("value", "tolerance"), ("cards", "conditions", "source (date)")
    table = titled(
        f"What is known of {reference.name}",
        ("conditions", "source (date)", "cards", "kind"),
        ("kind", "check or roof", *numbers, *of_it),
        numbers,
    )
    table.caption, table.caption_justify = _notes(reference, every), "left"
    for entry in reference.measured.values():
        table.add_row("measured", entry.check, *_measured_cells(entry, every))
    for peak in reference.peaks.values():
        value, source = quantity(peak.value, peak.unit), f"{peak.source} ({peak.date})"
        table.add_row("datasheet", peak.roof, value, "", "", peak.meaning, source)
    for figure in reference.published:
        value, source = quantity(figure.value, figure.unit), f"{figure.source} ({figure.date})"
        table.add_row("published", figure.subject, value, "", "", figure.told, source)
    return table


def _notes(reference: Reference, every: bool) -> str:
    """What the columns mean."""
    several = any("; " in entry.source for entry in reference.measured.values())
    tolerances = TOLERANCES if reference.measured else ""
    cut = CUT if several and not every else ""
    return " ".join(note for note in (tolerances, f"Dates: {DATE_MEANS}.", cut) if note)


def _measured_cells(entry: Measured, every: bool) -> tuple[str, ...]:
    """From the value on."""
    limit = entry.conditions.power_limit_w
    parts = (
        f"driver {entry.conditions.driver}" if entry.conditions.driver else "",
        f"CUDA {entry.conditions.cuda_runtime}" if entry.conditions.cuda_runtime else "",
        f"{limit:.0f} W" if limit else "",
        f"method {entry.conditions.method}",
    )
    allowed = text.percent(entry.tolerance) if entry.judges else "none"
    records = entry.source.split("; ")
    more = f" and {len(records) - 1} more" if len(records) > 1 else ""
    source = entry.source if every else f"{records[0]}{more}"
    return (
        quantity(entry.value, entry.unit),
        f"{allowed} ({entry.tolerance_from})",
        f"{entry.cards} ({entry.launches} launches)",
        ", ".join(part for part in parts if part),
        f"{source} ({entry.date})",
    )


def references_table(known: Mapping[str, Reference]) -> Table:
    """The models of which there is a reference, and what it rests on."""
    spared = ("datasheet figures", "published figures of others", "cards behind them")
    numbers = ("measured entries", *reversed(spared))
    table = titled("What is known of GPU models", spared, ("model", "name", *numbers), numbers)
    for model, reference in known.items():
        cards = str(most_cards(reference)) if reference.measured else "–"
        counts = (str(len(reference.published)), str(len(reference.peaks)))
        table.add_row(model, reference.name, str(len(reference.measured)), cards, *counts)
    return table


def most_cards(reference: Reference) -> int:
    """Behind any measured entry."""
    return max((entry.cards for entry in reference.measured.values()), default=0)


def siblings_table(
    siblings: Siblings, judged: Sequence[CheckResult], summaries: Mapping[str, Summary]
) -> Table:
    """A line a card, outliers first, by the check that judges it and is furthest below."""
    agree = "" if siblings.outliers else " None is an outlier."
    title = siblings.note or f"Do the {len(siblings.cards)} cards agree?{agree}"
    numbers = ("measured", "of the median", "deviations", "at most")
    columns = ("", "card", "slowest in", *numbers, "clock held down by")
    table = titled(title, ("deviations", "at most"), columns, numbers)
    told = [result for result in judged if result.positions]
    for result in sorted(told, key=lambda row: (WORST_FIRST.index(row.verdict), _lowest(row))):
        slowest = min(result.positions, key=lambda one: (not one.named, one.deviation))
        rate = slowest.rate
        records = summaries[rate.name].run.records
        heat = highest(records, "temperature_c")
        table.add_row(
            GLYPHS[result.verdict],
            rate.name,
            f"{rate.check} {rate.setting}",
            quantity(rate.value, rate.unit),
            text.percent(1 + slowest.deviation),
            f"{slowest.distance:+.1f}",
            "" if heat is None else f"{heat:.0f} °C",
            throttle_of([record for record in records if record.telemetry]).words,
        )
    if not siblings.note and len(told) < len(siblings.cards):
        left = text.counted(len(siblings.cards) - len(told), "more card")
        table.caption, table.caption_justify = f"{left}: no roof that enough others have", "left"
    return table


def _lowest(result: CheckResult) -> float:
    return min(position.deviation for position in result.positions)


def crowding_table(siblings: Siblings) -> Table:
    """Speed with all cards busy / speed alone, the largest loss first."""
    title = "What does it cost that all cards are busy? (speed together / alone)"
    numbers = ("median", "worst")
    table = titled(title, columns=("check", "cards", *numbers, "worst card"), numbers=numbers)
    for row in sorted(siblings.crowding, key=lambda row: (row.worst, row.check)):
        worst = f"{row.worst:.3f}"
        table.add_row(row.check, str(row.cards), f"{row.median:.3f}", worst, row.worst_card)
    return table


def quantity(value: float, unit: str) -> str:
    """4.80 TB/s, 1.23 ms, 700 W."""
    if unit.endswith("/s"):
        return text.rate(value, unit)
    return text.seconds(value) if unit == "s" else f"{text.digits(value)} {unit}"


def _counted(result: CheckResult) -> bool:
    """Step times are many: those that pass need no row each, nor do skips of one reason. One that
    asks for a better reference has its row."""
    if result.verdict == SKIPPED:
        return True
    passed = result.verdict == PASS and not result.remedy
    return passed and result.id.startswith(("time/", "cost/"))


def _groups(results: Sequence[CheckResult]) -> list[tuple[str, ...]]:
    groups: dict[tuple[str, str, str, str], list[CheckResult]] = {}
    for result in results:
        reason = "" if result.verdict == PASS else result.reason
        remedy = "" if result.verdict == PASS else result.remedy
        groups.setdefault((result.verdict, result.kind, reason, remedy), []).append(result)
    rows = []
    for (verdict, kind, reason, remedy), members in groups.items():
        name = members[0].id if len(members) == 1 else f"{len(members)} checks"
        rows.append((GLYPHS[verdict], name, "", "", "", kind, reason, remedy))
    return sorted(rows, key=lambda row: list(GLYPHS.values()).index(row[0]))


def _cells(result: CheckResult) -> tuple[str, ...]:
    measured = quantity(result.value, result.unit) if result.value is not None else ""
    limit = quantity(result.limit, result.unit) if result.limit is not None else ""
    share = text.percent(result.fraction) if result.fraction is not None else ""
    return (
        GLYPHS[result.verdict],
        result.id,
        measured,
        limit,
        share,
        _judged_by(result),
        _reason(result),
        result.remedy,
    )


def _judged_by(result: CheckResult) -> str:
    return text.counted(result.cards, "card") if result.cards else result.kind


def _reason(result: CheckResult) -> str:
    if result.verdict != INCONCLUSIVE or result.smallest_effect is None:
        return result.reason
    return f"{result.reason}; {text.percent(result.smallest_effect)} off would be told"
