"""`gpulift qualify`: measure a machine, judge it, write a report."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gpulift.analysis.doubts import Doubts
from gpulift.analysis.machine import feeding, links, node, saved, training, verdict
from gpulift.analysis.machine import tables as shown
from gpulift.analysis.machine.among import Among, judge_among
from gpulift.analysis.machine.checks import basis, judge_run
from gpulift.analysis.machine.explain import explanation
from gpulift.analysis.machine.health import judge_health, read_health
from gpulift.analysis.machine.one_line import of_card
from gpulift.analysis.machine.presence import CHECK as PRESENCE
from gpulift.analysis.machine.presence import gpus_on_bus, judge_presence
from gpulift.analysis.machine.qualified import Asked, Parts, Qualified, card_of
from gpulift.analysis.machine.results import FAIL, CheckResult
from gpulift.analysis.model_records import records_beside
from gpulift.analysis.reference import find_reference
from gpulift.analysis.summary import Summary, summarise
from gpulift.commands import qualify_burn as burning
from gpulift.commands import qualify_first_look as first_look
from gpulift.commands import qualify_rounds as rounds
from gpulift.commands import shared as commands
from gpulift.commands.qualify_shared_run import PART as NODE
from gpulift.commands.qualify_shared_run import measure_shared
from gpulift.commands.qualify_together import measure_together, parts_of, read_of_card
from gpulift.commands.shared import Gpu, Out, Quick, Verbose
from gpulift.engine import doctor, machine, measuring, runs
from gpulift.engine.quick import FIRST_SHARE
from gpulift.ground import terminal
from gpulift.ground.arguments import Filter, Json, Wide, time_s
from gpulift.ground.entry import say
from gpulift.ground.errors import (
    FAILED,
    INCONCLUSIVE,
    NOTHING_RAN,
    OK,
    GpuliftError,
)
from gpulift.records.files import record_files
from gpulift.records.model import Context
from gpulift.records.read import read_run
from gpulift.report import tables
from gpulift.verdicts.matching import Kind, matching, require_part

CHECKS = Kind("check", "a check's name")


@dataclass(frozen=True)
class Shown:
    """What the user wants to see of it."""

    every: bool
    explain: str | None
    as_json: bool
    wide: bool


class NotMeasured(GpuliftError):
    """There is nothing to judge; what happened was said already."""


def qualify(
    quick: Quick = None,
    out: Out = None,
    filter: Filter = None,
    gpu: Gpu = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="all|I,J,...",
            help="Several GPUs: each alone, all at once, and what they do together: pairs,"
            " all-reduces, data-parallel steps; and which card, pair or rank is an outlier.",
        ),
    ] = None,
    burn: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Load all GPUs at once by one product for about TIME, and nothing else: four lines"
            " a card.",
        ),
    ] = None,
    expect_gpus: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Fail where fewer GPUs can be used, as a node has."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="A row for every check, passed and skipped ones too.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(metavar="CHECK", help="Explain how these checks were judged."),
    ] = None,
    verbose: Verbose = False,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Measure this machine, judge it, and report: what is wrong, and what pays on it."""
    if gpu is not None and gpus is not None:
        raise GpuliftError("give --gpu or --gpus, not both")
    if explain is not None and as_json:
        raise GpuliftError("--json holds every step already: leave --explain or --json out")
    if explain is not None:
        require_part(explain, CHECKS)
    quick_s = None if quick is None else time_s("--quick", quick)
    asked = Asked(quick_s, filter, out, verbose, expect_gpus)
    how = Shown(every, explain, as_json, wide)
    if burn is not None:
        raise typer.Exit(
            _burn(asked, time_s("--burn", burn), gpus or ("all" if gpu is None else str(gpu)), how)
        )
    if gpus is None:
        raise typer.Exit(_one(asked, gpu, how))
    raise typer.Exit(_several(asked, gpus, how))


def exit_code_of(results: Sequence[CheckResult]) -> int:
    """1 with any failure; 5 when more than a tenth of what decides is inconclusive; else 0.

    Step times and costs vary with the host: they are shown, and do not decide.
    """
    if verdict.overall(results) == FAIL:
        return FAILED
    return INCONCLUSIVE if verdict.too_much_open(results) else OK


