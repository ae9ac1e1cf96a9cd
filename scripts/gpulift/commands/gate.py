"""`gpulift gate`: head against base, the verdict for CI."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands.gate_options import origin_of, require_fitting
from gpulift.commands.selecting import SameFilter
from gpulift.commands.shared import Gpu
from gpulift.gate import sealed
from gpulift.gate.answer import answer
from gpulift.gate.asked import COMMAND, THRESHOLD, TIMEOUT_S, Asked, pythons_of
from gpulift.gate.commands import callers_environment
from gpulift.gate.evidence import Evidence
from gpulift.gate.judge import GateResult, judge
from gpulift.gate.metrics import Metric
from gpulift.gate.plan import judged_again, measured, planned
from gpulift.gate.same import Outputs
from gpulift.ground.arguments import (
    Explained,
    Filter,
    Forms,
    named,
    one_filter,
    require_free,
    time_s,
)
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.verdicts import table, thresholds
from gpulift.verdicts.decision import ARM_TIME_S
from gpulift.verdicts.row import Row, Table


def gate(
    context: typer.Context,
    same: SameFilter = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- CMD...]",
            help="A command of your own, in any git repository; or, instead of a filter, one Python"
            " file for `bench`.",
        ),
    ] = None,
    filter: Filter = None,
    base: Annotated[
        str | None, typer.Option(help="Git reference or build folder to judge against.")
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help="Git reference or build folder to judge; this checkout by default."),
    ] = None,
    base_python: Annotated[
        str | None,
        typer.Option(help="Instead of --base: Python environment to judge against, on one build."),
    ] = None,
    head_python: Annotated[
        str | None,
        typer.Option(help="Python environment to judge: an interpreter or a virtual environment."),
    ] = None,
    all_cases: Annotated[
        bool, typer.Option("--all", help="All cases, not the quick ones.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time to end in, builds included: 300s, 10m, 1h. The rest is inconclusive."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(parser=named, metavar="FOLDER", help="Folder for the evidence.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FOLDER",
            help="Judge the evidence in this folder again; nothing is measured.",
        ),
    ] = None,
    explain: Explained = None,
    forms: Forms = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of order and data.")] = 1,
    gpu: Gpu = None,
    arm_time: Annotated[
        float, typer.Option(help="Seconds per build, comparison and launch.")
    ] = ARM_TIME_S,
    thresholds_file: thresholds.ThresholdsFile = None,
    with_tool: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="TOOL",
            help="What says the numbers of what stands behind --: command, gbench or nvbench (a"
            " program of Google Benchmark or NVBench), or pytest (pytest-benchmark).",
        ),
    ] = COMMAND,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Of a command: wall (the default); cpu or instructions, of all that it starts,"
            " less noisy, but no elapsed time, so that a change that only waits is not seen;"
            " stdout:REGEX with a group (else on stderr); FILE.json:PATH. Lower is better; may be"
            " repeated.",
        ),
    ] = None,
    higher: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="A metric of which more is better; may be repeated."),
    ] = None,
    setup: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="Shell command that prepares either checkout once, and where it calls pip has an"
            " environment of its own on each side; $GPULIFT_CHECKOUT is yours.",
        ),
    ] = "",
    plant: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="The command with a slow-down in its work, which the gate must find; else numbers"
            " are made worse.",
        ),
    ] = "",
    threshold: Annotated[
        float, typer.Option(help="Of a command: the least change that is called one.")
    ] = THRESHOLD,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a run of a command, or its set-up, may take.")
    ] = TIMEOUT_S,
    equal: Annotated[
        list[str] | None,
        typer.Option(
            "--same",
            metavar="OUTPUT",
            help="Of a command: a file that it writes, or stdout:REGEX, which every run of both"
            " sides must have alike, else the exit code is 4; may be repeated.",
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Of --same: how far numbers may be apart, as a fraction.")
    ] = 0.0,
    certificate: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FILE.json",
            help="Write all that was measured into one file, which `verify FILE.json` checks.",
        ),
    ] = None,
) -> None:
    """Head against base on one card, confirmed on fresh launches: 1 regressed, 3 instrument broken,
    4 not comparable, 5 inconclusive.

    Without a command it judges gpulift's own techniques, built at both references.

    gate --base main --same loss.txt -- python train.py

    gate --base main --certificate faster.json -- python train.py
    """
    asked = Asked(
        started_s=time.monotonic(),
        base=base,
        head=head,
        pythons=pythons_of(base, head, base_python, head_python),
        budget_s=None if budget is None else time_s("--budget", budget),
        seed=seed,
        gpu=gpu,
        out=out,
        thresholds=thresholds.read(thresholds_file),
        origin=origin_of(context, command),
        certified=certificate is not None,
        filter=None if command else one_filter(same, filter),
        all_cases=all_cases or base_python is not None,  # those of Python arms are never quick
        arm_time_s=arm_time,
        command=tuple(command or ()),
        script=script_of(same, command),
        with_tool=with_tool,
        metrics=tuple(metrics_of(metric, higher)),
        setup=setup,
        plant=plant,
        threshold=threshold,
        timeout_s=timeout,
        same=Outputs(tuple(equal or ()), tolerance),
    )
    require_fitting(context, replay is not None, asked.of_command)
    shown = Shown(table.outputs(forms or (), explain), explain, certificate)
    shown.require_sound(asked)
    if replay is not None:
        raise typer.Exit(shown.show(judged_again(replay), replay))
    if base is None and asked.pythons is None:
        raise GpuliftError("name either --base REF to measure, or --replay FOLDER")
    with planned(asked, callers_environment(), say) as plan:
        if explain is not None:  # refuses a name of none
            shown.rows(answer(judge(Evidence(plan.setup)), plan.folder))
        raise typer.Exit(shown.show(measured(plan), plan.folder))


@dataclass(frozen=True)
class Shown:
    """The forms in which verdicts are shown, the rows that are explained, and the certificate."""

    outputs: Sequence[table.Output]
    explained: str | None
    certificate: Path | None

    def require_sound(self, asked: Asked) -> None:
        """Refuses, before anything is measured, what could not be shown."""
        if self.certificate is None:
            return
        require_free(self.certificate, None, sealed.BEGINNING)
        sealed.require_public(asked.origin)
        if asked.pythons is not None:
            raise GpuliftError("--certificate is of two commits: give --base, no interpreters")

    def rows(self, made: Table) -> list[Row]:
        """Those that are explained."""
        return [] if self.explained is None else table.rows_named(made, self.explained)

    def show(self, result: GateResult, folder: Path) -> int:
        """Shows it all; returns the exit code."""
        made = answer(result, folder)
        rows = self.rows(made)
        table.show(made, self.outputs)
        for line in table.explained(rows):
            typer.echo(visible(line))
        if self.certificate is not None:
            say(sealed.write(folder, self.certificate))
        return result.exit_code


def script_of(same: str | None, command: Sequence[str] | None) -> str:
    """The Python file that is named in place of a filter, if there is one."""
    script = same if same and same.endswith(".py") else ""
    if script and not Path(script).is_file():
        raise GpuliftError(f"{script}: there is no such file")
    if command and same and not script:
        raise GpuliftError(f"{same!r} is one argument too many: a command stands behind --")
    return script


def metrics_of(metric: Sequence[str] | None, higher: Sequence[str] | None) -> Iterator[Metric]:
    """Those of which less is better first."""
    yield from (Metric(source) for source in metric or ())
    yield from (Metric(source, higher=True) for source in higher or ())
