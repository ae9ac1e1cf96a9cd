"""`gpulift duet`: what a duet of two builds measured."""

from __future__ import annotations

from dataclasses import asdict

from gpulift.commands.shared import print_json
from gpulift.ground import terminal
from gpulift.ground.arguments import Json, Results, Wide
from gpulift.ground.errors import GpuliftError
from gpulift.records.read import read_results
from gpulift.report import tables
from gpulift.verdicts.duets import duet_rows


def duet(results: Results, wide: Wide = False, as_json: Json = False) -> None:
    """Head build against base build: ratio, interval, and how much it varies over launches."""
    rows = duet_rows(read_results(results))
    if not rows:
        raise GpuliftError(
            "there are no duet records in these results; make some with --head, --base"
        )
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        terminal.console(wide=wide).print(tables.duets(rows))
