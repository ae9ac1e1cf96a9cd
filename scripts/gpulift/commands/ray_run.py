"""`gpulift ray run`: ranks on nodes of a Ray cluster, which measure together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpulift.fleet.jobs import IN_SHARED, Answer, Job, run_all
from gpulift.fleet.kept import RESULTS
from gpulift.fleet.logs import LOG_FILE
from gpulift.fleet.ray_nodes import Ray
from gpulift.fleet.schedulers import Node
from gpulift.ground.arguments import named
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.ground.text import visible

LEAST = 2  # nodes: one alone needs no Ray

app = typer.Typer(
    name="ray",
    help="Ranks on nodes of a Ray cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def _commands() -> None:
    """So that `run` has to be named."""


@app.command()
def run(
    filter: Annotated[str, typer.Argument(metavar="FILTER", help="As that of run.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="-- OPTIONS", help="Further ones of run.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=LEAST, help="How many.")] = LEAST,
    address: Annotated[
        str, typer.Option(help="Of the cluster; by default the one that Ray finds itself.")
    ] = "auto",
    out: Annotated[
        Path,
        typer.Option(parser=named, metavar="FOLDER", help="That the nodes share, for the records."),
    ] = Path("gpulift-ray"),
) -> None:
    """Run on nodes of Ray, a rank for each GPU that all of them have, one where they have none.

    The exit code is that of run."""
    ray = Ray(address)
    chosen = able(ray.nodes(), nodes)
    folder = out.absolute()
    asked = ["run", filter, *(options or ()), "--ranks", "given", "--out", str(folder / RESULTS)]
    command = ["sh", "-c", IN_SHARED, str(folder), *ray.gpulift, *asked]
    job = Job("run", folder, chosen, ray.commands(chosen, command))
    answers: list[Answer] = []
    say(f"on {', '.join(node.name for node in chosen)}; what they say is in {folder / LOG_FILE}")
    run_all([job], 1, math.inf, lambda _, answer: answers.append(answer))
    (answer,) = answers
    if answer.code is None:
        raise GpuliftError(f"ray run: {visible(answer.why)}; see {folder / LOG_FILE}", FAILED)
    if (folder / RESULTS).is_dir():
        typer.echo(folder / RESULTS)
    raise typer.Exit(answer.code)


def able(listed: Sequence[Node], wanted: int) -> list[Node]:
    """So many that can run something. Throws GpuliftError where there are fewer."""
    found = [node for node in listed if not node.lacking][:wanted]
    if len(found) < wanted:
        raise GpuliftError(f"--nodes {wanted}: {len(found)} can be reached")
    return found
