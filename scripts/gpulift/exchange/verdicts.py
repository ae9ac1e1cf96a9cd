"""The verdicts of `qualify` on a run, from its records."""

from __future__ import annotations

from gpulift.errors import GpuliftError
from gpulift.qualify.checks import CheckResult, judge_run
from gpulift.qualify.health import judge_health
from gpulift.qualify.saved import VERDICT_FILE
from gpulift.records.fields import Fields
from gpulift.records.read import parse_line
from gpulift.report.summary import Summary

HEALTH = "health"


def checks_of(summary: Summary) -> tuple[CheckResult, ...]:
    """Every check. The card's health is what `qualify` kept beside the records, or else what the
    records say of it. Raises GpuliftError where there is nothing of ours to judge."""
    run = summary.run
    if not any(record.kind == "technique" for record in run.records):
        kinds = ", ".join(sorted({record.kind for record in run.records}))
        raise GpuliftError(
            f"{run.folder}: holds no measurement that could be judged, only records of kind {kinds}"
        )
    return judge_run(summary, summary.reference, _kept_health(summary))


def _kept_health(summary: Summary) -> tuple[CheckResult, ...]:
    file = summary.run.folder / VERDICT_FILE
    try:
        document = Fields(parse_line(file.read_bytes(), str(file)), str(file))
    except OSError:
        return judge_health(None, None, summary.run.records)
    return tuple(
        CheckResult(
            one.text("id"),
            one.text("verdict"),
            one.text("reason"),
            one.text("remedy"),
            kind=HEALTH,
        )
        for one in document.children("checks")
        if one.text("kind") == HEALTH
    )
