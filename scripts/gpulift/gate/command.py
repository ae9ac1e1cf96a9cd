"""`gpulift gate`: head against base, the verdict for CI."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from gpulift import machine
from gpulift.arguments import named, time_s
from gpulift.commands import Gpu
from gpulift.compare import thresholds
from gpulift.decision import ARM_TIME_S, DECISION_METHOD
from gpulift.errors import NOT_COMPARABLE, GpuliftError
from gpulift.gate import output as gate_output
from gpulift.gate.attribution import attribute
from gpulift.gate.builds import Build, BuildFailed, find_build, own_build, require_known
from gpulift.gate.environments import Sides, asked_environments, find_sides
from gpulift.gate.evidence import Evidence, read_evidence, require_one_machine, save
from gpulift.gate.judge import GateResult, RowResult, judge
from gpulift.gate.launches import read_records
from gpulift.gate.measure import Settings, measure
from gpulift.gate.setup import Asked, make_gate, make_setup, require_sound

# What a replay takes from its folder, by its name on the command line.
MEASURED_WITH = {
    "base": "--base",
    "head": "--head",
    "base_python": "--base-python",
    "head_python": "--head-python",
    "filter": "the filter",
    "all_cases": "--all",
    "budget": "--budget",
    "out": "--out",
    "seed": "--seed",
    "gpu": "--gpu",
    "arm_time": "--arm-time",
    "thresholds_file": "--thresholds",
}


def gate(
    context: typer.Context,
    filter: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Regular expression on technique/case/arm; -- -RE excludes."),
    ] = None,
    base: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Git reference or build folder to judge against."),
    ] = None,
    head: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Git reference or build folder to judge; this checkout by default."),
    ] = None,
    base_python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Instead of --base: Python environment to judge against, on one build."),
    ] = None,
    head_python: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Python environment to judge: an interpreter or a virtual environment."),
    ] = None,
    all_cases: Annotated[
        bool, typer.Option("--all", help="All cases, not the quick ones.")
    ] = False,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Time to end in, builds included: 300s, 10m, 1h. The rest is inconclusive."
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(parser=named, metavar="FOLDER", help="Folder for the evidence."),
    ] = None,
    replay: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=named,
            metavar="FOLDER",
            help="Judge the evidence in this folder again; nothing is measured.",
        ),
    ] = None,
    explain: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="CASE",
            help="From windows to verdict; CASE is a part of technique/case/arm.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
    github: Annotated[
        bool, typer.Option("--github", help="Workflow commands of GitHub as well.")
    ] = False,
    junit: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(parser=named, metavar="FILE", help="Write JUnit XML to this file."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of order and data.")] = 1,
    gpu: Gpu = None,
    arm_time: Annotated[
        float, typer.Option(help="Seconds per build, comparison and launch.")
    ] = ARM_TIME_S,
    thresholds_file: thresholds.ThresholdsFile = None,
) -> None:
    """Head against base on one card, confirmed on fresh launches: 1 regressed, 3 instrument broken,
    4 not comparable, 5 inconclusive."""
    started_s = time.monotonic()
    environments = asked_environments(base, head, base_python, head_python)
    if base is None and replay is None and environments is None:
        raise GpuliftError("name either --base REF to measure, or --replay FOLDER")
    if replay is not None:
        _require_alone(context)
    if as_json and (github or explain is not None):
        raise GpuliftError("--json stands alone: it has every step of every verdict")
    if not arm_time > 0:
        raise GpuliftError(f"--arm-time must be more than 0, not {arm_time}")
    if junit is not None and not junit.absolute().parent.is_dir():
        raise GpuliftError(f"--junit {junit}: there is no such folder")
    limit_s = None if budget is None else time_s("--budget", budget)
    if replay is not None:
        result, folder = judge_again(replay), replay
    else:
        asked = Asked(
            base or "",
            head,
            filter,
            all_cases or environments is not None,  # cases of Python arms are too slow to be quick
            limit_s,
            seed,
            Settings(arm_time, gpu),
            out,
            started_s,
            environments,
            thresholds.read(thresholds_file),
        )
        result, folder = _measured(asked, explain)
    explained = [] if explain is None else gate_output.rows_of(result, explain)
    if junit is not None:
        gate_output.write_junit(result, junit)
    _show(result, folder, explained, as_json, github)
    raise typer.Exit(result.exit_code)


def _require_alone(context: typer.Context) -> None:
    """Refuses what a replay would have to ignore."""
    sources = {name: context.get_parameter_source(name) for name in MEASURED_WITH}
    given = [MEASURED_WITH[k] for k, one in sources.items() if one and one.name == "COMMANDLINE"]
    if given:
        raise GpuliftError(
            "--replay judges what its folder holds and measures nothing: leave out"
            f" {', '.join(given)}"
        )


def judge_again(folder: Path) -> GateResult:
    """The verdicts of a gate from its evidence; refuses those of another decision method."""
    evidence = read_evidence(folder)
    if evidence.setup.method != DECISION_METHOD:
        raise GpuliftError(
            f"{folder} was judged by decision method {evidence.setup.method}, and this is"
            f" {DECISION_METHOD}: check out the commit that made it",
            NOT_COMPARABLE,
        )
    require_one_machine(folder)
    return judge(evidence)


def _measured(asked: Asked, explain: str | None) -> tuple[GateResult, Path]:
    require_sound(asked)
    sides = _sides(asked)
    base, head, infos = sides.base, sides.head, sides.head_infos
    setup = make_setup(asked, base, head, sides.base_infos, infos)
    if explain is not None:
        gate_output.rows_of(judge(Evidence(setup)), explain)  # refuses a name that is none
    made = make_gate(asked, setup, infos, base, head, _say)
    _say(f"base {setup.base}, head {setup.head}: {setup.mode}; evidence goes to {made.folder}")
    evidence = measure(made, setup)
    require_one_machine(made.folder)
    result = judge(evidence)
    if evidence.ended:  # one that the budget broke off has no result, as after an interrupt
        save(made.folder, evidence.setup, _document(result, made.folder))
    return result, made.folder


def _sides(asked: Asked) -> Sides:
    if asked.environments is not None:
        return find_sides(asked, *asked.environments, _say)
    base, head = _builds(asked)
    return Sides(base, head, machine.catalogue(base.bench), machine.catalogue(head.bench))


def _builds(asked: Asked) -> tuple[Build, Build]:
    gpu, until_s = asked.settings.gpu, asked.until_s
    require_known([one for one in (asked.base, asked.head) if one is not None], gpu)
    try:
        base = find_build(asked.base, gpu, _say, until_s)
        if asked.head is None:
            return base, own_build(gpu)
        return base, find_build(asked.head, gpu, _say, until_s)
    except BuildFailed as failed:
        typer.echo(failed.said, err=True)
        raise


def _show(
    result: GateResult, folder: Path, explained: Sequence[RowResult], as_json: bool, github: bool
) -> None:
    if as_json:
        document = {**_document(result, folder), "evidence": str(folder)}
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    for text in gate_output.lines(result):
        typer.echo(text)
    if explained:
        records = read_records(folder, result.setup)
        causes = attribute(result, records)
        for text in gate_output.explain(result, explained, causes, records):
            typer.echo(text)
    typer.echo(f"evidence: {folder}")
    for text in gate_output.github(result) if github else ():
        typer.echo(text)


def _document(result: GateResult, folder: Path) -> dict[str, Any]:
    records = read_records(folder, result.setup)
    return gate_output.as_json(result, attribute(result, records), records)


def _say(message: str) -> None:
    typer.echo(f"gpulift: {message}", err=True)