def _one(asked: Asked, gpu: int | None, how: Shown) -> int:
    context, infos = commands.examine(gpu)
    if not how.as_json:
        terminal.console().print(tables.findings(doctor.examine(context, infos)))
    usable = 0 if context.gpu is None else len(machine.gpus_named(machine.find_bench(), "all"))
    presence = judge_presence(context, usable, asked.expected_gpus, gpus_on_bus())
    options = _options(asked, context, gpu)
    try:
        card = _measure(options, context, asked.out, asked.quick_s, presence)
    except NotMeasured as nothing:
        return nothing.exit_code
    beside = commands.others(card.summary) if context.gpu is None else []
    _tell([card], beside, how)
    judged = exit_code_of(card.results)
    if card.exit_code == NOTHING_RAN and judged == OK:
        return OK if asked.filter is None else NOTHING_RAN  # a skip is a result
    return FAILED if FAILED in (card.exit_code, judged) else judged


def _several(asked: Asked, gpus: str, how: Shown) -> int:
    bench = machine.find_bench()
    contexts = _cards(bench, gpus, asked.expected_gpus)
    _require_one_model(gpus, contexts)
    share = node.times(1.0, len(contexts)).alone_s  # of a quick run's time, for each card alone
    first = next(iter(contexts.values()))
    own = replace(asked, filter=asked.filter or _on_one_gpu_only(bench))
    options = _options(own, first, None, share)
    own = replace(own, quick_s=asked.quick_s and share * asked.quick_s)
    whole = {"filter": asked.filter, "quick_s": asked.quick_s}
    with parts_of(asked.out, contexts, options, whole) as parts:
        return _in_parts(asked, own, options, contexts, parts, how)


def _burn(asked: Asked, burn_s: float, gpus: str, how: Shown) -> int:
    given = {"--quick": asked.quick_s, "--filter": asked.filter, "--explain": how.explain}
    for option in (name for name, value in given.items() if value is not None):
        raise GpuliftError(f"--burn loads the GPUs and measures nothing else: leave {option} out")
    contexts = _cards(machine.find_bench(), gpus, asked.expected_gpus)
    _require_one_model(gpus, contexts)
    burnt = burning.burn(asked, burn_s, contexts)
    if how.as_json:
        commands.print_json([saved.document(one.summary, one.results) for one in burnt.cards])
    else:
        typer.echo("\n".join(burnt.lines))
    judged = exit_code_of(burnt.results)
    return FAILED if FAILED in {one.exit_code for one in burnt.cards} else judged


def _in_parts(
    asked: Asked,
    own: Asked,
    options: measuring.Options,
    contexts: dict[int, Context],
    parts: Parts,
    how: Shown,
) -> int:
    """Several cards, `own` of each alone. A part that is there already is taken or gone on with."""
    bench = machine.find_bench()
    shared = measure_shared(asked, contexts, bench, parts.folder_of(NODE))
    alone: dict[int, Qualified] = {}
    usable = len(machine.gpus_named(bench, "all"))
    presence = judge_presence(next(iter(contexts.values())), usable, own.expected_gpus, 0)
    for index, context in contexts.items():
        say(f"GPU {index} alone")
        of_card, folder = replace(options, gpu=index), parts.folder_of(f"gpu{index}")
        # The first one's verdicts have it.
        alone[index] = _alone(of_card, context, folder, own.quick_s, () if alone else presence)
    together = measure_together(options, contexts, bench, parts)
    names = {index: card_of(context) for index, context in contexts.items()}
    among = judge_among(
        {names[index]: card.summary for index, card in alone.items()},
        {names[index]: summary for index, summary in together.items()},
        parts.folder / saved.SIBLINGS_FILE,
    )
    _tell(list(alone.values()), [], how, among, shared)
    codes = {card.exit_code for card in alone.values()}
    if codes == {NOTHING_RAN} and not any(one.verdict == FAIL for one in presence):
        return NOTHING_RAN
    measured = [*alone.values(), *([shared] if shared else [])]
    results = [result for one in measured for result in one.results]
    judged = exit_code_of([*results, *among.results])
    return FAILED if FAILED in {one.exit_code for one in measured} else judged


