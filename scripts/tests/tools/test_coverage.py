"""results/certificates/coverage.md: how it is computed, and that it is of the committed records."""

from __future__ import annotations

import re

from gpulift.analysis.model_records import committed_files, records_of_models
from gpulift.analysis.over_runs import RunFigure, over_runs
from gpulift.ground.estimate import Estimate
from tests.conftest import CHECKOUT
from tests.tools.test_showcase import needs_git
from tools import coverage

RESULTS = CHECKOUT / "results"
CHEAP = "launch/cuda_graph"
MAKE_ANEW = "run python -m tools.coverage in scripts/, commit what it writes"


def run(value: float, half: float = 0.001) -> RunFigure:
    return RunFigure("", "", Estimate(value, value - half, value + half, 3), ())


def test_each_run_is_predicted_by_the_others() -> None:
    found = coverage.left_out(over_runs([run(one) for one in (1.0, 1.01, 0.99, 1.02, 3.0)]))
    assert found is not None
    assert (found.runs, found.held, found.own_held) == (5, 4, 1)
    assert (found.later, found.later_held) == (2, 1), "the first three predict the two after them"
    assert found.half_width < found.new_run_half_width


def test_three_runs_are_too_few_to_leave_one_out() -> None:
    assert coverage.left_out(over_runs([run(1.0), run(1.1), run(1.2)])) is None
    assert coverage.line("a/b", []) == ""


def test_a_line_has_shares_of_all_runs_and_widths_of_the_median_row() -> None:
    rows = [
        coverage.LeftOut(4, 4, 1, 1, 2, 0.01, 0.03, untold=True),
        coverage.LeftOut(6, 5, 3, 2, 1, 0.02, 0.05, split=True),
    ]
    assert coverage.line("a/b", rows) == (
        "| a/b | 2 | 10 | 90.0 % | 75.0 % | 30.0 % | 1.5 % | 4.0 % | 1 | 1 |\n"
    )


@needs_git
def test_the_committed_table_is_of_the_committed_records() -> None:
    files = committed_files(RESULTS, coverage.MODEL)
    table = (RESULTS / coverage.TABLE).read_text("utf-8")
    assert f"of the records {coverage.digest(files)}" in " ".join(table.split()), MAKE_ANEW
    records = records_of_models(files, [coverage.MODEL], [CHEAP], print)
    assert coverage.row(CHEAP, records)[0] in table, MAKE_ANEW


def test_texts_give_the_shares_of_the_table() -> None:
    table = (RESULTS / coverage.TABLE).read_text("utf-8")
    shares = r"^\| (\S+) \| \d+ \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) %"
    rows = re.findall(shares, table, re.MULTILINE)
    _, cases, held, later, own = next(row for row in rows if row[0] == "all")
    readme = " ".join((CHECKOUT / "README.md").read_text("utf-8").split())
    assert f"held it in {held} %](results/TRUST.md), from earlier runs in {later} %" in readme
    method = (CHECKOUT / "scripts/gpulift/METHOD.md").read_text("utf-8")
    many = [float(row[2]) for row in rows if int(row[1]) >= 20 and row[0] != "all"]
    usual = [share for share in many if share < 100]
    said = f"in {held} % of {cases} cases, in {min(usual):.0f} to {max(usual):.0f} % by technique"
    assert said in method
    page = f"left out in {held} % of cases, and later ones, by earlier ones alone, in {later} %"
    assert page in " ".join(method.split())
    assert f"by those before it alone it is inside in {later} %" in " ".join(method.split())
    assert f"over runs in {float(own):.0f} %" in " ".join(method.split()).replace("of one run", "")
