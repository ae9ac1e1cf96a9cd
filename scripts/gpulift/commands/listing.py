"""`gpulift list`: what can be measured, by theme, and why some of it cannot run here."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import shorten
from typing import Annotated

import typer

from gpulift.commands.selecting import Axes, SameFilter, Techniques, prepared
from gpulift.engine import machine, packages
from gpulift.engine.machine import TechniqueInfo
from gpulift.ground import terminal
from gpulift.ground.arguments import Filter, Json, one_filter
from gpulift.ground.field import in_our_words
from gpulift.ground.text import visible
from gpulift.records.model import Context
from gpulift.records.read import run_folders

# What most training jobs can turn on: a number format, a compiler, fused attention, a fused
# optimizer, a way of loading, several GPUs. Each measures whole steps, or what feeds them.
FIRST = (
    "precision/training_step",
    "compile/torch_compile",
    "attention/sdpa",
    "optimizer/step_share",
    "input/pipeline",
    "distributed/data_parallel",
)
GAINS = (
    "×: the gain that speaks for it, ●●● from three launches on each of two cards, ●●○ from three,"
    " ●○○ from fewer, on"
)
NO_GAINS: Mapping[str, str] = {}
LEAST_COLUMNS = 20  # of a text that is shortened

Wide = Annotated[
    bool, typer.Option("--wide", help="Whole questions, needed GPUs, and how many cases.")
]


def list_techniques(
    same: SameFilter = None,
    filter: Filter = None,
    techniques: Techniques = None,
    axes: Axes = None,
    themes: Annotated[bool, typer.Option("--themes", help="A line for each theme.")] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """What can be measured, and whether it can run on this machine; of each technique the cases
    that the filter selects."""
    modules = prepared(techniques)
    bench = machine.find_bench()
    wanted = in_our_words(one_filter(same, filter))
    infos = machine.catalogue(bench, modules, axes=axes or (), filter=wanted)
    found = machine.select(infos, wanted, re.IGNORECASE) or machine.require_selected(infos, wanted)
    known = packages.with_missing(found, [bench.parent / "modules", *modules])
    chosen = sorted(known, key=lambda info: info.id)
    context = machine.describe(bench)
    if as_json:
        told = [{**asdict(one), "not_here": one.not_here(context)} for one in chosen]
        typer.echo(json.dumps(told, indent=2, allow_nan=False, default=str))
        return
    shown = (
        theme_lines(chosen, context)
        if themes
        else lines(chosen, context, wide, gains_here(chosen, context))
    )
    for line in shown:
        typer.echo(line)


def gains_here(infos: Sequence[TechniqueInfo], context: Context) -> dict[str, str]:
    """`1.24× ●●○` of each technique of which the checkout has a figure of this GPU model."""
    folders = run_folders(machine.results_folder() / context.slug) if context.gpu else []
    if not folders:
        return {}
    from gpulift.analysis.known import gains_of_model

    stems = {info.id.replace("/", ".") for info in infos}
    found = gains_of_model(machine.results_folder(), folders, stems)
    return {id: gain.told for id, gain in found.items()}


def lines(
    infos: Sequence[TechniqueInfo],
    context: Context,
    wide: bool,
    gains: Mapping[str, str] = NO_GAINS,
) -> Iterator[str]:
    """A line for each technique, with its gain where one is known, and an empty one between themes;
    then each reason why some cannot run, once."""
    why = {info.id: info.told_not_here(context) for info in infos}
    reasons = Counter(filter(None, why.values())).most_common()
    numbers = {reason: str(number) for number, (reason, _) in enumerate(reasons, start=1)}
    longest = max(len(info.id) for info in infos)
    widest = max(map(len, gains.values()), default=0)
    for number, (_, members) in enumerate(groupby(infos, _theme)):
        yield from [""] if number else []
        for info in members:
            star = "*" if info.id in FIRST else " "
            begun = f"{star} {numbers.get(why[info.id], ''):1} {info.id:{longest}}  "
            begun += f"{gains.get(info.id, ''):>{widest}}  " if gains else ""
            told = f"{info.question} ({_details(info)})" if wide else _short(info.question, begun)
            yield visible(f"{begun}{told}".rstrip())
    yield ""
    if any(info.id in FIRST for info in infos):
        yield "* to begin with: most training jobs can turn it on"
    if gains:
        yield f"{GAINS} {context.gpu.name if context.gpu else 'this machine'}"
    for reason, count in reasons:
        yield visible(f"{numbers[reason]} cannot run here: {reason} ({_counted(count)})")
    here = len(infos) - sum(count for _, count in reasons)
    yield f"{_counted(len(infos))}, of which {here} can run here; list --themes sums them up"


def theme_lines(infos: Sequence[TechniqueInfo], context: Context) -> Iterator[str]:
    """Of each theme how many techniques can run here, and their names."""
    longest = max(len(_theme(info)) for info in infos)
    for theme, members in groupby(infos, _theme):
        of_theme = list(members)
        here = sum(not info.not_here(context) for info in of_theme)
        names = ", ".join(info.id.partition("/")[2] for info in of_theme)
        begun = f"{theme:{longest}}  {here:3} of {len(of_theme):2} here  "
        yield visible(f"{begun}{_short(names, begun)}")


def _theme(info: TechniqueInfo) -> str:
    return info.id.partition("/")[0]


def _details(info: TechniqueInfo) -> str:
    gpus = f"{info.gpus} GPUs" if info.gpus > 1 else "GPU" if info.gpus else "CPU"
    quick = sum(case.quick for case in info.cases)
    return f"{gpus}, cases: {len(info.cases)}, quick: {quick}"


def _counted(techniques: int) -> str:
    return "1 technique" if techniques == 1 else f"{techniques} techniques"


def _short(text: str, beside: str) -> str:
    """As much of the text as there is room for beside another, by whole words."""
    room = max(LEAST_COLUMNS, terminal.columns() - len(beside))
    return shorten(text, room, placeholder=" …", break_on_hyphens=False)
