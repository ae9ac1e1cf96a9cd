"""`gpulift show ID`: one record, whole, cited, counted or measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gpulift.analysis.choice import choice_of
from gpulift.analysis.errata import FILE as ERRATA
from gpulift.analysis.errata import Erratum, errata_of, known_errors, read_errata
from gpulift.analysis.model_records import files_at, records_of_models
from gpulift.commands import citation as citations
from gpulift.commands import counters as counted
from gpulift.commands.selecting import Axes, Techniques, prepared
from gpulift.commands.shared import Gpu, Out, print_json
from gpulift.commands.show import lines
from gpulift.engine import machine
from gpulift.engine.machine import checkout_root, results_folder, searched
from gpulift.gate.git import git
from gpulift.ground import terminal
from gpulift.ground.arguments import named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.find import find_record
from gpulift.records.model import Record

Id = Annotated[
    str, typer.Argument(metavar="ID", help="gpulift:<gpu>/<id>, or the id's first digits.")
]
Places = Annotated[
    list[Path] | None,
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
    bibtex: Annotated[
        bool,
        typer.Option(
            "--bibtex",
            help="A BibTeX entry of its case, a sentence of its launches, and what several runs"
            " say.",
        ),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Measure its case again here: do the new launches fall where the old ones"
            " predict?",
        ),
    ] = False,
    launches: Annotated[
        int | None,
        typer.Option(
            help="Of --again: processes; as many as the record's run had, at least 3.",
        ),
    ] = None,
    counters: Annotated[
        bool,
        typer.Option(
            "--counters",
            help="Run its case under ncu: DRAM, L2 and tensor cores beside what is computed. ID may"
            " be a filter of run that selects one case.",
        ),
    ] = False,
    gpu: Gpu = None,
    techniques: Techniques = None,
    axes: Axes = None,
    out: Out = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="The record's own JSON, one line; of --counters or --again what they say.",
        ),
    ] = False,
) -> None:
    """One record: arms, raw windows, conditions, and the command that measures it again; or, of
    --bibtex, --again and --counters, what that says."""
    asked = {"--bibtex": bibtex, "--again": again, "--counters": counters}
    modes = [mode for mode, given in asked.items() if given]
    given = {
        "--json": bibtex and as_json,
        "--gpu": gpu is not None and not (counters or again),
        "--techniques": techniques is not None and not counters,
        "--axis": axes is not None and not counters,
        "--launches": launches is not None and not again,
        "--out": out is not None and not again,
    }
    if wrong := [*modes[1:], *(option for option, one in given.items() if one)]:
        of = modes[0] if modes else "a record that is only shown"
        raise GpuliftError(f"{', '.join(wrong)}: does not go with {of}")
    if counters:
        subject = counted.find(wanted, places, tuple(axes or ()), prepared(techniques))
        _count(subject, gpu, as_json)
    record = find_record(wanted, places or searched(), say)
    if again:
        from gpulift.commands.again import measured_again  # what only reads does without it

        raise typer.Exit(measured_again(record, launches, gpu, out, as_json))
    if bibtex:
        _cite(record, places)
    elif as_json:
        typer.echo(json.dumps(record.raw, separators=(",", ":"), allow_nan=False))
    else:
        typer.echo("\n".join(lines(record, terminal.columns(), _errata(record))))


def _count(subject: counted.Subject, gpu: int | None, as_json: bool) -> NoReturn:
    """Steps under ncu, whatever the record's machine was."""
    context = machine.describe_asked(machine.find_bench(), gpu)
    steps = counted.count(subject, context, gpu)
    l2_bytes = context.gpu.facts.get("l2_bytes", 0) if context.gpu else 0
    if as_json:
        print_json([counted.as_dict(step, l2_bytes) for step in steps])
        raise typer.Exit(counted.exit_code(steps))
    if any(step.counted for step in steps):
        terminal.console().print(counted.table(subject, steps, l2_bytes))
    for step in steps:
        for note in counted.notes(step, l2_bytes):
            typer.echo(visible(f"{step.arm}: {note}"))
    if any(step.counted for step in steps):
        typer.echo(counted.ABOUT)
    raise typer.Exit(counted.exit_code(steps))


def _cite(record: Record, places: list[Path] | None) -> None:
    citations.require_result(record)
    choice = choice_of(results_folder())
    launches = citations.launches_of(record)
    errata = known_errors(launches, choice.errata)
    texts = (
        citations.sentence(record, errata, launches),
        citations.bibtex(record, errata, launches, _address()),
        citations.over_runs(record, _of_model(record, places), choice),
    )
    typer.echo("\n\n".join(one for one in texts if one))


def _address() -> str:
    """Of this checkout, if it is a clone of a public one."""
    try:
        asked = git(checkout_root(), "config", "--get", "remote.origin.url")
    except GpuliftError:  # no git
        return ""
    return citations.address_of(asked.stdout.strip())


def _of_model(record: Record, places: list[Path] | None) -> list[Record]:
    """Those of its technique on its model; what cannot be read was said in finding it."""
    files = files_at(places or searched())
    return records_of_models(files, [record.context.slug], [record.technique], lambda _: None)


def _errata(record: Record) -> tuple[Erratum, ...]:
    return errata_of(record, read_errata(results_folder() / ERRATA))
