"""`gpulift show ID`: one record, whole, cited, counted or measured again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gpulift.analysis import arms, conditions
from gpulift.analysis.bounds import HOST, bound_of
from gpulift.analysis.choice import NOTHING_KNOWN, Choice, choice_of
from gpulift.analysis.errata import FILE as ERRATA
from gpulift.analysis.errata import Erratum, errata_of, known_errors, read_errata
from gpulift.analysis.model_records import files_at, records_of_models
from gpulift.analysis.over_runs import ModelFigure, speedup_over_runs
from gpulift.analysis.standing import why_not_deciding
from gpulift.commands import counters as counted
from gpulift.commands.selecting import Axes, Techniques, prepared
from gpulift.commands.shared import Gpu, Out, mode_of, print_json
from gpulift.commands.show import lines
from gpulift.engine import machine
from gpulift.engine.machine import checkout_root, results_folder, searched
from gpulift.gate.git import git
from gpulift.ground import terminal, text
from gpulift.ground.arguments import named
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.estimate import CONFIDENCE
from gpulift.ground.text import bibtex_text, visible
from gpulift.records.find import find_record
from gpulift.records.model import IMPORT, Arm, Record
from gpulift.records.read import read_results
from gpulift.records.throttle import throttle_of
from gpulift.verdicts.cases import TECHNIQUE
from gpulift.verdicts.stats import ONE_LAUNCH_CONFIDENCE

Id = Annotated[
    str, typer.Argument(metavar="ID", help="gpulift:<gpu>/<id>, or the id's first digits.")
]
Places = Annotated[
    list[Path] | None,
    typer.Option(
        "--results",
        parser=named,
        metavar="DIR",
        help="Where to search; may be repeated. The checkout's results. Which ids a file has is"
        " kept in ~/.cache/gpulift.",
    ),
]


Bibtex = Annotated[
    bool, typer.Option("--bibtex", help="A BibTeX entry of its case, and sentences to cite.")
]
Again = Annotated[
    bool, typer.Option("--again", help="Measure its case again here: is it as predicted?")
]
Launches = Annotated[
    int | None, typer.Option(help="Of --again; as many as the record's run had, at least 3.")
]
Counters = Annotated[
    bool,
    typer.Option(
        "--counters",
        help="Run its case under ncu: DRAM, L2 and tensor cores beside what is computed. ID may be"
        " a filter of run that selects one case.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="The record's own JSON, one line; or that of what was asked.")
]
MODES = {
    "": "--json",
    "--bibtex": "",
    "--again": "--launches --gpu --out --json",
    "--counters": "--gpu --techniques --axis --json",
}


def show(
    context: typer.Context,
    wanted: Id,
    places: Places = None,
    bibtex: Bibtex = False,
    again: Again = False,
    launches: Launches = None,
    counters: Counters = False,
    gpu: Gpu = None,
    techniques: Techniques = None,
    axes: Axes = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """One record: arms, raw windows, conditions, and the command that measures it again; or, of
    --bibtex, --again and --counters, what that says."""
    mode_of(context, MODES)
    if counters:
        subject = counted.find(wanted, places, tuple(axes or ()), prepared(techniques))
        _count(subject, gpu, as_json)
    record = find_record(wanted, places or searched(), say)
    if again:
        from gpulift.commands.again import measured_again  # what only reads does without it

        raise typer.Exit(measured_again(record, launches, gpu, out, as_json))
    if bibtex:
        _cite(record, places)
    elif as_json:
        typer.echo(json.dumps(record.raw, separators=(",", ":"), allow_nan=False))
    else:
        found = launches_of(record) if record.outcome == "ok" else ()
        typer.echo("\n".join(lines(record, terminal.columns(), _errata(record), found)))


def _count(subject: counted.Subject, gpu: int | None, as_json: bool) -> NoReturn:
    """Steps under ncu, whatever the record's machine was."""
    context = machine.describe_asked(machine.find_bench(), gpu)
    steps = counted.count(subject, context, gpu)
    l2_bytes = context.gpu.facts.get("l2_bytes", 0) if context.gpu else 0
    if as_json:
        print_json([counted.as_dict(step, l2_bytes) for step in steps])
        raise typer.Exit(counted.exit_code(steps))
    if any(step.counted for step in steps):
        terminal.console().print(counted.table(subject, steps, l2_bytes))
    for step in steps:
        for note in counted.notes(step, l2_bytes):
            typer.echo(visible(f"{step.arm}: {note}"))
    if any(step.counted for step in steps):
        typer.echo(counted.ABOUT)
    raise typer.Exit(counted.exit_code(steps))


