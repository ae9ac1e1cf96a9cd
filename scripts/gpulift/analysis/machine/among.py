"""Several cards of a machine: each alone and all at once, judged among each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpulift.analysis.machine import saved
from gpulift.analysis.machine.checks import of_problem
from gpulift.analysis.machine.health import judge_health
from gpulift.analysis.machine.results import FAIL, CheckResult
from gpulift.analysis.machine.siblings import Siblings, compare_siblings, judge_siblings
from gpulift.analysis.summary import Summary


@dataclass(frozen=True)
class Among:
    """What the cards say of each other, and the file that keeps it."""

    siblings: Siblings
    results: tuple[CheckResult, ...]
    document: Mapping[str, Any]
    file: Path


def judge_among(alone: Mapping[str, Summary], together: Mapping[str, Summary], file: Path) -> Among:
    """Judges the cards, by name, and writes what was found. GpuliftError where it cannot be."""
    siblings = compare_siblings(alone, together)
    crowded = [result for card, busy in together.items() for result in judge_together(card, busy)]
    results = (*judge_siblings(siblings), *crowded)
    among = Among(siblings, results, saved.siblings_document(siblings, results), file)
    saved.save(file, among.document)
    return among


def judge_together(card: str, summary: Summary) -> list[CheckResult]:
    """What went wrong on a card only while all were busy: failed cases, throttling, wrong bits."""
    health = judge_health(None, None, summary.run.records)
    broken = (of_problem(problem, summary) for problem in summary.broken)
    failed = [*(result for result in health if result.verdict == FAIL), *broken]
    return [replace(result, id=f"{result.id} ({card}, all at once)") for result in failed]
