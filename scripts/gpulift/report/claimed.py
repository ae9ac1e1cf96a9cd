"""The ledger of published claims, held against the records of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpulift.analysis.analyse import ModelClaims
from gpulift.analysis.claim_rules import CONFIRMED, CORRECTED, NOT_CONFIRMED, UNDER_CONDITIONS
from gpulift.analysis.claims import (
    BY_DOCUMENTATION,
    NOT_DECIDED,
    NOT_MEASURED,
    NOT_TESTABLE,
    REFUTED,
    Judgement,
)
from gpulift.report import escaping


@dataclass(frozen=True)
class ClaimsView:
    """The ledger held against the records of one model in this report."""

    model: str
    anchor: str
    judgements: tuple[Judgement, ...]

    @property
    def told(self) -> list[Judgement]:
        """Those with evidence in the records, be it too little to decide; the best supported
        first."""
        return [one for one in self.judgements if one.evidence]

    @property
    def open(self) -> list[Judgement]:
        """Not measured in these records, not testable, or decided by documentation."""
        return [one for one in self.judgements if not one.evidence]

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
    NOT_DECIDED: ("?", "muted"),
    BY_DOCUMENTATION: ("✓", "good"),
    REFUTED: ("✗", "bad"),
    NOT_TESTABLE: ("–", "muted"),
    NOT_MEASURED: ("…", "muted"),
}


def claims_views(claims: Sequence[ModelClaims]) -> tuple[ClaimsView, ...]:
    """A view per model whose records are in the report."""
    anchors = escaping.anchors((one.machine for one in claims), "claims")
    return tuple(ClaimsView(one.machine, anchors[one.machine], one.judgements) for one in claims)
