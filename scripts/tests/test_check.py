"""The check of committed results, complaint by complaint, and the schema itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpulift.errors import GpuliftError
from gpulift.records import check
from gpulift.records.read import read_file
from tests import runs_made, sample
from tests.conftest import CHECKOUT, DATA

SCHEMA = CHECKOUT / "results" / "schema" / "record.schema.json"
FOLDER = "nvidia-h200/2026-11-21-abc1234"


def complaints(tmp_path: Path, change: Callable[[sample.Json], Any], folder: str = FOLDER) -> str:
    """What the check says when `change` was made to the second record of a run."""
    records = runs_made.full_gpu()
    change(records[1])
    sample.write(tmp_path / folder, records)
    return "\n".join(check.check_results([tmp_path], SCHEMA)[1])


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    "made",
    [runs_made.full_gpu, runs_made.without_gpu, runs_made.with_troubles, runs_made.duet],
)
def test_samples_obey_the_schema(made: Callable[[], list[sample.Json]]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for one in made():
        validator.validate(one)


def test_committed_samples_obey_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for file in sorted((DATA / "1.0").glob("*.jsonl")):
        for record in read_file(file).records:
            validator.validate(record.raw)


def test_a_good_run_passes(tmp_path: Path) -> None:
    assert complaints(tmp_path, lambda record: None) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(extra={"new": 1}), ""),
        (lambda r: r.update(regime="warm"), "regime: 'warm' is not one of"),
        (lambda r: r["arms"][0].update(check_error=-1.0), "arms.0.check_error"),
        (lambda r: r["arms"][0].pop("cost"), "'cost' is a required property"),
        (lambda r: r.pop("stop"), "'stop' is a required property"),
        (lambda r: r.update(started_at="yesterday"), "started_at"),
        (lambda r: r["context"].pop("gpu"), "not valid"),
        (lambda r: r["context"]["build"].update(dirty=True), "uncommitted changes"),
        (lambda r: r["context"]["build"].update(commit="fffffff"), "holds records of commit"),
        (lambda r: r["context"]["gpu"].update(card="0000"), "more than one card"),
        (lambda r: r["notes"].update(a="/home/me/x"), "notes.a looks like a path"),
        (lambda r: r["notes"].update(a="in /tmp/x.so"), "notes.a looks like a path"),
        (lambda r: r["notes"].update(a="node7.cluster.local"), "looks like a host name"),
        (lambda r: r["notes"].update(a="me@node7"), "looks like an account"),
        (lambda r: r["notes"].update(a="GPU-6d8e2f3a-1b2c-4d5e-8f90-a1b2c3d4e5f6"), "UUID"),
        (lambda r: r["notes"].update(a="see https://example.com/a/b, 1/2 of 3 GB/s"), ""),
    ],
)
def test_one_wrong_record(tmp_path: Path, change: Callable[[sample.Json], Any], words: str) -> None:
    said = complaints(tmp_path, change)
    assert words in said if words else said == ""


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("nvidia-h200/2026-11-20-abc1234", "the first record is of 2026-11-21"),
        ("nvidia-h200/2026-11-21-abc1234-2", ""),
        ("nvidia-h200/2026-11-21-abc1234-dirty", "uncommitted changes"),
        ("nvidia-h200/2026-11-21-fff1234", "holds records of commit abc1234"),
        ("nvidia-h200/2026-11-21-unknown", "the name must be <date>-<commit>"),
        ("nvidia-h200/mine", "the name must be <date>-<commit>"),
        ("nvidia-h100/2026-11-21-abc1234", "holds records of nvidia-h200"),
    ],
)
def test_folder_names(tmp_path: Path, folder: str, words: str) -> None:
    said = complaints(tmp_path, lambda record: None, folder)
    assert words in said if words else said == ""


def test_the_same_record_twice(tmp_path: Path) -> None:
    record = runs_made.full_gpu()[0]
    sample.write(tmp_path / FOLDER, [record, copy.deepcopy(record)])
    count, said = check.check_results([tmp_path], SCHEMA)
    assert count == 2
    assert "the same record as" in said[0]


def test_a_record_in_the_wrong_file(tmp_path: Path) -> None:
    sample.write(tmp_path / FOLDER, runs_made.full_gpu()[:3])
    file = tmp_path / FOLDER / "ceiling.host_link.jsonl"
    file.rename(file.with_name("other.jsonl"))
    assert "does not belong in a file" in check.check_results([tmp_path], SCHEMA)[1][0]


def test_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MAX_FILE_BYTES", 1000)
    assert "larger than" in complaints(tmp_path, lambda record: None)


def test_a_missing_jsonschema_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jsonschema", None)
    with pytest.raises(GpuliftError, match="pip install"):
        check.check_results([tmp_path], SCHEMA)


def test_the_committed_results_are_sound() -> None:
    assert check.check_results([CHECKOUT / "results"], SCHEMA)[1] == []
