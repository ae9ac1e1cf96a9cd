"""Rows of records as CSV (RFC 4180, but with line feeds) that a spreadsheet cannot execute."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from gpulift.exchange import by_case
from gpulift.exchange.rows import Scalar, cells_of, columns
from gpulift.ground.text import visible
from gpulift.records.read import Run

# Owasp, "CSV Injection": cells that begin so are formulas to a spreadsheet. The last four are the
# wide forms, which some take for the same. Where commas are decimal, a semicolon begins a cell.
FORMULA = re.compile("(^|;)(?= *[-=+@＝＋－＠])")


def csv_bytes(runs: Sequence[Run]) -> bytes:
    """A header and a row for each arm of each case; what is unknown is empty."""
    rows = ([_cell(row.get(name)) for name in by_case.COLUMNS] for _, row in by_case.rows(runs))
    return _bytes(by_case.COLUMNS, rows)


def all_columns(runs: Sequence[Run]) -> bytes:
    """The same with all scalars and a row for each launch of an arm."""
    return _bytes([column.name for column in columns()], (row for _, row in cells_of(runs, _cell)))


def _bytes(header: Sequence[str], rows: Iterable[Sequence[Scalar]]) -> bytes:
    made = io.BytesIO()
    with io.TextIOWrapper(made, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        text.flush()
        return made.getvalue()


def defused(text: str) -> str:
    """The text on one line, with an apostrophe before what a spreadsheet would calculate."""
    return FORMULA.sub(r"\1'", text if text.isprintable() else visible(text))


def _cell(value: Scalar) -> Scalar:
    if isinstance(value, bool):
        return "true" if value else "false"
    return defused(value) if isinstance(value, str) else value