def _alone(
    options: measuring.Options,
    context: Context,
    folder: Path,
    quick_s: float | None,
    presence: tuple[CheckResult, ...],
) -> Qualified:
    """One card of several: measured, or taken from the folder that an interrupt left."""
    want = runs.wanted(context, options.given(), machine.find_bench())
    if not measuring.is_complete(folder, want):
        return _measure(options, context, folder, quick_s, presence)
    say(f"measured already: {folder}")
    summary = read_of_card(folder, context)
    kept = _health(folder, options.gpu, summary)
    health = (*(one for one in kept if one.id != PRESENCE), *presence)
    results = judge_run(summary, summary.reference, health, options.filter or "")
    tried = any(record.outcome == "ok" for record in summary.run.records)
    code = FAILED if summary.broken else OK if tried else NOTHING_RAN
    return Qualified(folder, code, summary, results)


def _health(folder: Path, gpu: int | None, summary: Summary) -> tuple[CheckResult, ...]:
    """What was seen before and after the run, or where it was not kept, what is seen now."""
    kept = saved.kept_health(folder)
    if kept is not None:
        return kept
    now = read_health(machine.health(machine.find_bench(), gpu))
    return judge_health(None, now, summary.run.records)


def _measure(
    options: measuring.Options,
    context: Context,
    out: Path | None,
    quick_s: float | None,
    presence: tuple[CheckResult, ...],
) -> Qualified:
    """Measures, and what is then open again, for about `quick_s` in all."""
    bench = machine.find_bench()
    before = read_health(machine.health(bench, options.gpu))
    ends_s = time.monotonic() + (math.inf if quick_s is None else quick_s)

    def more(folder: Path) -> int:
        return rounds.measure(folder, options, _speeds, ends_s, say)

    rows = first_look.rows_of(options, commands.known_techniques()) if options.quick else ()

    def first(folder: Path) -> int:
        return first_look.look(folder, options, rows, say)

    measured = measuring.run(
        options,
        machine.own_results(),
        out,
        context,
        say,
        more,
        first=first if rows and context.gpu is not None else None,
        reported=True,
    )
    recorded = record_files(measured.folder)
    if not recorded or measured.exit_code not in measuring.FINISHED:
        raise NotMeasured("nothing to judge", measured.exit_code or FAILED)
    after = read_health(machine.health(bench, options.gpu))
    summary = commands.summary_of(read_run(measured.folder))
    health = (*judge_health(before, after, summary.run.records), *presence)
    results = judge_run(summary, summary.reference, health, options.filter or "")
    saved.save(measured.folder / saved.VERDICT_FILE, saved.document(summary, results))
    return Qualified(measured.folder, measured.exit_code, summary, results)


def _speeds(folder: Path) -> Sequence[CheckResult]:
    """The verdicts so far, without those on the card's health."""
    run = read_run(folder)
    known = find_reference(commands.results_folder(), run.records[0].context.slug)
    return judge_run(summarise(run, known), known)


def _options(
    asked: Asked, context: Context, gpu: int | None, share: float = 1.0
) -> measuring.Options:
    """Of one card, which has a share of the time where there are several, all of one model."""
    options = measuring.Options(filter=asked.filter, quick=asked.quick_s is not None, gpu=gpu)
    if asked.quick_s is None:
        return options
    known = commands.known_techniques()
    first = FIRST_SHARE * share
    return measuring.within(asked.quick_s, options, known, context, say, first, asked.verbose)


def _cards(bench: Path, gpus: str, expected: int | None) -> dict[int, Context]:
    """Index and facts of the GPUs that were asked for. Raises GpuliftError where there is none,
    which is a failure where there should be one."""
    if gpus != "all":
        wanted = sorted(machine.gpus_named(bench, gpus))
        contexts = {index: machine.describe(bench, index) for index in wanted}
        missing = next((context for context in contexts.values() if context.gpu is None), None)
        if missing:
            remedy = f"; {missing.gpu_remedy}" if missing.gpu_remedy else ""
            raise GpuliftError(f"--gpus {gpus}: {missing.gpu_missing}{remedy}")
        return contexts
    contexts = {}
    while (context := machine.describe(bench, len(contexts))).gpu is not None:
        contexts[len(contexts)] = context
    if not contexts:
        lost_ones = judge_presence(context, 0, expected, gpus_on_bus())
        told = [(lost.reason, lost.remedy) for lost in lost_ones]
        ((why, remedy),) = told or [(context.gpu_missing, context.gpu_remedy)]
        raise GpuliftError(f"--gpus all: {why}; {remedy}", FAILED if told else NOTHING_RAN)
    return contexts


