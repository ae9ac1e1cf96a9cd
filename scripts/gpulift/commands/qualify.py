"""`gpulift qualify`: measure a machine, judge it, write a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.analysis.analyse import judged as judged_again
from gpulift.analysis.doubts import Doubts
from gpulift.analysis.machine import (
    card_lines,
    feeding,
    links,
    qualification,
    rows,
    saved,
    training,
)
from gpulift.analysis.machine import tables as shown
from gpulift.analysis.machine.qualification import Qualification
from gpulift.analysis.machine.results import CheckResult
from gpulift.analysis.model_records import records_beside
from gpulift.analysis.summary import Summary
from gpulift.commands import shared as commands
from gpulift.commands import siblings
from gpulift.commands.shared import Gpu, Out, Quick, Verbose, given_in, mode_of
from gpulift.engine import doctor, machine, qualifying
from gpulift.engine.qualification import Asked, Plan, plan
from gpulift.ground import terminal
from gpulift.ground.arguments import Filter, Json, SomeResults, Wide, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.ground.text import visible
from gpulift.records.read import read_run
from gpulift.report import tables
from gpulift.verdicts import table
from gpulift.verdicts.matching import Kind, matching, require_part

MEASURING = "--quick --out --filter --gpu --gpus --burn --expect-gpus --verbose"
CHECKS = Kind("check", "a check's name")
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar="all|I,J,...",
        help="Several GPUs: each alone, all at once, and what they do together: pairs,"
        " all-reduces, data-parallel steps; and which card, pair or rank is an outlier.",
    ),
]
Burn = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Load all GPUs at once by one product for about TIME, and nothing else.",
    ),
]
ExpectGpus = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Fail where fewer GPUs can be used, as a node has."),
]
Every = Annotated[
    bool, typer.Option("--all", help="A row for every check, passed and skipped ones too.")
]
Explain = Annotated[
    str | None,
    typer.Option(
        metavar="CHECK",
        help="How these checks were judged, in RESULTS or the newest here: or in what is measured.",
    ),
]
Among = Annotated[
    bool, typer.Option("--among", help="Of the cards or nodes of RESULTS: which is an outlier?")
]


@dataclass(frozen=True)
class Shown:
    """What the user wants to see of it."""

    every: bool
    explain: str | None
    as_json: bool
    wide: bool


def qualify(
    context: typer.Context,
    results: SomeResults = None,
    quick: Quick = None,
    out: Out = None,
    filter: Filter = None,
    gpu: Gpu = None,
    gpus: Gpus = None,
    burn: Burn = None,
    expect_gpus: ExpectGpus = None,
    every: Every = False,
    explain: Explain = None,
    among: Among = False,
    verbose: Verbose = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Measure this machine, judge it, and report: what is wrong, and what pays on it."""
    if mode_of(context, {"": f"{MEASURING} --all --explain", "--among": ""}):
        raise typer.Exit(siblings.among(results or [], as_json))
    if gpu is not None and gpus is not None:
        raise GpuliftError("give --gpu or --gpus, not both")
    if explain is not None and as_json:
        raise GpuliftError("--json holds every step already: leave --explain or --json out")
    if explain is not None:
        require_part(explain, CHECKS)
        if not given_in(context).keys() & MEASURING.split():
            return _explain_kept(results, explain)
    if results:
        raise GpuliftError("RESULTS are of --among, or --explain alone: nothing is measured then")
    quick_s = None if quick is None else time_s("--quick", quick)
    burn_s = None if burn is None else time_s("--burn", burn)
    given = {"--quick": quick_s, "--filter": filter, "--explain": explain}
    for option in (name for name, value in given.items() if burn is not None and value is not None):
        raise GpuliftError(f"--burn loads the GPUs and measures nothing else: leave {option} out")
    planned = plan(Asked(quick_s, filter, out, verbose, expect_gpus, gpu, gpus, burn_s), say)
    raise typer.Exit(_qualified(planned, filter is not None, Shown(every, explain, as_json, wide)))


