"""`gpulift advise -- CMD`: what each technique is worth in a training script, unedited."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from gpulift.advise import rounds
from gpulift.advise.plan import require_known
from gpulift.advise.process import Command, require_open
from gpulift.advise.progress import Progress
from gpulift.advise.records import records_of, require_new, write
from gpulift.advise.rounds import Asked, Measured
from gpulift.advise.table import print_advice
from gpulift.commands.shared import print_json
from gpulift.engine.runs import make_new
from gpulift.gate.commands import callers_environment
from gpulift.ground import place, terminal
from gpulift.ground.arguments import Json, Wide, named, require_above_0, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import FAILED, INTERRUPTED, GpuliftError
from gpulift.ground.programs import require_program

SILENCE_S = 600.0
THROWN_AWAY = (
    "the command is started several times and stopped when it was measured: whatever it writes,"
    " checkpoints too, is of no use, and takes the place of what was there: run it in a copy of its"
    " folder if that is wanted; Weights & Biases is off unless WANDB_MODE is set"
)
HINDERED = (
    "the command cannot be started again, maybe by what a process of it left behind: it is stopped"
    " within a step, and leaves out `finally` and `with`; the next"
)


def advise(
    command: Annotated[
        list[str], typer.Argument(metavar="-- CMD...", help="What trains, after `--`.")
    ],
    launches: Annotated[
        int | None,
        typer.Option(min=1, help="Processes of each kind; 4, or as many as --within has time for."),
    ] = None,
    within: Annotated[str | None, typer.Option(help="Time for all of them: 300s, 10m, 1h.")] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these changes, as `fused,workers`.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARGUMENTS",
            help="What to append to the command as one more change: '--bf16'; may be repeated.",
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="One process, which trains on to its end: only changes that keep every bit.",
        ),
    ] = False,
    launch: Annotated[
        bool,
        typer.Option("--launch", help="Only what is set ahead of a process; no step is replayed."),
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which a process that says nothing is stopped.")
    ] = SILENCE_S,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="DIR",
            help=f"Folder for the records, a new one; by default one in {place.RESULTS}.",
        ),
    ] = None,
    as_json: Json = False,
    wide: Wide = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the command writes.")
    ] = False,
) -> None:
    """What each technique is worth in a training script of yours, which stays as it is.

    The command is started several times; steps are taken again with and without each change, and
    what has to be set ahead of a process is compared from process to process. Exit code 5 where its
    steps never take as long as those before.
    """
    if live and (launch or vary or within):
        what = "--launch, --vary and --within"
        raise GpuliftError(f"--live starts one process, as it is: leave out {what}")
    require_above_0("--timeout", timeout)
    environment = callers_environment()
    job = Command(tuple(command), environment, timeout, live, verbose, live and as_json)
    asked = Asked(
        job,
        "live" if live else "launch" if launch else "replay",
        launches,
        tuple(name for name in (only or "").split(",") if name),
        tuple(tuple(_words(text)) for text in vary or ()),
        None if within is None else time_s("--within", within),
    )
    _require(asked, only, out)
    if not live:
        say(THROWN_AWAY)
    measured = _Shown(job, out, as_json, wide).of(asked)
    if measured.interrupted:
        raise typer.Exit(INTERRUPTED)
    if measured.hindered:
        raise GpuliftError(f"{HINDERED}: {measured.hindered}", FAILED)
    if measured.code:
        raise GpuliftError(f"the command ended with code {measured.code}", FAILED)


def _words(text: str) -> Sequence[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise GpuliftError(f"--vary {text}: {error}") from None
    if not words:
        raise GpuliftError("--vary: give what to append to the command")
    return words


def _require(asked: Asked, only: str | None, out: Path | None) -> None:
    """Before anything is started."""
    if only is not None and not asked.only:
        raise GpuliftError("--only: name a change")
    require_known(asked.only)
    require_open(asked.command)
    program = asked.command.arguments[0]
    if not program:
        raise GpuliftError("name a command after --")
    require_program(program, asked.command.environment.get("PATH"))
    if out is not None:
        require_new(out)


class _Shown:
    """Shows what was measured, once: of a training that goes on, as soon as that is known."""

    def __init__(self, job: Command, out: Path | None, as_json: bool, wide: bool) -> None:
        self._job, self._out, self._as_json, self._wide = job, out, as_json, wide
        self._started = datetime.now(timezone.utc)
        self._is_done = False

    def of(self, asked: Asked) -> Measured:
        """Measures, and shows what there is, if anything."""
        with Progress(shows_output=self._job.verbose or self._job.passes) as progress:
            measured = rounds.measure(asked, progress, self._show)
        if not self._is_done and any(one.steps_s for one in measured.processes):
            self._show(measured)
        return measured

    def _show(self, measured: Measured) -> None:
        self._is_done = True
        advice = measured.advice()
        if self._as_json:
            print_json(asdict(advice))
        else:
            print_advice(advice, terminal.console(wide=self._wide))
        turns = [*measured.turns, *measured.together]
        started_at = self._started.strftime("%Y-%m-%dT%H:%M:%SZ")
        command = self._job.arguments
        records = records_of(measured.replays, turns, command, started_at, measured.cached)
        out = self._out or make_new(place.RESULTS / "advise", started_at[:10])
        write(records, out)
        say(f"records: {out}")
