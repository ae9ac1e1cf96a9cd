"""Reading by several processes gives what one process gives, errors included."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from gpulift import processes
from gpulift.errors import GpuliftError, RecordError
from gpulift.records import pool
from gpulift.records.model import record_id
from gpulift.records.read import RecordFile, read_file, read_files, read_results
from tests import runs_made, sample
from tests.conftest import CHECKOUT


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes read, however little there is."""
    monkeypatch.setattr(pool, "ENOUGH_BYTES", 0)
    monkeypatch.setattr(pool, "_processors", lambda: 2)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Record files of a GPU, of a machine without one, and of a run with troubles and energies."""
    made = [runs_made.full_gpu(), runs_made.without_gpu(), runs_made.with_troubles()]
    first = made[0][0]["arms"][0]["windows"]
    first["energy_j"] = [None, *(1.5 for _ in first["host_s"][1:])]
    for number, records in enumerate(made):
        sample.write(tmp_path / str(number), records)
    return sorted(tmp_path.rglob("*.jsonl"))


def nothing() -> None:
    """So that this process may read all before the other one has begun."""


def others_end() -> None:
    """So that the other process takes all that it can."""
    for process in multiprocessing.active_children():
        process.join()


def fails(*_: Any, **__: Any) -> Any:
    raise AssertionError("a process was started")


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("meanwhile", [nothing, others_end])
def test_the_same_records_in_the_same_order(
    files: list[Path], meanwhile: Callable[[], None]
) -> None:
    for found, path in zip(read_files(files, meanwhile), files, strict=True):
        alone = read_file(path)
        assert found == alone
        assert [one.id for one in found.records] == [one.id for one in alone.records]
        assert [one.line for one in found.records] == [one.line for one in alone.records]
        assert [one.file for one in found.records] == [path] * len(found.records)


@pytest.mark.usefixtures("several")
def test_the_json_object_is_read_again_where_it_is_asked_for(files: list[Path]) -> None:
    for record in (record for found in read_files(files) for record in found.records):
        assert record.parsed is None
        assert record_id(record.raw) == record.id
        assert record.raw["technique"] == record.technique


@pytest.mark.usefixtures("several")
def test_a_file_that_changed_meanwhile_is_an_error(files: list[Path]) -> None:
    record = read_files(files)[0].records[0]
    lines = record.file.read_text(encoding="utf-8").splitlines()
    lines[record.line - 1] = json.dumps({**json.loads(lines[record.line - 1]), "launch": 9})
    record.file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(RecordError, match=rf":{record.line}: has changed since it was read"):
        assert record.raw


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(
    "line",
    [
        b'{"schema": "1.1", "launch": NaN}',
        b'{"schema": "1.1", "launch": 1e999}',
        b'{"schema": "1.1", "schema": "1.1"}',
        b'{"schema": "9.0"}',
        b"{",
        b"[" * 5000,
    ],
)
def test_errors_are_the_same_and_the_first_file_s(files: list[Path], line: bytes) -> None:
    for path in files[1:]:
        path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(RecordError) as alone:
        read_file(files[1])
    with pytest.raises(RecordError) as found:
        read_files(files, others_end)
    assert str(found.value) == str(alone.value)
    assert found.value.exit_code == alone.value.exit_code


@pytest.mark.usefixtures("several")
def test_a_number_beyond_all_floats_in_a_field_that_nobody_reads(files: list[Path]) -> None:
    text = files[0].read_text(encoding="utf-8")
    files[0].write_text(text.replace('{"schema"', '{"new": [1e999], "schema"', 1), encoding="utf-8")
    with pytest.raises(RecordError, match=r":1: 1e999 must be finite"):
        read_files(files)


@pytest.mark.usefixtures("several")
def test_a_cut_off_last_line_and_a_missing_file(files: list[Path]) -> None:
    files[0].write_bytes(files[0].read_bytes() + b'{"schema": "1')
    assert "is cut off" in read_files(files)[0].warnings[0]
    files[1].unlink()
    with pytest.raises(GpuliftError, match="cannot be read: No such file"):
        read_files(files)


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("last_words", [b"", b"no pickle", pickle.dumps("cut off")[:-3]])
def test_files_of_a_process_that_dies_are_read_by_this_one(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, last_words: bytes
) -> None:
    def dies(_: object, queue: int, __: int, sender: Connection) -> None:
        next(processes.taken(queue), None)  # which nobody else will take
        if last_words:
            sender.send_bytes(last_words)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(pool, "_read", dies)
    assert read_files(files, others_end) == [read_file(path) for path in files]


@pytest.mark.usefixtures("several")
def test_what_another_process_cannot_keep_in_memory_is_read_by_this_one(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "memfd_create", lambda _: os.open("/dev/full", os.O_RDWR))
    assert read_files(files, others_end) == [read_file(path) for path in files]
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("several")
def test_what_is_to_be_done_meanwhile_is_done_once(files: list[Path]) -> None:
    done: list[int] = []
    read_files(files, lambda: done.append(os.getpid()))
    read_files(files[:1], lambda: done.append(os.getpid()))
    assert done == [os.getpid()] * 2


def test_little_is_read_by_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "start", fails)
    assert read_results([CHECKOUT / "results" / "nvidia-h200"])


@pytest.mark.usefixtures("several")
def test_one_file_is_read_by_this_process_alone(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "start", fails)
    assert read_files(files[:1]) == [RecordFile(read_file(files[0]).records)]


@pytest.mark.usefixtures("several")
def test_results_of_many_runs_are_the_same_by_several_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = [CHECKOUT / "results" / name for name in ("nvidia-h200", "cpu-amd-epyc")]
    found = read_results(folders)
    monkeypatch.undo()
    assert read_results(folders) == found
