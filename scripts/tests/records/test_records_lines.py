"""Lines of records: their ids, and what a line may not hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from gpulift.ground.errors import RecordError
from gpulift.records.files import content_of, record_files_below
from gpulift.records.model import Record
from gpulift.records.read import read_file
from tests import sample
from tests.conftest import CHECKOUT, DATA

COMMITTED = [*record_files_below(CHECKOUT / "results"), *record_files_below(DATA)]
EACH = 4  # of the lines of a file, from the first on: all would take half a minute
GOOD = sample.record("a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 2e-3)])


def id_by_definition(line: bytes) -> str:
    """As in METHOD.md, with nothing but the standard library."""
    canonical = json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:12]


def lines_of(file: Path) -> list[bytes]:
    return content_of(file).splitlines()


def records_of(line: bytes, folder: Path) -> tuple[Record, ...]:
    (folder / "a.b.jsonl").write_bytes(line + b"\n")
    return read_file(folder / "a.b.jsonl").records


def line_with(windows: dict[str, Any]) -> bytes:
    """A line of a record whose first arm has these windows, whatever they are."""
    first, second = GOOD["arms"]
    return json.dumps({**GOOD, "arms": [{**first, "windows": windows}, second]}).encode()


@pytest.mark.world
def test_ids_in_every_committed_file_are_as_defined() -> None:
    count = 0
    for file in COMMITTED:
        lines = [*zip(read_file(file).records, lines_of(file), strict=True)][::EACH]
        assert all(record.id == id_by_definition(line) for record, line in lines), file
        count += len(lines)
    assert count > 800


@pytest.mark.parametrize("text", ["a\\u00e9", "a\\n", 'say \\"x\\"', "é", "…", "\x7f", "\\u2026"])
def test_the_id_of_texts_that_may_be_spelled_otherwise(text: str, tmp_path: Path) -> None:
    line = json.dumps(GOOD).replace('"a/b"', f'"{text}"', 1).encode()
    (record,) = records_of(line, tmp_path)
    assert record.id == id_by_definition(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": 1, "a" : 1}',
        b'{"b": {"c": 1, "c"\t: 2}}',
        b'{"b": [{"c": 1}, {"c": 1, "c": 1}]}',
        b'{"arms": [{"windows": {"host_s": [1.5], "host_s": [1.5]}}]}',
        b'{"arms": [{"windows": {"host_s": [{"c": 1, "c": 1}]}}]}',
        b'{":a": ":b", "c": 1, "c": 1}',
        b'{"a" :1,"a":2}',
        b'{"a": "\\":", "b"\t:1, "b"\t:2}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"a": [1, {"c": 1, "c": 2}]}',
    ],
)
def test_a_key_that_is_there_twice_is_refused(line: bytes, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is there twice in one object"):
        records_of(line, tmp_path)


@pytest.mark.parametrize("value", [2**64, 10**30, -(2**63) - 1])
def test_an_integer_beyond_64_bits_stays_an_integer(value: int, tmp_path: Path) -> None:
    for one in ({**GOOD, "new": value}, json.loads(line_with({**_windows(), "new": [value]}))):
        line = json.dumps(one).encode()
        (record,) = records_of(line, tmp_path)
        assert record.raw == one
        assert record.id == id_by_definition(line)


def _windows() -> dict[str, Any]:
    windows: dict[str, Any] = GOOD["arms"][0]["windows"]
    return windows


def nested(depth: int) -> bytes:
    new = b"[" * depth + b"]" * depth
    return json.dumps(GOOD).encode()[:-1] + b', "new": ' + new + b"}"


@pytest.mark.parametrize("depth", [10, 300])
def test_nested_values_are_kept(depth: int, tmp_path: Path) -> None:
    (record,) = records_of(nested(depth), tmp_path)
    assert record.id == id_by_definition(nested(depth))


@pytest.mark.parametrize("depth", [10, 300])
def test_nested_windows_are_kept(depth: int, tmp_path: Path) -> None:
    deep = b"[" * depth + b"]" * depth
    line = line_with({**_windows(), "new": ["here"]}).replace(b'"here"', deep)
    (record,) = records_of(line, tmp_path)
    assert record.id == id_by_definition(line)


def test_values_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="not a line of JSON"):
        records_of(nested(100_000), tmp_path)
