"""ERRATA.md, made from errata.toml."""

from __future__ import annotations

from collections.abc import Sequence

from gpulift.analysis import errata
from gpulift.analysis.errata import Erratum, read_errata
from tools.page import write_page

TABLE = "ERRATA.md"
HEAD = """# Known errors in committed records

Records are never edited. What was found to be wrong in one after it was committed stands here,
newest first; `show` says it of each record. A number stays that of its error:
`ERRATA.md#e7` leads to E7. This table is made from `errata.toml`.

| | records | what is wrong | in later records |
| --- | --- | --- | --- |
"""


def table(entries: Sequence[Erratum]) -> str:
    """The content of ERRATA.md."""
    rows = (
        f'| <a id="{one.name.lower()}"></a>{one.name} '
        f"| {one.records} | {one.wrong} | {one.later} |\n"
        for one in entries
    )
    return HEAD + "".join(rows)


if __name__ == "__main__":
    write_page(TABLE, lambda results: table(read_errata(results / errata.FILE)))
