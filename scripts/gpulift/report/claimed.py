"""The ledger of published claims, held against the records of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpulift.analysis.doubts import NO_DOUBTS, Doubts
from gpulift.analysis.summary import Summary
from gpulift.claims.command import rank
from gpulift.claims.judge import (
    CONFIRMED,
    CORRECTED,
    NOT_CONFIRMED,
    NOT_MEASURED,
    NOT_TESTABLE,
    UNDER_CONDITIONS,
    Judgement,
    judge,
)
from gpulift.claims.ledger import Claim
from gpulift.records.model import Record
from gpulift.report import escaping


@dataclass(frozen=True)
class ClaimsView:
    """The ledger held against the records of one model in this report."""

    model: str
    anchor: str
    judgements: tuple[Judgement, ...]

    @property
    def decided(self) -> list[Judgement]:
        """Those with evidence in the records; the best supported first."""
        return [one for one in self.judgements if one.cases]

    @property
    def open(self) -> list[Judgement]:
        """Planned, not measured in these records, or not testable."""
        return [one for one in self.judgements if not one.cases]

    def anchor_of(self, one: Judgement) -> str:
        """The id of a claim's row."""
        return f"{self.anchor}-{one.claim.id}"

    @property
    def counted(self) -> str:
        """How many claims got each verdict."""
        words: dict[str, int] = {}
        for one in self.judgements:
            words[one.verdict] = words.get(one.verdict, 0) + 1
        return ", ".join(f"{count} {word}" for word, count in words.items())


CLAIM_STYLES = {
    CONFIRMED: ("✓", "good"),
    UNDER_CONDITIONS: ("◐", "good"),
    CORRECTED: ("✎", "slower"),
    NOT_CONFIRMED: ("✗", "bad"),
    NOT_TESTABLE: ("–", "muted"),
    NOT_MEASURED: ("…", "muted"),
}


def claims_views(
    ledger: Sequence[Claim],
    summaries: Sequence[Summary],
    further: Iterable[Record] = (),
    doubts: Doubts = NO_DOUBTS,
) -> tuple[ClaimsView, ...]:
    """A view per model whose records are in the report, in the order of the machines.

    `further` are other records of these models. The best supported claims come first, of these the
    ones without known errors.
    """

    def order(one: Judgement) -> tuple[tuple[bool, bool, int], bool]:
        return rank(one), doubts.wrong_times(one.records)

    records: dict[str, dict[str, Record]] = {}
    names: dict[str, str] = {}
    for one in summaries:
        model = one.run.records[0].context.slug
        names.setdefault(model, one.run.machine)
        records.setdefault(model, {}).update((record.id, record) for record in one.run.records)
    for record in further:
        records.get(record.context.slug, {}).setdefault(record.id, record)
    ids = escaping.anchors(names.values(), "claims")
    return tuple(
        ClaimsView(
            names[model],
            ids[names[model]],
            tuple(sorted(judge(ledger, [*found.values()]), key=order)),
        )
        for model, found in records.items()
    )
