"""`gpulift certify advise`: how often advice is wrong on this machine, shown by planted faults."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpulift.certify.advise import (
    FAULTS,
    FOLDER,
    NAMED,
    SCRIPTS,
    AdviceCertificate,
    Case,
    Facts,
    Planted,
    Span,
    issue,
    read_certificate,
    write_certificate,
)
from gpulift.certify.advise_trials import LARGE, SMALL, Trials
from gpulift.commands.shared import print_json, results_folder
from gpulift.engine import machine
from gpulift.ground import terminal, text
from gpulift.ground.arguments import Json, named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import Estimate
from gpulift.ground.whole import write_whole
from gpulift.records.model import Context

NAME = "certify advise"
COLUMNS = ("script", "fault", "costs", "outcome", "row", "priced", "agrees")


def with_advise(arguments: Sequence[str]) -> list[str]:
    """The command line, in which the first two words of `certify advise` are one."""
    given = list(arguments)
    return [NAME, *given[2:]] if given[:2] == NAME.split() else given


def certify_advise(
    size: Annotated[
        str | None,
        typer.Option(help="small or large models: by default large ones where there is a GPU."),
    ] = None,
    scripts: Annotated[
        str, typer.Option(metavar="NAME,...", help="Only these scripts.")
    ] = ",".join(SCRIPTS),
    faults: Annotated[
        str,
        typer.Option(metavar="NAME,...", help="Only these faults; each script without one, too."),
    ] = ",".join(FAULTS),
    out: Annotated[
        Path | None,
        typer.Option(
            parser=named,
            metavar="FILE.json",
            help="The certificate, beside which its tables go as Markdown; one that is there is"
            " gone on with. By default results/advise/MACHINE.json.",
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="Interpreter or virtual environment of the scripts; else our own."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plant faults in training scripts and see whether `advise` names and prices them.

    Takes some two hours without a GPU. Each case is kept as soon as it is measured."""
    chosen = _chosen("--scripts", scripts, SCRIPTS)
    planted = _chosen("--faults", faults, FAULTS)
    if size not in (None, SMALL, LARGE):
        raise GpuliftError(f"--size {size}: give {SMALL} or {LARGE}")
    interpreter = machine.find_interpreter("--python", python or sys.executable)
    context = machine.describe(machine.find_bench())
    facts = _facts(context, size or (LARGE if context.gpu else SMALL))
    file = out or results_folder() / FOLDER / f"{facts.machine}.json"
    cases = _held(file, facts)

    def keep(case: Case) -> None:
        cases[case.script, case.fault] = case
        _write(issue(facts, tuple(cases.values())), file)

    trials = Trials(interpreter, facts.size, facts.on_gpu, keep, say, planted)
    for script in chosen:
        trials.take(script, tuple(cases.values()))
    certificate = issue(facts, tuple(cases.values()))
    say(f"certificate: {file}")
    if as_json:
        print_json(asdict(certificate))
    else:
        _show(certificate)


def _chosen(option: str, names: str, known: Collection[str]) -> list[str]:
    chosen = names.split(",")
    if unknown := [name for name in chosen if name not in known]:
        raise GpuliftError(f"{option} {unknown[0]!r} is none of {', '.join(known)}")
    return chosen


def _facts(context: Context, size: str) -> Facts:
    return Facts(
        machine=context.slug,
        size=size,
        driver=context.driver,
        commit=context.build.commit,
        dirty=bool(context.build.dirty),
        on_gpu=context.gpu is not None,
        date=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
    )


def _held(file: Path, facts: Facts) -> dict[tuple[str, str], Case]:
    """The cases of a certificate that is gone on with. Raises GpuliftError where they do not go
    with what is measured now."""
    if not file.exists():
        return {}
    held = read_certificate(file)
    now, then = ({**asdict(one), "date": ""} for one in (facts, held.facts))
    if differing := [name for name in now if now[name] != then[name]]:
        raise GpuliftError(
            f"{file}: its cases are of another {', '.join(differing)}: name another --out, or take"
            " it away"
        )
    return {(case.script, case.fault): case for case in held.cases}


def _write(certificate: AdviceCertificate, file: Path) -> None:
    write_certificate(certificate, file)
    write_whole("\n".join(markdown(certificate)) + "\n", file.with_suffix(".md"))


def markdown(certificate: AdviceCertificate) -> Iterator[str]:
    """The tables, for a file beside the certificate."""
    facts = certificate.facts
    yield f"# What `gpulift advise` finds on {facts.machine}, {facts.size} models"
    yield ""
    for line in _lines(certificate):
        yield f"- {line}"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for planted in certificate.planted:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in _cells(planted))} |"


def _show(certificate: AdviceCertificate) -> None:
    table = terminal.titled("Planted faults", columns=COLUMNS)
    for planted in certificate.planted:
        table.add_row(*(escape(cell) for cell in _cells(planted)))
    screen = terminal.console()
    screen.print(table)
    for line in _lines(certificate):
        screen.print(line, markup=False, soft_wrap=True)


def _lines(certificate: AdviceCertificate) -> Iterator[str]:
    costing = [one for one in certificate.planted if one.size and one.size.above_1]
    judged = [one.agrees for one in costing if one.outcome == NAMED and one.agrees is not None]
    idle, facts = certificate.idle, certificate.facts
    yield (
        f"{sum(one.outcome == NAMED for one in costing)} of {len(costing)} planted faults that cost"
        f" time were named, and the price of {sum(judged)} of {len(judged)} agrees with the truth"
    )
    bound = f", below {text.percent(idle.upper)} with 95 % confidence" if idle.rows else ""
    yield (
        f"{len(idle.false_helps)} of {idle.rows} judged changes that do nothing were told to"
        f" help{bound}"
    )
    yield from (f"false: {name}" for name in idle.false_helps)
    dirty = " with uncommitted changes" if facts.dirty else ""
    yield f"torch {', '.join(certificate.torch) or 'unknown'}, {facts.date}, {facts.commit}{dirty}"


def _cells(planted: Planted) -> tuple[str, ...]:
    agrees = {True: "yes", False: "no", None: ""}[planted.agrees]
    return (
        planted.script,
        planted.fault,
        _shown(planted.size),
        f"{planted.outcome}: {planted.reason}" if planted.reason else planted.outcome,
        f"{planted.row}: {planted.verdict}" if planted.verdict else planted.row,
        _shown(planted.price),
        agrees,
    )


def _shown(span: Span | None) -> str:
    return "" if span is None else text.interval(Estimate(*span), "×")
