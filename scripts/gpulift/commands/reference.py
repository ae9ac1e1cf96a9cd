"""`gpulift reference`: what is known of a GPU model, and how it gets known."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gpulift.analysis.machine import reference_build
from gpulift.analysis.machine import tables as shown
from gpulift.analysis.reference import FOLDER, Reference, find_reference, read_reference
from gpulift.commands import shared as commands
from gpulift.engine import machine
from gpulift.ground import terminal
from gpulift.ground.arguments import Json, Results, Wide, named
from gpulift.ground.errors import GpuliftError
from gpulift.records.files import record_files
from gpulift.records.find import require_model
from gpulift.records.read import read_results, run_folders
from gpulift.records.together import was_crowded

app = typer.Typer(
    name="reference",
    help="What is known of a GPU model.",
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback(invoke_without_command=True)
def reference(context: typer.Context) -> None:
    """What is known of a GPU model."""
    if context.invoked_subcommand is None:
        raise GpuliftError("name `reference show [MODEL]` or `reference build RESULTS...`")


@app.command()
def build(
    results: Results,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FILE",
            help="File to write; the model's in results/reference/ by default.",
        ),
    ] = None,
) -> None:
    """Makes or updates the measured entries of a model from records of its cards.

    Of a folder above run folders all runs count, but those in which several GPUs were busy at once.
    Entries that they do not measure are kept.
    """
    runs = read_results(one for path in results for one in _every_run(path))
    model = runs[0].records[0].context.slug
    existing = find_reference(commands.results_folder(), model)
    made = reference_build.build(runs, existing, partial(typer.echo, err=True))
    if out is None and existing is not None:
        _require_as_many_cards(made, existing)
    file = out or machine.own_results() / FOLDER / f"{model}.json"
    reference_build.write(made, file)
    typer.echo(f"{file}: {len(made.measured)} measured entries, {_behind(made, model)}")


def _behind(made: Reference, model: str) -> str:
    """Of machines without a GPU nobody knows how many there were."""
    if model.startswith("cpu-"):
        return "of machines with this processor"
    cards = max(entry.cards for entry in made.measured.values())
    return f"from up to {cards} cards each" if cards > 1 else "from one card"


def _every_run(path: Path) -> list[Path]:
    is_above = path.is_dir() and not record_files(path)
    below = run_folders(path) if is_above else []
    return [folder for folder in below if not was_crowded(folder)] or [path]


def _require_as_many_cards(made: Reference, existing: Reference) -> None:
    """Refuses to forget cards: with fewer runs than before an entry would know less."""
    fewer = [id for id, one in existing.measured.items() if made.measured[id].cards < one.cards]
    if fewer:
        now, before = made.measured[fewer[0]].cards, existing.measured[fewer[0]].cards
        raise GpuliftError(
            f"{len(fewer)} entries would rest on fewer cards than now, the first {fewer[0]}: {now}"
            f" instead of {before}; name the runs of all cards, or another file with --out"
        )


@app.command()
def show(
    gpu: Annotated[
        str | None,
        typer.Argument(
            help="Model, as in `NVIDIA H200`, nvidia-h200 or h200; this machine's by default, and"
            " where there is none of it a list of all."
        ),
    ] = None,
    entry: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            help="Only entries whose check or roof has this in its name, with all their sources.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All sources of every entry.")] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """All entries of a model with value, tolerance, cards, date, conditions and source."""
    files = {
        file.stem: file for file in sorted((commands.results_folder() / FOLDER).glob("*.json"))
    }
    if gpu is None:
        wanted = machine.describe(machine.find_bench()).slug
    else:
        wanted = require_model(gpu, list(files), "there is no reference")
    if wanted in files:
        found = _asked(read_reference(files[wanted]), entry)
        if as_json:
            commands.print_json(json.loads(reference_build.to_json(found)))
        else:
            _print(found, every, entry, wide)
        return
    if entry is not None:
        raise GpuliftError(f"there is no reference of this machine, {wanted}: name a model")
    known = {stem: read_reference(file) for stem, file in files.items()}
    if as_json:
        commands.print_json({"references": [_counted(stem, one) for stem, one in known.items()]})
        return
    screen = terminal.console(wide=wide)
    screen.print(f"There is no reference of this machine, {wanted}.", soft_wrap=True)
    screen.print(shown.references_table(known))
    screen.print("./gpulift reference show MODEL has all entries of one, with their sources.")


def _asked(reference: Reference, part: str | None) -> Reference:
    """The whole, or the entries that were asked for, of which there must be one."""
    if part is None:
        return reference
    if not part:
        raise GpuliftError("--entry is empty: name a part of a check or a roof")
    found = reference.holding(part)
    if not (found.measured or found.peaks or found.published):
        raise GpuliftError(f"no entry of {reference.name} has {part!r} in its name")
    return found


def _print(found: Reference, every: bool, part: str | None, wide: bool) -> None:
    screen = terminal.console(wide=wide)
    screen.print(shown.reference_table(found, every or part is not None))
    if part is None and not found.published:
        screen.print(
            f"No published figures: no dated source that states its conditions is known for"
            f" {found.name}.",
            soft_wrap=True,
        )


def _counted(stem: str, one: Reference) -> dict[str, Any]:
    """How many entries of each kind a reference has."""
    return {
        "model": stem,
        "name": one.name,
        "datasheet": len(one.peaks),
        "measured": len(one.measured),
        "cards": shown.most_cards(one),
        "published": len(one.published),
    }
