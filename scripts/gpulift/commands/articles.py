"""`gpulift claims --articles`: each statement of each article, and what of it the records hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from gpulift.analysis.claims import Judgement, measured
from gpulift.analysis.ledger import Source, Statement
from gpulift.ground import terminal

COLUMNS = ("it says", "in its own words", "claim", "what holds")
Judged = Mapping[str, Sequence[Judgement]]  # by model
Found = Sequence[tuple[str, Judgement]]  # of one claim, on each model


def tables(statements: Sequence[Statement], judged: Judged) -> Iterator[Table]:
    """A table of each article, statements in their order."""
    for source in dict.fromkeys(one.source for one in statements):
        yield _table(source, [one for one in statements if one.source == source], judged)


def _table(source: Source, statements: Sequence[Statement], judged: Judged) -> Table:
    title = "\n".join([f"{source.label}: {source.name}", *_counts(statements, judged)])
    made = terminal.titled(escape(title), ("in its own words", "claim"), COLUMNS, ruled=True)
    for one in statements:
        for row in _rows(one, judged):
            made.add_row(*(escape(cell) for cell in row))
    return made


def _counts(statements: Sequence[Statement], judged: Judged) -> Iterator[str]:
    """How many of the article's claims have which verdict on each model that has figures of one."""
    ids = {one.id for one in statements}
    for model, judgements in judged.items():
        found = [one for one in judgements if ids & {said.id for said in one.claim.articles}]
        if len(judged) == 1 or any(one.evidence for one in found):
            verdicts = Counter(one.verdict for one in found)
            counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            yield f"{model or 'without records'}: {len(ids)} statements; of their claims {counted}"


def _rows(said: Statement, judged: Judged) -> Iterator[tuple[str, ...]]:
    """One for each claim, and one for what no claim covers."""
    cells = [(claim, _held(found)) for claim, found in _claims_of(said, judged).items()]
    if said.untested:
        cells.append(("", f"no claim: {said.untested}"))
    for number, (claim, held) in enumerate(cells):
        words = ("", "") if number else (said.says, said.quote)
        yield (*words, claim, held)


def _claims_of(said: Statement, judged: Judged) -> dict[str, list[tuple[str, Judgement]]]:
    """By the claim's id."""
    found: dict[str, list[tuple[str, Judgement]]] = {}
    for model, judgements in judged.items():
        for one in judgements:
            if any(each.id == said.id for each in one.claim.articles):
                found.setdefault(one.claim.id, []).append((model, one))
    return found


def _held(found: Found) -> str:
    """The verdicts of models whose records have figures of it; where none have, why; and what of it
    no test is about."""
    told = [(f"{model}: ", one) for model, one in found if one.evidence]
    named = told if len(found) > 1 else []
    parts = [
        f"{model}{one.verdict}: {measured(one)}" for model, one in named or [("", found[0][1])]
    ]
    in_part = found[0][1].claim.in_part
    return "; ".join([*parts, *([f"in part: {in_part}"] if in_part else [])])


def as_dicts(statements: Sequence[Statement], judged: Judged) -> list[dict[str, Any]]:
    """All of it as JSON."""
    return [
        {
            **asdict(said),
            "claims": [
                {
                    "id": one.claim.id,
                    "statement": one.claim.statement,
                    "in_part": one.claim.in_part,
                    "model": model,
                    "verdict": one.verdict,
                    "reason": one.reason,
                    "range": one.range,
                }
                for found in _claims_of(said, judged).values()
                for model, one in found
            ],
        }
        for said in statements
    ]
