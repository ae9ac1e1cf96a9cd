"""Why predictions were missed, as far as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulift.analysis.misses import FILE, MEASURED, UNKNOWN, Reason, read_reasons, unused
from gpulift.ground.errors import RecordError
from gpulift.records.model import Record
from gpulift.records.read import read_run
from tests import sample

TECHNIQUE = "transfer/pinned_copy"


@pytest.fixture(name="record")
def of_pinned(tmp_path: Path) -> Record:
    """record: of an H200."""
    arms = [sample.arm("pageable", 2e-3), sample.arm("pinned", 1e-3)]
    sample.write(tmp_path, sample.launches(1, TECHNIQUE, {"bytes": 64}, arms))
    (record,) = read_run(tmp_path).records
    return record


def test_entries_are_read_and_none_is_no_file(tmp_path: Path) -> None:
    assert read_reasons(tmp_path / FILE) == ()
    text = f'[[misses]]\ntechnique = "a/b"\narms = "x|y"\nkind = "{MEASURED}"\nwhy = "A trace."\n'
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    (one,) = read_reasons(tmp_path / FILE)
    assert one == Reason("a/b", MEASURED, "A trace.", arms="x|y")
    assert one.told == "measured apart: A trace."


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ('kind = "guessed"', "kind"),
        ('kind = "reckoned"', "what is reckoned says why"),
        ('kind = "not known yet"\ncases = "("', "cases is no regular expression"),
        ('kind = "not known yet"\ncase = "x"', "case is not known"),
    ],
)
def test_what_is_no_reason_is_refused(tmp_path: Path, entry: str, wrong: str) -> None:
    (tmp_path / FILE).write_text(f'[[misses]]\ntechnique = "a/b"\n{entry}\n', encoding="utf-8")
    with pytest.raises(RecordError, match=wrong):
        read_reasons(tmp_path / FILE)


def test_what_is_not_known_says_just_that() -> None:
    assert Reason("a/b", UNKNOWN).told == "not known yet"
    assert Reason("a/b", UNKNOWN, "5 us are left").told == "not known yet: 5 us are left"


@pytest.mark.parametrize(
    ("patterns", "is_of"),
    [
        ({}, True),
        ({"arms": "pinned|other"}, True),
        ({"arms": "pin"}, False),
        ({"cases": "s:64$"}, True),
        ({"cases": "s:32$"}, False),
        ({"machines": "h200"}, True),
        ({"machines": "h100"}, False),
    ],
)
def test_it_is_of_whole_arms_and_of_parts_of_cases_and_machines(
    record: Record, patterns: dict[str, str], is_of: bool
) -> None:
    assert Reason(TECHNIQUE, UNKNOWN, **patterns).is_of(record, "pinned") is is_of
    assert not Reason("a/b", UNKNOWN, **patterns).is_of(record, "pinned")


def test_a_reason_that_no_miss_takes_is_unused(record: Record) -> None:
    first, second = Reason(TECHNIQUE, UNKNOWN), Reason(TECHNIQUE, UNKNOWN, arms="pinned")
    assert unused([first, second], [(record, "pinned")]) == [second]
    assert unused([second, first], [(record, "pinned"), (record, "pageable")]) == []
    assert unused([first], []) == [first]
