"""Ids that are kept from call to call: they spare reading, and never change what is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.records import find, ids
from gpulift.records.find import find_record
from gpulift.records.model import record_id
from gpulift.records.read import RecordFile, read_file
from tests import sample
from tests.sample import Json

FIRST = sample.record("a/first", {"n": 1}, [sample.arm("x", 1e-3)])
OTHER = sample.record("a/other", {"n": 1}, [sample.arm("x", 1e-3)])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ids, "FILE", str(tmp_path / "cache" / "ids.json"))
    return tmp_path / "cache" / "ids.json"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files as they are read."""
    names: list[str] = []

    def noted(file: Path) -> RecordFile:
        names.append(file.name)
        return read_file(file)

    monkeypatch.setattr(find, "read_file", noted)
    return names


@pytest.fixture
def place(tmp_path: Path, cache: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    for raw in (FIRST, OTHER):
        _write(folder, raw)
    return folder


def _write(folder: Path, *raws: Json, end: str = "") -> None:
    file = folder / f"{raws[0]['technique'].replace('/', '.')}.jsonl"
    file.write_text("".join(f"{json.dumps(raw)}\n" for raw in raws) + end, encoding="utf-8")


def _found(raw: Json, place: Path, said: list[str] | None = None) -> str:
    say = (lambda _: None) if said is None else said.append
    return find_record(record_id(raw), [place], say).technique


def test_only_files_with_the_id_are_read_again(place: Path, read: list[str]) -> None:
    assert _found(OTHER, place) == "a/other"
    assert read == ["a.first.jsonl", "a.other.jsonl"]
    assert _found(OTHER, place) == "a/other"
    assert read[2:] == ["a.other.jsonl"]
    with pytest.raises(GpuliftError, match="no record below"):
        find_record("0" * 12, [place], lambda _: None)
    assert len(read) == 3


def test_a_file_that_changed_is_read_again(place: Path, read: list[str]) -> None:
    assert _found(OTHER, place) == "a/other"
    newer = {**FIRST, "launch": 1}
    _write(place, FIRST, newer)
    assert _found(newer, place) == "a/first"
    assert read[2:] == ["a.first.jsonl"]


def test_what_is_wrong_with_a_file_is_said_each_time(place: Path) -> None:
    _write(place, FIRST, end='{"cut')
    for _ in range(2):
        said: list[str] = []
        assert _found(OTHER, place, said) == "a/other"
        assert "the last line is cut off" in "".join(said)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"a": [[1, 2], ["b"]]}', b"[" * 5000])
def test_a_broken_cache_is_made_anew(content: bytes, place: Path, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_bytes(content)
    assert _found(OTHER, place) == "a/other"
    assert record_id(OTHER) in cache.read_text(encoding="utf-8")


def test_a_cache_that_cannot_be_written_is_no_error(place: Path, cache: Path) -> None:
    cache.parent.write_text("a file where the folder would be", encoding="utf-8")
    assert _found(OTHER, place) == "a/other"


def test_files_that_are_gone_are_forgotten(place: Path, cache: Path) -> None:
    assert _found(OTHER, place) == "a/other"
    (place / "a.first.jsonl").unlink()
    _write(place, OTHER, {**OTHER, "launch": 1})
    assert _found(OTHER, place) == "a/other"
    assert list(json.loads(cache.read_bytes())) == [str(place / "a.other.jsonl")]


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "FILE", "ids.json")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert ids._cache() == Path("/elsewhere/ids.json")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert ids._cache() == Path("/home/somebody/.cache/ids.json")


def test_a_user_without_a_home_has_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_cache", lambda: None)
    assert _found(OTHER, place) == "a/other"
