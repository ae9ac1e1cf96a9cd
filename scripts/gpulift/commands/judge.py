"""`gpulift judge BASE HEAD --task TASK`: a candidate that may be written to win."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gpulift.gate.answer import answer
from gpulift.gate.asked import THRESHOLD, require_new
from gpulift.gate.commands import callers_environment
from gpulift.gate.conditions import processor
from gpulift.gate.evidence import BASE, HEAD
from gpulift.gate.repositories import cache_folder
from gpulift.ground.arguments import named, require_above_0, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.judge import run as judging
from gpulift.judge.side import Limits, require_linux
from gpulift.judge.task import read_source, read_task
from gpulift.verdicts import table

MEBI, GIGA = 1 << 20, 1e9


def judge(
    base: Annotated[
        Path, typer.Argument(parser=named, metavar="BASE", help="A Python file with the function.")
    ],
    head: Annotated[
        Path, typer.Argument(parser=named, metavar="HEAD", help="One that is said to be faster.")
    ],
    task: Annotated[
        Path,
        typer.Option(
            parser=named,
            metavar="TASK",
            help="What they do, as in scripts/gpulift/judge/README.md.",
        ),
    ],
    budget: Annotated[
        str | None, typer.Option(help="Time to end in: 300s, 10m, 1h. Five minutes by default.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="The least change that is called one.")
    ] = THRESHOLD,
    timeout: Annotated[float, typer.Option(help="Seconds that a call may take.")] = Limits.call_s,
    memory: Annotated[
        int, typer.Option(min=1, help="MiB of addresses that a candidate may have.")
    ] = Limits.memory // MEBI,
    bandwidth: Annotated[
        float | None, typer.Option(help="The machine's roof in GB/s, instead of measuring it.")
    ] = None,
    flops: Annotated[
        float | None, typer.Option(help="The machine's roof in GFLOP/s, instead of measuring it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(parser=named, metavar="FOLDER", help="Folder for the evidence.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
) -> None:
    """Head against base, where the head may be written to win: its own clocks, events and claims
    are never asked. 1 slower or refused, 3 a control failed, 4 the base is refused, 5 inconclusive.

    \b
    gpulift judge softmax.py faster.py --task softmax_task.py
    gpulift judge old.py new.py --task step_task.py --threshold 0.02 --budget 15m
    """
    _require_sound(threshold, timeout, {"--bandwidth": bandwidth, "--flops": flops}, out)
    asked = judging.Asked(
        task=read_task(task),
        base=read_source(BASE, base),
        head=read_source(HEAD, head),
        threshold=threshold,
        limits=Limits(timeout, memory * MEBI),
        budget_s=None if budget is None else time_s("--budget", budget),
        bandwidth=bandwidth and bandwidth * GIGA,
        operations=flops and flops * GIGA,
        out=out,
    )
    cache = cache_folder(callers_environment())
    judged = judging.run(asked, processor(), cache, say)
    _show(judged, as_json)
    raise typer.Exit(judged.found.exit_code)


def _require_sound(
    threshold: float, timeout: float, roofs: Mapping[str, float | None], out: Path | None
) -> None:
    require_linux()
    for option, value in {"--timeout": timeout, **roofs}.items():
        if value is not None:
            require_above_0(option, value)
    if not 0 < threshold < 1:
        raise GpuliftError(f"--threshold {threshold:g}: a fraction, as 0.02 for 2 %")
    if out is not None:
        require_new(out)


def _show(judged: judging.Judged, as_json: bool) -> None:
    found = judged.found
    if isinstance(found, judging.Refusal):
        told = {"verdict": judging.REFUSED, **vars(found), "exit_code": found.exit_code}
        document = {**told, "conditions": judged.conditions}
        typer.echo(json.dumps(document, indent=2) if as_json else found.line)
    else:
        form = table.Output("json" if as_json else "lines")
        table.show(answer(found, judged.folder), [form])
    for line in () if as_json else judged.conditions:
        typer.echo(line)
