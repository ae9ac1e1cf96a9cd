"""The ledger of predictions: lines are read strictly, and only ever added."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.prediction_ledger import (
    COLUMNS,
    FILE,
    WITHDRAWN,
    Line,
    append,
    ends_of,
    read_ledger,
    standing,
    to_append,
    told_by,
)
from gpulift.engine.machine import CasePrediction, TechniqueInfo
from gpulift.ground.errors import GpuliftError
from gpulift.records.model import Record
from gpulift.records.read import read_run
from tests import sample

TECHNIQUE = "transfer/pinned_copy"
FIRST, SECOND, NOW = "2026-11-19T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"
TWICE = Line(FIRST, TECHNIQUE, "bytes:64", "h200", "pinned", "pageable", 1.9, 2.1)
WITHIN_MS = Line(FIRST, TECHNIQUE, "", "", "pinned", "", 9e-4, 1.1e-3)
HEAD = "\t".join(COLUMNS)


def told(**changes: Any) -> Line:
    return replace(TWICE, since=NOW, **changes)


@pytest.fixture(name="record")
def of_second(tmp_path: Path) -> Record:
    """record: of an H200, on which pinned copies were measured before NOW."""
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    made = sample.launches(1, TECHNIQUE, {"direction": "h2d", "bytes": 64}, arms)
    sample.write(tmp_path, [{**one, "started_at": SECOND} for one in made])
    (record,) = read_run(tmp_path).records
    return record


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text(HEAD + "\n", encoding="utf-8")
    gone = replace(TWICE, since=SECOND, low=0, high=0, remark=WITHDRAWN)
    append(file, [TWICE, WITHIN_MS])
    before = file.read_bytes()
    append(file, [gone])
    assert file.read_bytes().startswith(before)
    assert read_ledger(file) == (TWICE, WITHIN_MS, gone)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (f"{FIRST}\ta/b\t\t\tx\t\t1\t2", ":2: has 8 cells for 9 columns"),
        (f"{FIRST}\ta/b\t\t\tx\t\tone\t2\t", ":2: 'one' to '2' is no range of numbers"),
        (f"{FIRST}\ta/b\t\t\tx\t\t2\t1\t", ":2: 2 to 1 is no range above 0"),
        (f"{FIRST}\ta/b\t\t\tx\t\t0\t1\t", ":2: 0 to 1 is no range above 0"),
        (f"{FIRST}\ta/b\t\t\tx\t\tnan\t1\t", ":2: nan to 1 is no range above 0"),
        (f"{FIRST}\ta/b\t\t\tx\t\t1\tinf\t", ":2: 1 to inf is no range above 0"),
        (f"{FIRST}\ta/b\t\t\tx\t\t1\t2\tsome", ":2: 'some' is no remark"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str, wrong: str) -> None:
    file = tmp_path / FILE
    file.write_text(f"{HEAD}\n{line}\n", encoding="utf-8")
    with pytest.raises(GpuliftError, match=wrong):
        read_ledger(file)


def test_other_columns_and_no_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / FILE
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_ledger(file)
    file.write_bytes(b"\xff\n")
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_ledger(file)
    file.write_text("arm\trange\n", encoding="utf-8")
    with pytest.raises(GpuliftError, match="does not begin with the columns since technique"):
        read_ledger(file)


def test_a_later_line_of_the_same_replaces_an_earlier_one() -> None:
    changed = replace(TWICE, since=SECOND, high=3.0)
    other_order = replace(TWICE, case="bytes:64/direction:h2d")
    turned = replace(other_order, since=SECOND, case="direction:h2d/bytes:64")
    lines = [TWICE, WITHIN_MS, other_order, changed, turned]
    assert ends_of(lines) == {TWICE: SECOND, other_order: SECOND}
    assert standing(lines) == [WITHIN_MS, changed, turned]
    gone = replace(WITHIN_MS, since=SECOND, low=0, high=0, remark=WITHDRAWN)
    assert standing([WITHIN_MS, gone]) == []


def test_files_tell_ranges_over_their_baseline() -> None:
    info = TechniqueInfo(
        TECHNIQUE,
        "Is it?",
        1,
        False,
        ("pageable", "pinned"),
        (),
        predict=(
            CasePrediction("pinned", on="h200", speedup=(1.9, 2.1), case={"bytes": 64}),
            CasePrediction("pinned", step_time_s=(9e-4, 1.1e-3)),
        ),
    )
    assert told_by([info], FIRST) == [TWICE, WITHIN_MS]


def test_what_the_ledger_has_is_not_added_again() -> None:
    assert to_append([TWICE], [told()], []) == []


def test_a_new_prediction_is_added_and_one_that_files_have_no_more_ends() -> None:
    new = told(case="bytes:32")
    ended = replace(TWICE, since=NOW, low=0, high=0, remark=WITHDRAWN)
    assert to_append([TWICE], [new], []) == [ended, new]


def test_a_range_that_changes_before_it_was_measured_needs_no_remark() -> None:
    assert to_append([TWICE], [told(high=3.0)], []) == [told(high=3.0)]


def test_a_range_that_changes_after_a_measurement_names_the_record(record: Record) -> None:
    (line,) = to_append([TWICE], [told(high=3.0)], [record])
    assert line == told(high=3.0, remark=f"after {record.citation}")
    assert line.after == record.citation


def test_so_does_one_that_is_new_of_what_was_measured(record: Record) -> None:
    (line,) = to_append([], [told()], [record])
    assert line.after == record.citation


def test_what_another_model_measured_is_known_of_a_range_that_changes_alone(
    record: Record,
) -> None:
    elsewhere = told(on="h100")
    assert to_append([], [elsewhere], [record]) == [elsewhere]
    stood = replace(TWICE, on="h100")
    (changed,) = to_append([stood], [replace(elsewhere, high=3.0)], [record])
    assert changed.after == record.citation


def test_another_baseline_is_another_prediction(record: Record) -> None:
    assert to_append([TWICE], [told(over="registered")], [record]) == [told(over="registered")]
