"""The scalar columns as CSV (RFC 4180, but with line feeds) that a spreadsheet cannot execute."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from gpulift.citing.plain import visible
from gpulift.exchange.rows import Column, Row, Scalar, columns, rows_of
from gpulift.records.read import Run

# Owasp, "CSV Injection": cells that begin so are formulas to a spreadsheet. The last four are the
# wide forms, which some take for the same.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_text(runs: Sequence[Run]) -> str:
    """A header and a row for each arm and launch; what is unknown is empty."""
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    known = columns()
    writer.writerow([column.name for column in known])
    for row in rows_of(runs):
        writer.writerow([_cell(column, row) for column in known])
    return made.getvalue()


def defused(text: str) -> str:
    """The text on one line, with an apostrophe before what a spreadsheet would calculate."""
    harmless = text if text.isprintable() else visible(text)
    return f"'{harmless}" if text.lstrip(" ").startswith(FORMULA) else harmless


def _cell(column: Column, row: Row) -> Scalar:
    value = column.value(row)
    if isinstance(value, bool):
        return "true" if value else "false"
    return defused(value) if isinstance(value, str) else value
