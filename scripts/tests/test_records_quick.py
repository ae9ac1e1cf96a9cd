"""The quick way to read a line gives what the careful way gives, or leaves the line to it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from gpulift.errors import GpuliftError, RecordError
from gpulift.records import quick
from gpulift.records.model import Record, record_id
from gpulift.records.read import parse_line, read_file
from tests import sample
from tests.conftest import CHECKOUT, DATA

COMMITTED = sorted([*(CHECKOUT / "results").rglob("*.jsonl"), *DATA.rglob("*.jsonl")])
GOOD = sample.record("a/b", {"n": 1}, [sample.arm("x", 1e-3), sample.arm("y", 2e-3)])


def id_by_definition(line: bytes) -> str:
    """As in METHOD.md, with nothing but the standard library."""
    canonical = json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:12]


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines()


def records_of(line: bytes, folder: Path) -> tuple[Record, ...]:
    (folder / "a.b.jsonl").write_bytes(line + b"\n")
    return read_file(folder / "a.b.jsonl").records


def line_with(windows: dict[str, Any]) -> bytes:
    """A line of a record whose first arm has these windows, whatever they are."""
    first, second = GOOD["arms"]
    return json.dumps({**GOOD, "arms": [{**first, "windows": windows}, second]}).encode()


def test_the_id_of_every_committed_record_is_as_defined() -> None:
    count = 0
    for file in COMMITTED:
        for record, line in zip(read_file(file).records, lines_of(file), strict=True):
            assert record.id == id_by_definition(line) == record_id(record.raw), file
            count += 1
    assert count > 800


def test_committed_lines_are_ordinary() -> None:
    for file in (CHECKOUT / "results").rglob("*.jsonl"):
        for line in lines_of(file):
            raw = quick.parsed(line)
            assert raw is not None, file
            assert raw == json.loads(line), file
            assert quick.sha256(raw, line), file


@given(some.lists(some.floats(allow_nan=False, allow_infinity=False)))
@example([9.999e-5, 1e-4, 1e-5, 9.9e-6, 5e-324, -1e-5, 0.0, -0.0, 10.00001])
@example([1e15, 9999999999999998.0])
@example([1e16])
@example([0.1, 0.2, 0.30000000000000004, 123456.789])
def test_floats_are_spelled_as_python_spells_them(values: list[float]) -> None:
    line = line_with({"host_s": values, "b": [1, None, True, "text"]})
    raw = quick.parsed(line)
    assert raw is not None
    digest = quick.sha256(raw, line)
    assert digest is None or digest.startswith(id_by_definition(line))
    if all(abs(value) < 1e16 for value in values):
        assert digest is not None


@pytest.mark.parametrize("text", ["0.00001", "[0.000012,1e-7]", "the-3e-7:-0.00002"])
def test_what_looks_like_a_float_in_a_text_stays(text: str) -> None:
    line = json.dumps({"a": [1e-5, 2e-7], text: text, "z": [text, 0.00002, text, 3e-9]}).encode()
    raw = quick.parsed(line)
    assert raw is not None
    assert (quick.sha256(raw, line) or "").startswith(id_by_definition(line))


def test_what_looks_like_a_large_float_in_a_text_is_left_to_the_careful_way() -> None:
    for text, quickly in (("GNU C++", True), ("1e+16", False)):
        raw = {"a": text}
        assert (quick.sha256(raw, json.dumps(raw).encode()) is not None) == quickly


@pytest.mark.parametrize("text", ["a\\u00e9", "a\\n", 'say \\"x\\"', "é", "…", "\x7f", "\\u2026"])
def test_texts_that_are_spelled_otherwise_are_left_to_the_careful_way(
    text: str, tmp_path: Path
) -> None:
    line = json.dumps(GOOD).replace('"a/b"', f'"{text}"', 1).encode()
    assert quick.parsed(line) is None
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
    ],
)
def test_a_key_that_is_there_twice_is_refused(line: bytes, tmp_path: Path) -> None:
    raw = quick.parsed(line)
    assert raw is not None
    assert quick.sha256(raw, line) is None
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


@pytest.mark.parametrize(
    "arms", [1, {}, [1], [{}], [{"windows": 1}], [{"windows": [["a", 1]]}], [{"windows": {"a": 1}}]]
)
def test_the_hash_does_not_depend_on_the_shape_of_a_record(arms: object) -> None:
    line = json.dumps({"arms": arms}).encode()
    raw = quick.parsed(line)
    assert raw is not None
    digest = quick.sha256(raw, line)
    assert digest is not None
    assert digest.startswith(id_by_definition(line))


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


def test_a_record_that_was_not_kept_is_read_again_from_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.b.jsonl"
    made = sample.launches(3, "a/b", {"n": 1}, [sample.arm("x", 1e-3)], question="Wie groß?")
    lines = [json.dumps(one, ensure_ascii=False) for one in made]
    file.write_bytes("\n\n \r\n".join(lines).encode() + b"\n")
    found = read_file(file, keep=False).records
    assert [one.parsed for one in found] == [None] * 3
    assert [one.raw for one in found] == made
    assert [one.line for one in found] == [1, 4, 7]
    assert found == read_file(file).records


def test_a_file_that_is_gone_or_cut_off_cannot_be_read_again(tmp_path: Path) -> None:
    (record,) = records_of(json.dumps(GOOD).encode(), tmp_path)
    assert record.raw == GOOD
    file = tmp_path / "a.b.jsonl"
    (record,) = read_file(file, keep=False).records
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RecordError, match=r"a\.b\.jsonl:1: has changed since it was read"):
        _ = record.raw
    file.unlink()
    with pytest.raises(GpuliftError, match=r"a\.b\.jsonl: cannot be read: No such file"):
        _ = record.raw


def test_the_careful_way_agrees_with_the_quick_one() -> None:
    line = json.dumps(GOOD).encode()
    assert quick.parsed(line) == parse_line(line, "f:1")
