"""`gpulift gate`: head against base, the verdict for CI."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gpulift.commands import gate_jobs
from gpulift.commands.gate_options import (
    OF_JOBS,
    OF_TECHNIQUES,
    origin_of,
    require_alone,
    require_fitting,
)
from gpulift.commands.selecting import SameFilter
from gpulift.commands.shared import Gpu
from gpulift.engine import machine
from gpulift.engine.runs import discard_if_empty
from gpulift.gate import job_output, sealed
from gpulift.gate import output as gate_output
from gpulift.gate.attribution import attribute, beside
from gpulift.gate.builds import Build, BuildFailed, find_build, own_build, require_known
from gpulift.gate.environments import Sides, asked_environments, find_sides
from gpulift.gate.evidence import (
    COMMANDS,
    Evidence,
    read_evidence,
    require_one_machine,
    save,
)
from gpulift.gate.judge import GateResult, RowResult, judge
from gpulift.gate.launches import GateRecords, read_records
from gpulift.gate.measure import measure
from gpulift.gate.metrics import Metric
from gpulift.gate.programs import Settings
from gpulift.gate.same import Outputs
from gpulift.gate.setup import Asked, make_gate, make_setup, require_sound
from gpulift.ground.arguments import (
    Filter,
    named,
    one_filter,
    require_above_0,
    require_free,
    time_s,
)
from gpulift.ground.entry import say
from gpulift.ground.errors import NOT_COMPARABLE, GpuliftError
from gpulift.ground.text import visible
from gpulift.verdicts import thresholds
from gpulift.verdicts.decision import ARM_TIME_S, DECISION_METHOD


@dataclass(frozen=True)
class Shown:
    """The ways in which verdicts are shown, and the rows that are explained."""

    as_json: bool
    as_markdown: bool
    github: bool
    explained: Sequence[RowResult]
    junit: Path | None
    bmf: Path | None


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
    explain: Annotated[
        str | None,
        typer.Option(
            metavar="CASE", help="From windows to verdict; CASE is a part of technique/case/arm."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
    github: Annotated[
        bool, typer.Option("--github", help="Workflow commands of GitHub as well.")
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option(parser=named, metavar="FILE", help="Write JUnit XML to this file."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of order and data.")] = 1,
    gpu: Gpu = None,
    arm_time: Annotated[
        float, typer.Option(help="Seconds per build, comparison and launch.")
    ] = ARM_TIME_S,
    thresholds_file: thresholds.ThresholdsFile = None,
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
    gbench: Annotated[
        str | None,
        typer.Option(metavar="PROGRAM", help="The rows of a program with Google Benchmark."),
    ] = None,
    nvbench: Annotated[
        str | None, typer.Option(metavar="PROGRAM", help="The rows of a program with NVBench.")
    ] = None,
    pytest: Annotated[
        str | None, typer.Option(metavar="PATH", help="The rows of pytest-benchmark.")
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
    ] = gate_jobs.THRESHOLD,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a run of a command, or its set-up, may take.")
    ] = gate_jobs.TIMEOUT_S,
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
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Of a command: a comment for a pull request.")
    ] = False,
    bmf: Annotated[
        Path | None,
        typer.Option(
            parser=named, metavar="FILE", help="Of a command: write Bencher's metric format."
        ),
    ] = None,
) -> None:
    """Head against base on one card, confirmed on fresh launches: 1 regressed, 3 instrument broken,
    4 not comparable, 5 inconclusive.

    Without a command it judges gpulift's own techniques, built at both references.

    gate --base main --same loss.txt -- python train.py

    gate --base main --certificate faster.json -- python train.py
    """
    started_s = time.monotonic()
    doors = gate_jobs.doors(same, command, gbench, nvbench, pytest)
    environments = asked_environments(base, head, base_python, head_python)
    if base is None and replay is None and environments is None:
        raise GpuliftError("name either --base REF to measure, or --replay FOLDER")
    if replay is not None:
        require_alone(context)
    if as_json and (github or as_markdown or explain is not None):
        raise GpuliftError("--json stands alone: it has every step of every verdict")
    require_fitting(context, OF_TECHNIQUES if doors else OF_JOBS if replay is None else {})
    require_above_0("--arm-time", arm_time)
    if junit is not None:
        require_free(junit, None, gate_output.JUNIT_BEGINNING)
    origin = origin_of(context, command)
    if certificate is not None:
        require_free(certificate, None, sealed.BEGINNING)
        sealed.require_public(origin)
        if environments is not None:
            raise GpuliftError("--certificate is of two commits: give --base, no interpreters")
    limit_s = None if budget is None else time_s("--budget", budget)
    changes = {} if replay is not None else thresholds.read(thresholds_file)
    if replay is not None:
        result, folder = judge_again(replay), replay
    elif doors is not None:
        metrics = [
            *(Metric(source) for source in metric or ()),
            *(Metric(source, higher=True) for source in higher or ()),
        ]
        result, folder = gate_jobs.run(
            gate_jobs.JobAsked(
                doors=doors,
                base=base,
                head=head,
                pythons=environments,
                metrics=tuple(metrics),
                setup=setup,
                plant=plant,
                threshold=threshold,
                thresholds=changes,
                budget_s=limit_s,
                timeout_s=timeout,
                gpu=gpu,
                seed=seed,
                out=out,
                same=Outputs(tuple(equal or ()), tolerance),
                origin=origin,
                certified=certificate is not None,
            ),
            gate_jobs.callers_environment(),
        )
    else:
        asked = Asked(
            base or "",
            head,
            one_filter(same, filter),
            all_cases or environments is not None,  # cases of Python arms are too slow to be quick
            limit_s,
            seed,
            Settings(arm_time, gpu),
            out,
            started_s,
            environments,
            changes,
            origin,
            certificate is not None,
        )
        result, folder = _measured(asked, explain)
    explained = [] if explain is None else gate_output.rows_of(result, explain)
    _show(result, folder, Shown(as_json, as_markdown, github, explained, junit, bmf))
    if certificate is not None:
        say(sealed.write(folder, certificate))
    raise typer.Exit(result.exit_code)


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
    doubt = base.context.build.doubt or head.context.build.doubt
    if asked.certified and doubt:
        raise GpuliftError(f"--certificate is of commits, and a side was {doubt}")
    setup = make_setup(asked, base, head, sides.base_infos, infos)
    if explain is not None:
        gate_output.rows_of(judge(Evidence(setup)), explain)  # refuses a name that is none
    made = make_gate(asked, setup, infos, base, head, say)
    say(f"base {setup.base}, head {setup.head}: {setup.mode}; evidence goes to {made.folder}")
    try:
        evidence = measure(made, setup)
    finally:  # which may be refused before anything is
        discard_if_empty(made.folder)
    require_one_machine(made.folder)
    result = judge(evidence)
    if evidence.ended:  # one that the budget broke off has no result, as after an interrupt
        records = read_records(made.folder, evidence.setup)
        save(made.folder, evidence.setup, _document(result, records))
    return result, made.folder


def _sides(asked: Asked) -> Sides:
    if asked.environments is not None:
        return find_sides(asked, *asked.environments, say)
    base, head = _builds(asked)
    return Sides(base, head, machine.catalogue(base.bench), machine.catalogue(head.bench))


def _builds(asked: Asked) -> tuple[Build, Build]:
    gpu, until_s = asked.settings.gpu, asked.until_s
    require_known([one for one in (asked.base, asked.head) if one is not None], gpu)
    try:
        base = find_build(asked.base, gpu, say, until_s)
        if asked.head is None:
            return base, own_build(gpu)
        return base, find_build(asked.head, gpu, say, until_s)
    except BuildFailed as failed:
        typer.echo(failed.said, err=True)
        raise


def _show(result: GateResult, folder: Path, shown: Shown) -> None:
    """In the ways that were asked for."""
    of_job = result.setup.mode == COMMANDS
    records = GateRecords(folder, {}) if of_job else read_records(folder, result.setup)
    both = job_output.beside(result, folder) if of_job else beside(result, records)
    if shown.junit is not None:
        gate_output.write_junit(result, shown.junit, both)
    if of_job:
        gate_jobs.show(result, folder, shown.as_json, shown.as_markdown, shown.bmf)
    elif shown.as_json:
        document = {**_document(result, records), "evidence": str(folder)}
        typer.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        _show_lines(result, records, shown.explained, both)
    for text in gate_output.github(result, both) if shown.github else ():
        typer.echo(text)


def _show_lines(
    result: GateResult,
    records: GateRecords,
    explained: Sequence[RowResult],
    both: gate_output.Beside,
) -> None:
    for text in gate_output.lines(result, both):
        typer.echo(visible(text))
    if explained:
        causes = attribute(result, records)
        for text in gate_output.explain(result, explained, causes, records):
            typer.echo(visible(text))
    typer.echo(f"evidence: {visible(str(records.folder))}")


def _document(result: GateResult, records: GateRecords) -> dict[str, Any]:
    return gate_output.as_json(result, attribute(result, records), records)
