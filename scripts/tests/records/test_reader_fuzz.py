"""Mutated records: an error with file and line, or the record with all that was not touched."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from gpulift.ground.errors import GpuliftError, RecordError
from gpulift.records.decode import parse_line
from gpulift.records.model import Record
from gpulift.records.read import read_file, read_results, read_run
from tests import fuzz_records, sample
from tests.fuzz_records import MUTATIONS, Mutation

pytestmark = pytest.mark.world

LINES = fuzz_records.corpus()[::5]


@settings(max_examples=300)
@given(some.sampled_from(LINES), some.sampled_from(MUTATIONS), some.integers(0, 2**32))
def test_a_mutated_line_is_refused_with_its_place_or_read_as_written(
    line: bytes, mutation: Mutation, seed: int
) -> None:
    record = fuzz_records.read_mutated(mutation(line, random.Random(seed)), line)
    if record is not None and seed % 10 == 0:
        assert fuzz_records.compare_mutated(record, line).startswith(("exit ", "refused "))


@settings(max_examples=50)
@given(some.lists(some.sampled_from(LINES), min_size=1, max_size=4), some.data())
def test_lines_taken_out_or_doubled_change_no_other_record(
    lines: list[bytes], data: some.DataObject
) -> None:
    kept = data.draw(some.lists(some.sampled_from(lines), min_size=1, max_size=6))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.jsonl").write_bytes(b"\n".join(kept) + b"\n")
        run = read_run(Path(folder))
    alone = {record.id for line in set(kept) for record in _read(line)}
    assert {record.id for record in run.records} <= alone
    assert len({(record.subject, record.launch) for record in run.records}) == len(run.records)
    assert len(run.warnings) == len(kept) - len(run.records), "every record left out is told"


def _read(line: bytes) -> list[Record]:
    record = fuzz_records.read_mutated(line, line)
    return [record] if record else []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1e999}', "1e999 must be finite"),
        ('{"a": [-1e999]}', "-1e999 must be finite"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "'c' is there twice"),
        ('{"a": "\\ud800"}', "cannot be written as UTF-8"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "not a line of JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not a line of JSON"),
    ],
)
def test_what_no_report_could_hold_is_refused(text: str, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        parse_line(text.encode(), "f:1")


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert parse_line(b'{"a": "\\ud83d\\ude00"}', "f:1") == {"a": "\U0001f600"}


def test_a_last_line_with_nan_is_not_taken_for_one_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(LINES[0] + b'\n{"schema": "1.0", "launch": NaN}')
    with pytest.raises(RecordError, match=r"a\.jsonl:2: NaN is not a number"):
        read_file(tmp_path / "a.jsonl")


def test_two_arms_of_one_name_are_refused(tmp_path: Path) -> None:
    made = sample.record("a/b", {"n": 1}, [sample.arm("same", 1e-3), sample.arm("same", 2e-3)])
    sample.write(tmp_path, [made])
    with pytest.raises(RecordError, match="arms must have different names"):
        read_run(tmp_path)


@pytest.mark.parametrize("key", ["steps_per_window", "peak_host_bytes"])
def test_a_count_beyond_64_bits_is_refused(tmp_path: Path, key: str) -> None:
    made = sample.record("a/b", {"n": 1}, [sample.arm("x", 1e-3)])
    made["arms"][0][key] = 10**400
    sample.write(tmp_path, [made])
    with pytest.raises(RecordError, match=rf"arms\[0\]\.{key} must be int <= "):
        read_run(tmp_path)


def test_a_name_that_no_file_can_have_is_an_error() -> None:
    with pytest.raises(GpuliftError, match="no such file or folder"):
        read_results([Path("x" * 5000)])
