"""The scalar columns as CSV (RFC 4180, but with line feeds) that a spreadsheet cannot execute."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from gpulift.exchange.rows import Scalar, cells_of, columns
from gpulift.records.read import Run
from gpulift.text import visible

# Owasp, "CSV Injection": cells that begin so are formulas to a spreadsheet. The last four are the
# wide forms, which some take for the same.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def csv_bytes(runs: Sequence[Run]) -> bytes:
    """A header and a row for each arm and launch; what is unknown is empty."""
    made = io.BytesIO()
    with io.TextIOWrapper(made, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in columns()])
        writer.writerows(cells for _, cells in cells_of(runs, _cell))
        text.flush()
        return made.getvalue()


def defused(text: str) -> str:
    """The text on one line, with an apostrophe before what a spreadsheet would calculate."""
    harmless = text if text.isprintable() else visible(text)
    return f"'{harmless}" if text.lstrip(" ").startswith(FORMULA) else harmless


def _cell(value: Scalar) -> Scalar:
    if isinstance(value, bool):
        return "true" if value else "false"
    return defused(value) if isinstance(value, str) else value
