"""ERRATA.md, made from errata.toml."""

from __future__ import annotations

from collections.abc import Sequence

from gpulift.analysis import errata
from gpulift.analysis.errata import Erratum, read_errata
from gpulift.engine import machine
from gpulift.ground.errors import GpuliftError, write_error

TABLE = "ERRATA.md"
HEAD = """# Known errors in committed records

Records are never edited. What was found to be wrong in one after it was committed stands here,
newest first; `show` and `cite` say it of each record. This table is made from `errata.toml`.

| records | what is wrong | in later records |
| --- | --- | --- |
"""


def table(entries: Sequence[Erratum]) -> str:
    """The content of ERRATA.md."""
    rows = (f"| {one.records} | {one.wrong} | {one.later} |\n" for one in entries)
    return HEAD + "".join(rows)


def _main() -> None:
    results = machine.checkout_root() / "results"
    try:
        (results / TABLE).write_text(table(read_errata(results / errata.FILE)), encoding="utf-8")
    except OSError as error:
        raise write_error(results / TABLE, error) from None


if __name__ == "__main__":
    try:
        _main()
    except GpuliftError as error:
        raise SystemExit(str(error)) from None
