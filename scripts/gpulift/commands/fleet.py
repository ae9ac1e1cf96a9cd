"""`gpulift fleet`: the nodes that a scheduler has, measured and judged among each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.analysis.machine.results import PASS
from gpulift.fleet import state
from gpulift.fleet.judge import MOST_NAMED, judge_fleet
from gpulift.fleet.kubernetes import Kubernetes
from gpulift.fleet.measuring import FleetRun, expected_nodes
from gpulift.fleet.ray_nodes import Ray
from gpulift.fleet.schedulers import Scheduler
from gpulift.fleet.slurm import Slurm
from gpulift.ground.arguments import named, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.lock import alone
from gpulift.ground.text import some, visible

FOLDER = Path("gpulift-fleet")
LOCK_FILE = ".lock"
OPTIONS = ("--quick", "--gpus", "all")
ALONE = "--burn"  # of a node's qualify, which takes no --quick
HELP = "All nodes of a scheduler: each qualified, then pairs and groups; which is an outlier."

app = typer.Typer(
    name="fleet", help=HELP, no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command()
def qualify(
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- OPTIONS", help=f"Of each node's qualify, added to {' '.join(OPTIONS)}."
        ),
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(
            metavar="PARTITION",
            help="Nodes of this partition, which share FOLDER and this gpulift.",
        ),
    ] = None,
    kubernetes: Annotated[
        str | None,
        typer.Option(metavar="NAMESPACE", help="Nodes with a pod of ci/cluster/fleet.yaml."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Nodes of the Ray cluster there, with gpulift at the same place.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(parser=named, metavar="FOLDER", help="Where all of it is kept.")
    ] = FOLDER,
    nodes: Annotated[int | None, typer.Option(min=1, help="So many nodes; all by default.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="CSV", help="Lines of node,rack, for the heat map."),
    ] = None,
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="For each node, pair or group, its queue included.")
    ] = "2h",
) -> None:
    """Qualify each node, then pairs of nodes in rounds, then groups of 8: a verdict for each node,
    one page. Each takes its nodes whole. What FOLDER holds is not measured again.

    Exit code 1 where a node fails or does not answer, 5 where one is inconclusive, or where a pair
    or group has a fault that no node explains, 77 where nothing could run.
    """
    limit_s = time_s("--wait", wait)
    scheduler = _scheduler(slurm, kubernetes, ray)
    racks = None if labels is None else state.read_labels(labels)
    folder = out.absolute()
    listed = scheduler.nodes()
    state.prepare(folder)
    with alone(folder / LOCK_FILE, lambda: say(f"another call measures in {out}; waiting for it")):
        wanted = _wanted(options or ())
        held = state.read_expected(folder, scheduler.name, wanted)
        expected = expected_nodes(held.nodes, listed, nodes)
        given = held.labels if racks is None else racks
        state.write_expected(folder, replace(held, nodes=expected, labels=given))
        unknown = sorted(set(given) - set(expected))
        if unknown:
            names = some(unknown, MOST_NAMED)
            say(f"--labels: {len(unknown)} of {len(given)} are no nodes of this fleet: {names}")
        FleetRun(scheduler, folder, wanted, limit_s, say).measure(expected, listed)
        raise typer.Exit(_judged(folder))


def _wanted(options: Sequence[str]) -> tuple[str, ...]:
    burns = any(option.partition("=")[0] == ALONE for option in options)
    return (*OPTIONS[burns:], *options)


def _scheduler(slurm: str | None, kubernetes: str | None, ray: str | None) -> Scheduler:
    makers: list[tuple[str | None, Callable[[str], Scheduler]]] = [
        (slurm, Slurm),
        (kubernetes, Kubernetes),
        (ray, Ray),
    ]
    asked = [(name, make) for name, make in makers if name is not None]
    if len(asked) != 1:
        raise GpuliftError("give one of --slurm PARTITION, --kubernetes NAMESPACE, --ray ADDRESS")
    ((name, make),) = asked
    if not name:
        raise GpuliftError("the name of what has the nodes is empty")
    return make(name)


def _judged(folder: Path) -> int:
    """Says which nodes do not pass, and why; the exit code."""
    from gpulift.fleet.page import write_page  # which takes a second

    fleet = judge_fleet(folder)
    page = write_page(fleet, folder)
    for node in fleet.nodes:
        if node.verdict != PASS:
            typer.echo(visible(f"{node.name}: {node.verdict}: {'; '.join(node.reasons)}"))
    for fault in fleet.faults:
        typer.echo(visible(fault.sentence))
    typer.echo(f"{fleet.sentence}; report: {page}")
    return fleet.exit_code
