"""`gpulift reference`: what is known of a GPU model, and how it gets known."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from gpulift import commands, machine, tables
from gpulift.commands import Results
from gpulift.errors import GpuliftError
from gpulift.qualify import tables as shown
from gpulift.records.model import slug
from gpulift.records.read import read_results, run_folders
from gpulift.reference import build as reference_build
from gpulift.reference.entries import Reference, find_reference

app = typer.Typer(
    name="reference",
    help="What is known of a GPU model.",
    rich_markup_mode=None,
    add_completion=False,
)


@app.command()
def build(
    results: Results,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File to write; the model's in results/reference/ by default."),
    ] = None,
) -> None:
    """Makes or updates the measured entries of a model from records of its cards.

    Of a folder above run folders all runs count. Entries that they do not measure are kept.
    """
    runs = read_results(one for path in results for one in _every_run(path))
    model = runs[0].records[0].context.slug
    existing = find_reference(commands.results_folder(), model)
    made = reference_build.build(runs, existing, partial(typer.echo, err=True))
    if out is None and existing is not None:
        _require_as_many_cards(made, existing)
    file = out or commands.results_folder() / "reference" / f"{model}.json"
    reference_build.write(made, file)
    cards = max(entry.cards for entry in made.measured.values())
    typer.echo(f"{file}: {len(made.measured)} measured entries, from up to {cards} cards each")


def _every_run(path: Path) -> list[Path]:
    is_above = path.is_dir() and not any(path.glob("*.jsonl"))
    return (run_folders(path) if is_above else []) or [path]


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
        Optional[str],  # noqa: UP045
        typer.Argument(
            help="Model, as in `NVIDIA H200` or nvidia-h200; this machine's by default."
        ),
    ] = None,
) -> None:
    """All entries of a model with value, tolerance, conditions and source."""
    wanted = slug(gpu) if gpu else machine.describe(machine.find_bench()).slug
    found = find_reference(commands.results_folder(), wanted)
    if found is None:
        known = sorted(
            file.stem for file in (commands.results_folder() / "reference").glob("*.json")
        )
        raise GpuliftError(f"there is no reference of {wanted}; known are {', '.join(known)}")
    tables.console().print(shown.reference_table(found))
