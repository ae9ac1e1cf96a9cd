"""Tables of reference files, and of what running together costs, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from gpulift.analysis.machine.reference_build import DATE_MEANS
from gpulift.analysis.machine.siblings import Siblings
from gpulift.analysis.reference import Measured, Reference
from gpulift.ground import text
from gpulift.ground.terminal import titled

TOLERANCES = (
    "A tolerance is how far off a sound card may be: by how cards differ (cards), with fewer than"
    " five of them 5 % or by how launches differ (default), none where sound machines differ too"
    " much (varies)."
)
CUT = "Of several records the first is named: --all names all, --entry PART all of some entries."


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
