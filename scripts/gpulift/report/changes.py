"""Verdicts on changes: gates and comparisons of two runs, as tables of rows for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpulift.gate.answer import answer
from gpulift.gate.plan import judged_again
from gpulift.verdicts import comparison_table, decision, table
from gpulift.verdicts.comparison import Comparison
from gpulift.verdicts.row import Table

# For those who do not see a verdict's colour.
GLYPHS = {
    decision.REGRESSED: "▼",
    decision.IMPROVED: "▲",
    decision.EQUIVALENT: "≈",
    decision.INCONCLUSIVE: "?",
    decision.ERROR: "✗",
    decision.SKIPPED: "–",
}
FILTERS: Mapping[str, Callable[..., Any]] = {
    "comment": table.markdown,
    "change_glyph": lambda row: GLYPHS[row.verdict],
    "row_counts": table.counted,
    "row_figures": table.figures,
    "row_name": table.name_of,
    "row_why": table.why,
}


def of_gate(folder: Path) -> Table:
    """A gate's verdicts and controls, of its evidence. Raises GpuliftError for what is none."""
    return answer(judged_again(folder), folder)


def of_comparison(found: Comparison, machine: str) -> Table:
    """The verdicts of a comparison of two sets of runs, without the places of these."""
    base, head = (tuple(Path(run).name for run in side) for side in (found.base, found.head))
    made = comparison_table.table(replace(found, base=base, head=head))
    notes = (*made.notes, *found.notes)
    return replace(made, notes=notes, data={**made.data, "machine": machine})


def machine_of(change: Table) -> str:
    """That all of it was measured on."""
    return str(change.data["machine"])
