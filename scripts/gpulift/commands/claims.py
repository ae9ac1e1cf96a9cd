"""`gpulift claims`: each published statement, and what the records of each model say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gpulift.analysis.choice import Choice, choice_of
from gpulift.analysis.claim_rules import CaseResult
from gpulift.analysis.claims import (
    Judgement,
    conditions,
    judge,
    measured,
    rank,
)
from gpulift.analysis.errata import Erratum, known_errors
from gpulift.analysis.ledger import Claim, read_ledger, read_statements
from gpulift.analysis.neighbours import neighbours_at
from gpulift.commands import articles, predictions
from gpulift.commands import shared as commands
from gpulift.commands.shared import mode_of
from gpulift.engine import machine
from gpulift.ground import terminal
from gpulift.ground.arguments import Filter, Json, SomeResults, Wide
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.records.files import record_files_below, size_of, stem_of
from gpulift.records.find import require_model
from gpulift.records.read import Run, read_results
from gpulift.records.together import was_crowded

COLUMNS = ("claim", "source", "verdict", "measured", "conditions")


Model = Annotated[str | None, typer.Option(help="Model, as nvidia-h200 or h200; else all.")]
Articles = Annotated[
    bool, typer.Option("--articles", help="What each says, in its own words, and what holds.")
]
Predicted = Annotated[
    bool, typer.Option("--predicted", help="What techniques predicted, and what missed.")
]
Every = Annotated[
    bool, typer.Option("--all", help="What nothing was measured of, too; of --predicted what held.")
]
MODES = {"": "--gpu --articles --all", "--predicted": "--all --filter"}


def claims(
    context: typer.Context,
    results: SomeResults = None,
    gpu: Model = None,
    by_article: Articles = False,
    predicted: Predicted = False,
    every: Every = False,
    filter: Filter = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Published statements: confirmed, corrected or still open, for each GPU model with records,
    which are those of the checkout where no RESULTS are named."""
    mode_of(context, MODES)
    places = results or [machine.all_records()]
    if predicted:
        predictions.show(places, every, filter, wide, as_json)
        return
    ledger = read_ledger()
    models = runs_by_model(places, ledger)
    if gpu is not None:
        model = require_model(gpu, list(models), "there are no records")
        models = {model: models[model]}
    choice = choice_of(commands.results_folder())
    known = choice.errata
    judged = {
        model: judgements_of(ledger, runs, choice) for model, runs in (models or {"": []}).items()
    }
    if by_article:
        said = [*read_statements().values()]
        if as_json:
            commands.print_json(articles.as_dicts(said, judged))
            return
        for one in articles.tables(said, judged):
            terminal.console(wide=wide).print(one)
        return
    if as_json:
        found = [as_dict(model, one, known) for model in judged for one in judged[model]]
        commands.print_json(found)
        return
    for model, judgements in judged.items():
        shown = [one for one in judgements if every or not model or one.cases or one.barred]
        terminal.console(wide=wide).print(table(model, shown, known))
        if rest := Counter(one.verdict for one in judgements if one not in shown):
            counted = ", ".join(f"{count} {verdict}" for verdict, count in rest.items())
            typer.echo(f"{counted}: --all shows them\n")


def judgements_of(
    ledger: Sequence[Claim], runs: Sequence[Run], choice: Choice
) -> Sequence[Judgement]:
    records = [record for run in runs for record in run.records]
    return judge(ledger, records, choice, neighbours_at(runs, say))


def runs_by_model(results: Sequence[Path], ledger: Sequence[Claim]) -> dict[str, list[Run]]:
    """All runs below folders of the techniques that claims name, by model; GPUs come first.

    What was measured with several GPUs busy at once is left out.
    """
    for above in results:
        if not above.is_dir():
            raise GpuliftError(f"{above}: there is no such folder")
    techniques = {claim.test.technique.replace("/", ".") for claim in ledger if claim.test}
    below = (file for above in results for file in record_files_below(above))
    files = [file for file in below if stem_of(file) in techniques]
    found: dict[str, list[Run]] = {}
    crowded = {folder for folder in {file.parent for file in files} if was_crowded(folder)}
    files = [file for file in files if file.parent not in crowded and size_of(file)]
    for run in read_results(files):
        for warning in run.warnings:
            say(f"warning: {warning}")
        if any(record.synthetic for record in run.records):
            raise GpuliftError(f"{run.folder}: holds synthetic test data, which decides no claim")
        found.setdefault(run.model, []).append(run)
    return dict(sorted(found.items(), key=lambda item: (item[0].startswith("cpu-"), item[0])))


def table(model: str, judgements: Sequence[Judgement], known: Sequence[Erratum] = ()) -> Table:
    """The claims of one model, what was decided best first; then in the order of the ledger."""
    title = f"Which published claims hold on {model}?" if model else "There are no records yet"
    made = terminal.titled(title, ("conditions", "source"), COLUMNS, ruled=True)
    for one in sorted(judgements, key=rank):
        cells = (
            one.claim.shown,
            one.claim.source.label,
            one.verdict,
            measured(one),
            "; ".join(filter(None, (conditions(one), *errors(one, known)))),
        )
        made.add_row(*(escape(cell) for cell in cells))
    return made


def errors(one: Judgement, known: Sequence[Erratum]) -> list[str]:
    """`known error: ...` for each that a record of the verdict has, as `show` says it."""
    return [f"known error: {erratum.short}" for erratum in known_errors(one.records, known)]


def as_dict(model: str, one: Judgement, known: Sequence[Erratum] = ()) -> Mapping[str, Any]:
    """All of it as JSON."""
    return {
        "model": model,
        "id": one.claim.id,
        "statement": one.claim.statement,
        "in_part": one.claim.in_part,
        "source": asdict(one.claim.source),
        "articles": [
            {"id": said.id, "quote": said.quote, "says": said.says} for said in one.claim.articles
        ],
        "test": asdict(one.claim.test) if one.claim.test else None,
        "verdict": one.verdict,
        "reason": one.reason,
        "command": one.command,
        "range": one.range,
        "cases": [_case(case) for case in one.cases],
        "barred": [{**_case(each.case), "why": each.why} for each in one.barred],
        "errata": errors(one, known),
        "drivers": sorted({record.context.driver for record in one.records}),
    }


def _case(case: CaseResult) -> Mapping[str, Any]:
    return {
        "case": case.case_id,
        "gain": case.gain.value,
        "low": case.low,
        "high": case.high,
        "basis": case.figure.basis,
        "runs": len(case.figure.runs),
        "doubts": case.figure.doubts,
        "launches": case.gain.launches,
        "place": case.place,
        "bound": case.grade.bound,
        "grade": {"marks": case.grade.marks, "words": case.grade.words},
        "cards": case.cards,
        "commits": sorted({record.context.build.commit for record in case.records}),
        "records": [record.citation for record in case.records],
    }