def _qualified(planned: Plan, filtered: bool, how: Shown) -> int:
    if not how.as_json and not planned.whole:
        findings = doctor.examine(planned.context, planned.techniques)
        terminal.console().print(tables.findings(findings))
    try:
        with qualifying.folders(planned, say) as into:
            evidence = qualifying.measure(planned, into, qualification.looks(say), say)
            judged = qualification.judge(planned, into, evidence, say)
    except qualifying.NotMeasured as nothing:
        return nothing.exit_code
    if planned.burns:
        _tell_burnt(judged, how)
    else:
        has_gpu = planned.context.gpu is not None
        _tell(judged, [] if has_gpu else commands.others(judged.cards[0].summary), how)
    return judged.exit_code(filtered)


def _tell_burnt(judged: Qualification, how: Shown) -> None:
    """Four lines for each card, then the verdict."""
    if how.as_json:
        return commands.print_json([saved.document(c.summary, c.results) for c in judged.cards])
    shares = judged.among.shares if judged.among else {}
    for card in judged.cards:
        lines = card_lines.of_burnt(card.summary, card.results, shares.get(card.card))
        typer.echo("\n".join(lines))
    return typer.echo(judged.answer.line)


def _tell(judged: Qualification, beside: list[Summary], how: Shown) -> None:
    from gpulift.report import page as reports

    summaries = [*(part.summary for part in judged.parts), *beside]
    analysis = commands.analysis_of(
        summaries,
        records_beside(summaries, [commands.results_folder()], say),
        verdicts={part.folder: part.results for part in judged.parts},
    )
    page = reports.write(analysis, judged.cards[0].folder / "report")
    among = judged.among
    if how.as_json:
        documents = [saved.document(part.summary, part.results) for part in judged.parts]
        return commands.print_json([*documents, *([among.document] if among else [])])
    screen = terminal.console(wide=how.wide)
    for part in judged.parts:
        commands.show(screen, analysis.doubts, part.summary, beside)
        made = rows.table_of(part.summary, part.results, str(part.folder))
        told = (*feeding.answers(part.summary), *links.told(part.summary))
        typer.echo("\n".join(map(visible, (*table.lines(made, how.every), *told))))
    if among is not None:
        made = rows.table("siblings", among.siblings.title, among.results, str(among.file))
        typer.echo(table.FORMS["lines"](made))
        screen.print(shown.crowding_table(among.siblings))
    try:
        if how.explain is not None:
            _explain(judged.results, how.explain, [card.folder for card in judged.cards])
    finally:  # a check that is not there does not cost the verdict
        for line in _last_lines(judged, page, analysis.doubts):
            screen.print(line, soft_wrap=True, markup=False)
    return None


def _last_lines(judged: Qualification, page: Path, doubts: Doubts) -> Iterator[str]:
    """A line for each GPU, and how fast it trains; then the verdict on the machine and where its
    report is."""
    for card in judged.cards:
        trains = training.answers(card.summary, doubts)
        yield from filter(None, (card_lines.of_card(card.summary), *trains))
    yield f"{judged.answer.line}; report: {page}"


def _explain_kept(results: Sequence[Path] | None, wanted: str) -> None:
    """Of runs, or of the newest that was qualified here."""
    if not results:
        files = machine.own_results().glob(f"**/{saved.VERDICT_FILE}")
        newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
        if newest is None:
            raise GpuliftError("nothing was qualified here: name RESULTS, or measure with --quick")
        say(f"of {newest.parent}")
        results = [newest.parent]
    folders = siblings.folders_of(results)
    runs = [judged_again(commands.summary_of(read_run(folder))) for folder in folders]
    checks = [
        replace(check, id=f"{check.id} ({run.summary.run.name})") if len(runs) > 1 else check
        for run in runs
        for check in run.checks
    ]
    _explain(checks, wanted, results)


def _explain(checks: Sequence[CheckResult], wanted: str, folders: Sequence[Path]) -> None:
    """The path to each verdict whose name holds the text. Raises GpuliftError where none does,
    which says where the results are: they are kept, whatever was asked about them."""
    try:
        chosen = matching(checks, lambda check: check.id, wanted, CHECKS)
    except GpuliftError as error:
        kept = ", ".join(map(str, folders))
        raise GpuliftError(f"{error}; the results are kept in {kept}", error.exit_code) from None
    typer.echo("\n".join(map(visible, table.explained(map(rows.row, chosen)))))
