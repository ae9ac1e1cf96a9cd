"""The verdicts of `qualify` on a run, from its records."""

from __future__ import annotations

from gpulift.analysis.summary import Summary
from gpulift.errors import GpuliftError
from gpulift.qualify.checks import CheckResult, judge_run
from gpulift.qualify.saved import health_of


def checks_of(summary: Summary) -> tuple[CheckResult, ...]:
    """Every check. The card's health is what `qualify` kept beside the records, or else what the
    records say of it. Raises GpuliftError where there is nothing of ours to judge."""
    run = summary.run
    if not any(record.kind == "technique" for record in run.records):
        kinds = ", ".join(sorted({record.kind for record in run.records}))
        raise GpuliftError(
            f"{run.folder}: holds no measurement that could be judged, only records of kind {kinds}"
        )
    return judge_run(summary, summary.reference, health_of(run))
