"""The verdicts as JSON, as `qualify` prints them and keeps them beside the records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from gpulift.analysis.machine.checks import basis, coverage
from gpulift.analysis.machine.explain import as_data, position_data
from gpulift.analysis.machine.health import judge_health
from gpulift.analysis.machine.results import VERDICTS, WORST_FIRST, CheckResult
from gpulift.analysis.machine.siblings import Siblings
from gpulift.analysis.summary import Summary
from gpulift.ground.whole import write_whole
from gpulift.records.decode import decoded
from gpulift.records.read import Run
from gpulift.records.values import among

VERDICT_FILE = "qualification.json"
SIBLINGS_FILE = "siblings.json"
HEALTH = "health"


def document(summary: Summary, results: Sequence[CheckResult]) -> dict[str, Any]:
    """The verdicts on one card, or on a machine without one."""
    return {
        "run": summary.run.name,
        "method": summary.run.records[0].method,
        "basis": basis(summary),
        "coverage": coverage(results),
        "checks": [as_data(result) for result in results],
    }


def siblings_document(siblings: Siblings, results: Sequence[CheckResult]) -> dict[str, Any]:
    """What the cards of a machine say of each other; crowding is speed together / speed alone."""
    return {
        "cards": list(siblings.cards),
        "note": siblings.note,
        "checks": [as_data(result) for result in results],
        "outliers": [position_data(outlier) for outlier in siblings.outliers],
        "crowding": [asdict(crowding) for crowding in siblings.crowding],
    }


@dataclass(frozen=True)
class KeptCheck:
    """What is read again of a check."""

    id: str
    verdict: Annotated[str, among(*VERDICTS)]
    reason: str
    remedy: str
    kind: str


@dataclass(frozen=True)
class Kept:
    """What is read again of the verdicts on a card."""

    coverage: str = ""
    checks: tuple[KeptCheck, ...] = ()


def kept_health(run: Path) -> tuple[CheckResult, ...] | None:
    """What was seen of the card before and after the run in this folder; None where `qualify` kept
    no verdicts. Raises RecordError for a file that is not of ours."""
    file = run / VERDICT_FILE
    try:
        kept = decoded(file.read_bytes(), Kept, str(file))
    except OSError:
        return None
    return tuple(
        CheckResult(
            check.id,
            check.verdict,
            check.reason,
            check.remedy,
            kind=HEALTH,
        )
        for check in kept.checks
        if check.kind == HEALTH
    )


def health_of(run: Run) -> tuple[CheckResult, ...]:
    """The card's health: of what `qualify` kept beside the records of this run and what the records
    say, which may be newer, the worse. Raises RecordError for a kept file that is not of ours."""
    kept = {result.id: result for result in kept_health(run.folder) or ()}
    seen = {result.id: result for result in judge_health(None, None, run.records)}
    return tuple(
        min(
            (side[id] for side in (kept, seen) if id in side),
            key=lambda result: WORST_FIRST.index(result.verdict),
        )
        for id in {**kept, **seen}
    )


def save(file: Path, document: Mapping[str, Any]) -> None:
    """Writes it. Raises GpuliftError where the file cannot be written."""
    write_whole(json.dumps(document, indent=1, allow_nan=False) + "\n", file)