def _cite(record: Record, places: list[Path] | None) -> None:
    require_result(record)
    choice = choice_of(results_folder())
    launches = launches_of(record)
    errata = known_errors(launches, choice.errata)
    texts = (
        sentence(record, errata, launches),
        bibtex(record, errata, launches, _address()),
        over_runs(record, _of_model(record, places), choice),
    )
    typer.echo("\n\n".join(one for one in texts if one))


def _address() -> str:
    """Of this checkout, if it is a clone of a public one."""
    try:
        asked = git(checkout_root(), "config", "--get", "remote.origin.url")
    except GpuliftError:  # no git
        return ""
    return address_of(asked.stdout.strip())


def _of_model(record: Record, places: list[Path] | None) -> list[Record]:
    """Those of its technique on its model; what cannot be read was said in finding it."""
    files = files_at(places or searched())
    return records_of_models(files, [record.context.slug], [record.technique], lambda _: None)


def _errata(record: Record) -> tuple[Erratum, ...]:
    return errata_of(record, read_errata(results_folder() / ERRATA))


YEAR_DIGITS = 4
AUTHOR = "gpulift contributors"
# Of a clone: git@host.org:path.git, https://user@host.org/path. No folder, no port, nobody's name.
ORIGIN = re.compile(
    r"(?:(?:https|ssh)://)?(?:[^@/]*@)?([\w-]+(?:\.[\w-]+)+)[:/](?!\d+/)([\w./-]+?)(?:\.git)?/?"
)


def require_result(record: Record) -> None:
    """Raises GpuliftError where the record holds no figure of ours that could be cited."""
    if record.kind == IMPORT:
        raise GpuliftError(
            f"{record.citation} was imported: cite the tool that measured it, as `show` names it"
        )
    if record.outcome != "ok":
        because = f": {record.reason}" if record.reason else ""
        raise GpuliftError(
            visible(
                f"{record.citation} holds no figure to cite, it is {_a(record.outcome)} record of"
                f" {record.technique}{because}"
            )
        )


def launches_of(record: Record) -> tuple[Record, ...]:
    """All launches of its case in its run that share its conditions."""
    return tuple(
        one
        for one in read_results([record.file])[0].records
        if one.subject == record.subject
        and one.outcome == "ok"
        and (one.method, one.context) == (record.method, record.context)
    )


def address_of(origin: str) -> str:
    """Where others find what a clone of `origin` holds; empty where that is no public address."""
    found = ORIGIN.fullmatch(origin)
    return f"https://{found[1]}/{found[2]}" if found else ""


def bibtex(
    record: Record,
    errata: Sequence[Erratum] = (),
    launches: Sequence[Record] = (),
    address: str = "",
) -> str:
    """`@misc`, its key the record's citation, with its errata; braces keep the title's letters.
    `address` is where gpulift is, if that is known."""
    what = f"{_subject(record)} on {conditions.machine(record.context)}, measured with gpulift"
    fields = {
        "title": f"{{{bibtex_text(what)}}}",
        "author": f"{{{AUTHOR}}}",
        "year": bibtex_text(record.began_at[:YEAR_DIGITS]),
        "version": bibtex_text(f"commit {conditions.commit(record.context.build)}"),
        **({"url": address} if address else {}),
        "note": bibtex_text("; ".join(_conditions(record, errata, launches))),
    }
    inside = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@misc{{{record.citation},\n{inside}}}"


def sentence(
    record: Record, errata: Sequence[Erratum] = (), launches: Sequence[Record] = ()
) -> str:
    """What was measured, over all `launches` where there are several, and under which conditions,
    with its errata, for a text; without ratios that may not lead."""
    results = "; ".join(_result(record, arm, errata, launches) for arm in record.arms)
    several = len(launches) > 1
    confidence = CONFIDENCE if several else ONE_LAUNCH_CONFIDENCE
    said = _conditions(record, errata, launches)
    inside = "; ".join([f"{100 * confidence:g} % intervals", *said])
    over = f" over {len(launches)} launches" if several else ""
    return visible(
        f"On {conditions.machine(record.context)}, a step of {_subject(record)} took{over}:"
        f" {results} ({inside})."
    )


