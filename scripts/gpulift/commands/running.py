"""`gpulift run`: measures, and what it shares with `bench`: which GPUs, which interpreter."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.commands import run_further, spell, spell_plan
from gpulift.commands.selecting import Axes, Ranks, SameFilter, Techniques, on_ranks, prepared
from gpulift.commands.shared import Out, Quick, Verbose, known_techniques
from gpulift.engine import libraries, machine, measuring
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground import place
from gpulift.ground.arguments import Filter, named, one_filter, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import OK
from gpulift.records.model import Context

Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        "--gpu",
        metavar="INDEX|UUID,...|all",
        help="The GPU by index or UUID, or several: 0,1; the first by default.",
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        parser=named, metavar="DIR", help="Folder on the disk that cases with files measure."
    ),
]
Python = Annotated[
    str | None,
    typer.Option(help="Interpreter or virtual environment of Python arms; else the set-up's."),
]
Within = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Measure whole cases, one after the other, as many as fit in TIME by what records"
        " say they take: 25m, 90s, 1500; called again, goes on with the rest.",
    ),
]
Plan = Annotated[
    bool,
    typer.Option("--plan", help="List the cases in that order, with seconds; measure nothing."),
]
Worth = Annotated[
    bool,
    typer.Option(
        "--worth",
        help="What records lack, first of results/BEGIN.md, then of claims, then of techniques.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="GPU", help="With --plan: whose records tell, as in h200; else this machine's."
    ),
]


def run(
    same: SameFilter = None,
    filter: Filter = None,
    quick: Quick = None,
    within: Within = None,
    worth: Worth = False,
    plan: Plan = False,
    model: Model = None,
    launches: Annotated[
        int | None,
        typer.Option(
            help="Processes per case; 3 by default, and 5 of whole training steps whose interval"
            " is wider than 2 %."
        ),
    ] = None,
    arm_time: Annotated[
        float | None, typer.Option(help="Seconds per arm, case and launch.")
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Stop at this relative half-width.")
    ] = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Seed of order and data.")] = None,
    gpus: Gpus = None,
    python: Python = None,
    scratch: Scratch = None,
    techniques: Techniques = None,
    axes: Axes = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which a silent case is stopped, 120 by default; whole training"
            " steps have eight times as long."
        ),
    ] = None,
    verbose: Verbose = False,
    ranks: Ranks = None,
) -> None:
    """Measure and append records; goes on with an unfinished run of the same command.

    ./gpulift run --worth --within 25m --plan: what half an hour would bring

    ./gpulift run --worth --within 25m: measures that; called again, goes on
    """
    asked = spell_plan.Asked(within, plan, worth, model)
    asked.require_fitting([*["--quick"] * (quick is not None), *["--ranks"] * (ranks is not None)])
    ends_s = time.monotonic() + asked.budget_s
    options = measuring.Options(
        one_filter(same, filter),
        quick is not None,
        launches,
        arm_time,
        precision,
        seed,
        python=interpreter(python),
        scratch=scratch,
        axes=tuple(axes or ()),
        timeout=timeout,
    )
    options, context = on_gpus(options, gpus)
    options = replace(options, more_modules=prepared(techniques))
    if asked:
        raise typer.Exit(_spell(asked, options, context, out, ends_s))

    def measure(options: measuring.Options) -> int:
        if quick is not None:
            budget_s = time_s("--quick", quick)
            known = _known(options)
            options = measuring.within(budget_s, options, known, context, say, verbose=verbose)

        def further(folder: Path) -> int | None:
            if launches is not None or quick is not None:
                return None
            return run_further.measure(folder, options, say)

        measured = measuring.run(options, machine.own_results(), out, context, say, further)
        return _ended(measured)

    raise typer.Exit(measure(options) if ranks is None else on_ranks(ranks, options, measure))


def _spell(
    asked: spell_plan.Asked,
    options: measuring.Options,
    context: Context,
    out: Path | None,
    ends_s: float,
) -> int:
    """The exit code of a run case by case, or of its plan."""
    steps = spell_plan.steps_here(asked, options, _known(options), context, out)
    if asked.plan:
        for line in spell.plan(steps, asked.budget_s, out):
            typer.echo(line)
        return OK
    if not steps:
        say("records lack nothing of it")
        return OK

    def part(folder: Path) -> tuple[int, bool]:
        return spell.measure(folder, steps, options, ends_s, say)

    return _ended(measuring.run(options, machine.own_results(), out, context, say, part=part))


def _ended(measured: measuring.Measured) -> int:
    if measured.exit_code in measuring.FINISHED and measured.folder.exists():
        typer.echo(measured.folder)
    return measured.exit_code


def _known(options: measuring.Options) -> list[TechniqueInfo]:
    """What can be measured with the interpreter of Python arms, which may have other packages."""
    if options.python is None and options.modules is None and not options.axes:
        return known_techniques(options.more_modules)
    return measuring.known(options)


def interpreter(named: str | None) -> Path | None:
    """The one of `--python`, which is told the libraries of a wheel."""
    if named is None:
        return None
    python = machine.find_python("--python", named)
    if place.INSTALLED:
        libraries.offer(python)
    return python


def on_gpus(options: measuring.Options, gpus: str | None) -> tuple[measuring.Options, Context]:
    """With the GPUs that were named, and what is known of the first; refuses what cannot be."""
    measuring.require_known(options)
    indices = () if gpus is None else machine.gpus_named(machine.find_bench(), gpus)
    context = machine.describe_all(machine.find_bench(), indices)
    if len(indices) == 1:
        return replace(options, gpu=indices[0]), context
    return replace(options, gpus=indices), context
