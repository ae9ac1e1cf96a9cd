"""Figures over all runs of a model, put into the summaries of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpulift.analysis.over_runs import case_of, speedup_over_runs
from gpulift.analysis.summary import Summary, Worth
from gpulift.records.model import Record
from gpulift.verdicts.cases import TECHNIQUE


def with_models(summaries: Sequence[Summary], records: Iterable[Record]) -> list[Summary]:
    """The runs with the figure of their model beside each of theirs, from its records of the same
    work."""
    cases: dict[tuple[str, str, str], dict[str, Record]] = {}
    every = [*(one for summary in summaries for one in summary.run.records), *records]
    for record in every:
        if record.kind == TECHNIQUE and not record.synthetic:
            cases.setdefault(case_of(record), {})[record.id] = record
    return [_with_model(summary, cases) for summary in summaries]


def _with_model(summary: Summary, cases: dict[tuple[str, str, str], dict[str, Record]]) -> Summary:
    def of(row: Worth) -> Worth:
        found = cases.get(case_of(row.case.first), {}).values()
        figure = speedup_over_runs(found, row.arm, row.baseline, of=row.case.measured)
        return replace(row, of_model=figure)

    return replace(summary, worths=tuple(map(of, summary.worths)))
