"""`gpulift watch`. What reads processes and cards is imported when it is asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from gpulift.ground.arguments import named
from gpulift.ground.errors import GpuliftError

LEAST_S = 0.01


def watch(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="The job to start, after `--`.")
    ] = None,
    pid: Annotated[
        int | None, typer.Option(help="A job that runs already; it is left running.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds from sample to sample.")] = 1.0,
    log: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE.jsonl", help="Each sample as a line of JSON."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE.svg", help="All of it as a picture, at the end."),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FILE",
            help="The newest sample as Prometheus text, for the collector of node_exporter.",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FOLDER",
            help="Each sample as scalars of TensorBoard; takes the Python package tensorboard.",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            "--gpu",
            metavar="INDEX|UUID,...",
            help="The GPUs to watch, as nvidia-smi counts them, or by UUID; all by default.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files.")] = False,
) -> None:
    """What a job does while it runs: processor, waiting, memory, disk, network and GPUs.

    The job is not slowed by more than the watch says of itself, and not stopped: signals and its
    exit code are passed on. Output is on stderr. The first thread is that of the process itself,
    as of `python train.py`; behind a launcher it is the launcher's.
    """
    if (pid is None) == (not command):
        raise GpuliftError("watch: give either --pid PID or, after --, the command of a job")
    if not LEAST_S <= interval < math.inf:
        raise GpuliftError(f"--interval {interval}: give seconds, {LEAST_S} or more")
    if prometheus is not None and str(prometheus).isdecimal():
        raise GpuliftError(f"--prometheus {prometheus}: name a file; ports are no longer served")
    from gpulift.watch import session

    options = session.Options(
        command=tuple(command or ()),
        pid=pid,
        interval_s=interval,
        log=log,
        picture=picture,
        prometheus=prometheus,
        tensorboard=tensorboard,
        gpus=gpus,
        force=force,
    )
    raise typer.Exit(session.run(options))