def _require_one_model(gpus: str, contexts: dict[int, Context]) -> None:
    """Refuses cards that are no siblings before anything is measured, which takes hours."""
    models: dict[str, list[str]] = {}
    for index, context in contexts.items():
        models.setdefault(context.gpu.name if context.gpu else "", []).append(str(index))
    if len(models) > 1:
        listed = ", ".join(f"{name} ({','.join(cards)})" for name, cards in sorted(models.items()))
        raise GpuliftError(f"--gpus {gpus}: cards of several models: {listed}; name those of one")


def _on_one_gpu_only(bench: Path) -> str | None:
    """A filter that leaves out what is the same for every card, and what takes several."""
    others = [info.id for info in machine.catalogue(bench) if info.gpus != 1]
    return f"-^({'|'.join(others)})/" if others else None


def _tell(
    cards: Sequence[Qualified],
    beside: Sequence[Summary],
    how: Shown,
    among: Among | None = None,
    shared: Qualified | None = None,
) -> None:
    from gpulift.report import page as reports

    every = [*cards, *([shared] if shared else [])]
    summaries = [*(one.summary for one in every), *beside]
    analysis = commands.analysis_of(
        summaries,
        records_beside(summaries, [commands.results_folder()], say),
        verdicts={one.summary.run.folder: one.results for one in every},
    )
    page = reports.write(analysis, cards[0].folder / "report")
    if how.as_json:
        documents = [saved.document(one.summary, one.results) for one in every]
        return commands.print_json([*documents, *([among.document] if among else [])])
    screen = terminal.console(wide=how.wide)
    for one in every:
        commands.show(screen, analysis.doubts, one.summary, beside)
        screen.print(basis(one.summary), soft_wrap=True)
        screen.print(shown.verdicts(one.results, how.every))
        for answer in (*feeding.answers(one.summary), *links.told(one.summary)):
            screen.print(answer, soft_wrap=True, markup=False)
        screen.print(f"records: {one.folder}", soft_wrap=True)
    if among is not None:
        screen.print(shown.verdicts(among.results, every=True))
        by_card = {card_of(one.summary.run.records[0].context): one.summary for one in cards}
        screen.print(shown.siblings_table(among.siblings, among.results, by_card))
        screen.print(shown.crowding_table(among.siblings))
        screen.print(f"siblings: {among.file}", soft_wrap=True)
    try:
        if how.explain is not None:
            _explain(cards, among, shared, how.explain)
    finally:  # a check that is not there does not cost the verdict
        for told_of in _last_lines(cards, every, among, page, analysis.doubts):
            screen.print(told_of, soft_wrap=True, markup=False)
    return None


def _last_lines(
    cards: Sequence[Qualified],
    every: Sequence[Qualified],
    among: Among | None,
    page: Path,
    doubts: Doubts,
) -> Iterator[str]:
    """A line for each GPU, and how fast it trains; then the verdict on the machine and where its
    report is."""
    for one in cards:
        yield from filter(None, (of_card(one.summary), *training.answers(one.summary, doubts)))
    results = [result for one in every for result in one.results]
    load = verdict.load_of(*(one.summary for one in cards))
    answer = verdict.answer([*results, *(among.results if among else ())], load=load)
    yield f"{answer.glyph} {answer.sentence}{answer.names}; report: {page}"


def _explain(
    cards: Sequence[Qualified], among: Among | None, shared: Qualified | None, wanted: str
) -> None:
    """The path to each verdict whose name holds the text. Raises GpuliftError where none does,
    which says where the results are: they are kept, whatever was asked about them."""
    results = [result for card in cards for result in card.results]
    if among is not None:
        results = [result for card in cards for result in _of_card(card)] + [*among.results]
    if shared is not None:
        results += shared.results
    try:
        chosen = matching(results, lambda result: result.id, wanted, CHECKS)
    except GpuliftError as error:
        kept = ", ".join(str(card.folder) for card in cards)
        raise GpuliftError(f"{error}; the results are kept in {kept}", error.exit_code) from None
    typer.echo("\n\n".join(map(explanation, chosen)))


def _of_card(card: Qualified) -> list[CheckResult]:
    """Named so that checks of several cards can be told apart, as those of all at once are."""
    name = card_of(card.summary.run.records[0].context)
    return [replace(result, id=f"{result.id} ({name}, alone)") for result in card.results]
