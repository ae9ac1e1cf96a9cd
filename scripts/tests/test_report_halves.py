"""Summaries that two processes made are those of one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpulift.analysis.summary import Summary, summarise
from gpulift.errors import GpuliftError
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from gpulift.report import halves
from tests import runs_made

MADE = (runs_made.full_gpu(), runs_made.without_gpu(), runs_made.with_troubles())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Few records, of which two processes summarise nevertheless."""
    monkeypatch.setattr(halves, "ENOUGH_RECORDS", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    return [Run(Path(f"{n}"), tuple(map(read_record, records))) for n, records in enumerate(MADE)]


def in_another_process(then: Callable[[], None]) -> Callable[[Run], Summary]:
    """Summarises; the other process does something else first."""
    here = os.getpid()

    def made(run: Run) -> Summary:
        if os.getpid() != here:
            then()
        return summarise(run)

    return made


def test_they_are_equal_and_of_the_same_records(runs: list[Run], tmp_path: Path) -> None:
    found = halves.summaries(runs, in_another_process((tmp_path / "worked").touch))
    assert found == [summarise(run) for run in runs]
    assert (tmp_path / "worked").exists()
    for run, summary in zip(runs, found, strict=True):
        assert summary.run is run
        of_cases = [record for case in summary.cases for record in case.records]
        assert {id(record) for record in of_cases} <= {id(record) for record in run.records}
        for case in summary.cases:
            for name, arms in case.arms.items():
                known = {id(record.arm(name)) for record in case.measured}
                assert {id(one) for one in arms} <= known


def test_what_a_killed_process_had_to_do_is_done_here(runs: list[Run]) -> None:
    killed = in_another_process(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert halves.summaries(runs, killed) == [summarise(run) for run in runs]


def test_an_error_is_raised_here(runs: list[Run]) -> None:
    def refuses(run: Run) -> Summary:
        if run is runs[-1]:
            raise GpuliftError("a reference cannot be read")
        return summarise(run)

    with pytest.raises(GpuliftError, match="a reference cannot be read"):
        halves.summaries(runs, refuses)


def test_few_records_are_summarised_here(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "ENOUGH_RECORDS", 10_000)
    pids: list[int] = []

    def noting(run: Run) -> Summary:
        pids.append(os.getpid())
        return summarise(run)

    halves.summaries(runs, noting)
    assert pids == [os.getpid()] * len(runs)