def over_runs(record: Record, of_model: Iterable[Record], choice: Choice = NOTHING_KNOWN) -> str:
    """What several runs of the record's model say of its arms, for a text; empty where none says
    what may lead.

    `of_model` are records of its technique on its model.
    """
    baseline = arms.baseline_of(record)
    if record.kind != TECHNIQUE or arms.is_ceiling(record) or baseline is None:
        return ""
    case = [one for one in of_model if one.case_id == record.case_id]
    figures = (
        (arm.name, speedup_over_runs(case, arm.name, baseline.name, choice)) for arm in record.arms
    )
    said = [
        f"{name} {_figure(figure, record)}"
        for name, figure in figures
        if name != baseline.name
        and figure is not None
        and len(figure.runs) > 1
        and figure.decides
        and not why_not_deciding(
            figure.records, (name, baseline.name), known_errors(figure.records, choice.errata)
        )
    ]
    where = conditions.machine(record.context)
    return (
        visible(f"Over runs on {where}, against {baseline.name}: {'; '.join(said)}.")
        if said
        else ""
    )


def _figure(figure: ModelFigure, record: Record) -> str:
    """`5.31× [5.02, 5.61], 12 runs, 9 cards; the record's own run 5.40× [5.38, 5.42]`."""
    run = figure.run_of([record])
    if run is None:
        return figure.shown
    return f"{figure.shown} (this one run {text.speedup(run.value)})"


def _subject(record: Record) -> str:
    case = f", {text.case_label(record.case_id)}" if record.case_id else ""
    duet = "two builds of " if record.kind == "duet" else ""
    regime = "" if "regime" in record.case else f", {record.pace} regime"
    return f"{duet}{record.technique}{case}{regime}"


def _conditions(record: Record, errata: Sequence[Erratum], launches: Sequence[Record]) -> list[str]:
    context = record.context
    gpu = context.gpu
    parts = [
        record.citation,
        f"{conditions.launch(record)}, {record.began_at}",
        f"GPU {gpu.name}, card {gpu.card or 'unknown'}" if gpu else f"no GPU, {context.host.name}",
        conditions.software(context),
        conditions.pairs(context.versions),
        f"gpulift at commit {conditions.commit(context.build)}",
        conditions.planted(record),
        _throttle(launches or [record]),
        *dict.fromkeys(f"known error {one.name}: {one.short}" for one in errata),
    ]
    return [part for part in parts if part]


def _throttle(records: Sequence[Record]) -> str:
    """What held the clock down, or that nobody knows; empty where nothing did."""
    seen = throttle_of(records)
    told = any(one.telemetry for one in records) and seen.data != []
    return f"throttle {seen.words}" if told else ""


def _result(record: Record, arm: Arm, errata: Sequence[Erratum], launches: Sequence[Record]) -> str:
    time = arms.step_time(record, arm, launches)
    if not time:
        return f"{arm.name} {arm.outcome}"
    baseline = arms.baseline_of(record)
    if arms.is_ceiling(record) or baseline is None:
        return ", ".join([f"{arm.name} {time}", *arms.rates(record, arm, launches)])
    against = "the baseline"
    if arm.name != baseline.name:
        why_not = why_not_deciding(launches or [record], (arm.name, baseline.name), errata)
        against = (
            f"its ratio withheld: {why_not}" if why_not else arms.speedup(record, arm, launches)
        )
    items = arms.rates(record, arm, launches)[-1:] if arm.cost and arm.cost.item else []
    joules = [one] if (one := arms.energy(record, arm)) and arm.cost and arm.cost.item else []
    joules = [
        f"{one} of {conditions.launch(record)}" for one in joules if len(launches) > 1
    ] or joules
    bound = bound_of(launches or [record], arm.name)
    waits = [f"bound by the {bound.shown}"] if bound.kind == HOST else []
    return ", ".join([f"{arm.name} {time}", *items, *joules, *waits, against or "no ratio"])


def _a(outcome: str) -> str:
    return f"an {outcome}" if outcome == "error" else f"a {outcome}"
