"""`gpulift claims`: each published statement, and what the records of each model say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from gpulift import commands, terminal, text
from gpulift.arguments import Wide, named
from gpulift.citing import errata
from gpulift.citing.errata import Erratum, errata_of
from gpulift.claims.judge import INSIDE, UNDER_CONDITIONS, VERDICTS, Judgement, judge
from gpulift.claims.ledger import Claim, read_ledger
from gpulift.commands import Json
from gpulift.entry import say
from gpulift.errors import GpuliftError
from gpulift.records.files import record_files_below, size_of, stem_of
from gpulift.records.model import Record
from gpulift.records.read import read_results
from gpulift.records.together import was_crowded

SHOWN_CASES = 4
COLUMNS = ("claim", "source", "verdict", "measured", "conditions")


def claims(
    gpu: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Model, as in `NVIDIA H200`, nvidia-h200 or h200; all by default."),
    ] = None,
    results: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            parser=named, metavar="FOLDER", help="Folder of results; the checkout's by default."
        ),
    ] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> None:
    """Published statements: confirmed, corrected or still open, for each GPU model with records."""
    ledger = read_ledger()
    models = records_by_model(results or commands.results_folder(), ledger)
    if gpu is not None:
        model = commands.require_model(gpu, list(models), "there are no records")
        models = {model: models[model]}
    judged = {model: judge(ledger, found) for model, found in (models or {"": []}).items()}
    known = errata.read_errata(commands.results_folder() / errata.FILE)
    if as_json:
        found = [as_dict(model, one, known) for model in judged for one in judged[model]]
        commands.print_json(found)
        return
    for model, judgements in judged.items():
        terminal.console(wide=wide).print(table(model, judgements, known))


def records_by_model(results: Path, ledger: Sequence[Claim]) -> dict[str, list[Record]]:
    """All records below a folder of the techniques that claims name, by model; GPUs come first.

    What was measured with several GPUs busy at once is left out.
    """
    if not results.is_dir():
        raise GpuliftError(f"{results}: there is no such folder")
    techniques = {claim.test.technique.replace("/", ".") for claim in ledger if claim.test}
    files = [file for file in record_files_below(results) if stem_of(file) in techniques]
    found: dict[str, list[Record]] = {}
    crowded = {folder for folder in {file.parent for file in files} if was_crowded(folder)}
    files = [file for file in files if file.parent not in crowded and size_of(file)]
    for run in read_results(files):
        for warning in run.warnings:
            say(f"warning: {warning}")
        if any(record.synthetic for record in run.records):
            raise GpuliftError(f"{run.folder}: holds synthetic test data, which decides no claim")
        for record in run.records:
            found.setdefault(record.context.slug, []).append(record)
    return dict(sorted(found.items(), key=lambda item: (item[0].startswith("cpu-"), item[0])))


def table(model: str, judgements: Sequence[Judgement], known: Sequence[Erratum] = ()) -> Table:
    """The claims of one model, what was decided best first; then in the order of the ledger."""
    made = terminal.UnbrokenTable(
        title=f"Which published claims hold on {model}?" if model else "There are no records yet",
        title_justify="left",
        title_style="bold",
        box=box.HORIZONTALS,
        pad_edge=False,
        show_lines=True,  # cells are of several lines
    )
    made.spared = ("conditions", "source")
    for column in COLUMNS:
        made.add_column(column)
    for one in sorted(judgements, key=rank):
        cells = (
            one.claim.statement,
            one.claim.source.label,
            one.verdict,
            measured(one),
            "; ".join(filter(None, (conditions(one), *errors(one, known)))),
        )
        made.add_row(*(escape(cell) for cell in cells))
    return made


def rank(one: Judgement) -> tuple[bool, bool, int]:
    """What rests on enough runs to speak of the model first, then what on fewer, by verdict."""
    return not one.cases, not one.of_model, VERDICTS.index(one.verdict)


def measured(one: Judgement) -> str:
    """The gain, or its range over the cases, what decided, and what decides nothing."""
    if one.claim.test is None or one.range is None:
        return one.reason
    if len(one.cases) == 1:
        gain = one.cases[0].figure.shown
    else:
        low, high = one.range
        gain = f"{low:.3g}× to {high:.3g}× over {len(one.cases)} cases"
    parts = [f"{one.claim.test.metric} {gain}", one.reason]
    if one.single:
        single = [f"{text.case_label(id)} {gain:.3g}×" for id, gain in one.single]
        parts.append(f"one launch, which decides nothing: {', '.join(_first(single))}")
    return "; ".join(parts)


def conditions(one: Judgement) -> str:
    """Cases where it holds only in some, cards, launches, and the records that were used; without
    any, the command that makes them."""
    if not one.records:
        return one.command
    records = one.records
    parts = []
    if one.verdict == UNDER_CONDITIONS:
        inside = [text.case_label(case.case_id) for case in one.cases if case.place == INSIDE]
        parts.append("holds for " + "; ".join(_first(inside)))
    if all(case.cards for case in one.cases):
        parts.append(_span([len(case.cards) for case in one.cases], "card"))
    parts.append(_span([len(case.figure.runs) for case in one.cases], "run"))
    parts.append(_span([case.gain.launches for case in one.cases], "launch", "es") + " a case")
    parts.append(f"{len(records)} records, the first {records[0].citation}")
    parts += sorted({record.context.build.doubt for record in records} - {""})
    return ", ".join(parts)


def errors(one: Judgement, known: Sequence[Erratum]) -> list[str]:
    """`known error: ...` for each that a record of the verdict has, as `show` says it."""
    found = (erratum for record in one.records for erratum in errata_of(record, known))
    return [f"known error: {erratum.short}" for erratum in dict.fromkeys(found)]


def _first(cases: Sequence[str]) -> list[str]:
    rest = len(cases) - SHOWN_CASES
    return [*cases[:SHOWN_CASES], *([f"{rest} more"] if rest > 0 else [])]


def _span(counts: Sequence[int], what: str, plural: str = "s") -> str:
    """`3 launches`, `one run` or `1 to 4 cards`."""
    low, high = min(counts), max(counts)
    number = f"{low} to {high}" if low != high else "one" if low == 1 else f"{low}"
    return f"{number} {what}{'' if high == 1 else plural}"


def as_dict(model: str, one: Judgement, known: Sequence[Erratum] = ()) -> Mapping[str, Any]:
    """All of it as JSON."""
    return {
        "model": model,
        "id": one.claim.id,
        "statement": one.claim.statement,
        "source": asdict(one.claim.source),
        "test": asdict(one.claim.test) if one.claim.test else None,
        "verdict": one.verdict,
        "reason": one.reason,
        "command": one.command,
        "range": one.range,
        "cases": [
            {
                "case": case.case_id,
                "gain": case.gain.value,
                "low": case.low,
                "high": case.high,
                "basis": case.figure.basis,
                "runs": len(case.figure.runs),
                "launches": case.gain.launches,
                "place": case.place,
                "cards": case.cards,
                "commits": sorted({record.context.build.commit for record in case.records}),
                "records": [record.citation for record in case.records],
            }
            for case in one.cases
        ],
        "single": [{"case": id, "gain": gain} for id, gain in one.single],
        "errata": errors(one, known),
        "drivers": sorted({record.context.driver for record in one.records}),
    }
