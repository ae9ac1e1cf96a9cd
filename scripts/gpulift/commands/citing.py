"""`gpulift show ID` and `gpulift cite ID`: one record, whole or cited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer

from gpulift.analysis.errata import FILE as ERRATA
from gpulift.analysis.errata import Erratum, errata_of, read_errata
from gpulift.analysis.model_records import files_at, records_of_models
from gpulift.commands import citation as citations
from gpulift.commands.show import WIDTH, lines
from gpulift.engine.machine import results_folder, searched
from gpulift.ground import terminal
from gpulift.ground.arguments import named
from gpulift.ground.entry import say
from gpulift.records.find import find_record
from gpulift.records.model import Record

# typer reads these annotations at run time; Optional keeps them readable on Python 3.10.
Id = Annotated[
    str, typer.Argument(metavar="ID", help="gpulift:<gpu>/<id>, or the id's first digits.")
]
Places = Annotated[
    Optional[list[Path]],  # noqa: UP045
    typer.Option(
        "--results",
        parser=named,
        metavar="DIR",
        help="Where to search; may be repeated. The checkout's results. Which ids a file has is"
        " kept in ~/.cache/gpulift.",
    ),
]


def show(
    wanted: Id,
    places: Places = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The record's own JSON, one line.")
    ] = False,
) -> None:
    """One record: arms, raw windows, conditions, and the command that measures it again."""
    record = _find(wanted, places)
    if as_json:
        typer.echo(json.dumps(record.raw, separators=(",", ":"), allow_nan=False))
    else:
        screen = terminal.console()
        width = screen.width if screen.file.isatty() else WIDTH
        typer.echo("\n".join(lines(record, width, _errata(record))))


def cite(wanted: Id, places: Places = None) -> None:
    """A BibTeX entry of one record, a sentence with its conditions, and what all runs say."""
    record = _find(wanted, places)
    citations.require_result(record)
    errata = _errata(record)
    texts = (
        citations.bibtex(record, errata),
        citations.sentence(record, errata),
        citations.over_runs(record, _of_model(record, places), errata),
    )
    typer.echo("\n\n".join(one for one in texts if one))


def _of_model(record: Record, places: list[Path] | None) -> list[Record]:
    """Those of its technique on its model; what cannot be read was said in finding it."""
    files = files_at(places or searched())
    return records_of_models(files, [record.context.slug], [record.technique], lambda _: None)


def _find(wanted: str, places: list[Path] | None) -> Record:
    return find_record(wanted, places or searched(), say)


def _errata(record: Record) -> tuple[Erratum, ...]:
    return errata_of(record, read_errata(results_folder() / ERRATA))
