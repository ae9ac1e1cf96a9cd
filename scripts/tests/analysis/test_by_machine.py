"""A machine is judged by all of its runs: of each check by the newest that judged it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.analysis.analyse import JudgedRun, by_machine
from gpulift.analysis.machine.results import CheckResult
from gpulift.analysis.summary import summarise
from gpulift.records.parse import read_record
from gpulift.records.read import Run
from tests import sample


def run(day: int, card: str, **checks: str) -> JudgedRun:
    """Of a day of November, with these verdicts."""
    context = sample.gpu_context(gpu={"card": card})
    made = sample.record("a/b", {}, [sample.arm("x", 1e-3)], context=context)
    made["started_at"] = f"2026-11-{day}T04:00:00Z"
    found = Run(Path(f"2026-11-{day}"), (read_record(made),))
    results = (CheckResult(f"health/{name}", verdict) for name, verdict in checks.items())
    return JudgedRun(summarise(found), tuple(results))


NEW, OLD = 28, 21


@pytest.mark.parametrize(
    ("runs", "verdicts"),
    [
        ([run(NEW, "a", x="skipped"), run(OLD, "a", x="pass")], {"x": "pass"}),
        ([run(NEW, "a", x="pass"), run(OLD, "a", y="pass")], {"x": "pass", "y": "pass"}),
        ([run(OLD, "a", x="fail"), run(NEW, "a", x="pass")], {"x": "pass"}),
        ([run(NEW, "a", x="fail"), run(OLD, "a", x="pass")], {"x": "fail"}),
        ([run(OLD, "b", x="fail"), run(NEW, "a", x="pass")], {"x": "fail"}),
        ([run(OLD, "a", x="skipped"), run(NEW, "b", x="skipped")], {"x": "skipped"}),
    ],
)
def test_the_newest_of_each_check_counts_and_the_worst_card(
    runs: list[JudgedRun], verdicts: dict[str, str]
) -> None:
    (machine,) = by_machine(runs)
    assert {one.id.removeprefix("health/"): one.verdict for one in machine.checks} == verdicts
    assert machine.summary is runs[0].summary


def test_a_run_that_was_named_by_itself_stays_so() -> None:
    runs = [run(OLD, "a", x="pass"), run(NEW, "a", y="fail")]
    apart = {one.summary.run.folder for one in runs}
    assert [one.checks for one in by_machine(runs, apart)] == [one.checks for one in runs]
