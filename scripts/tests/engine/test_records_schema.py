"""The schema that is made of the types of a record: fresh, and what readers and writers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from gpulift.engine import schema
from gpulift.records.files import content_of, record_files_below
from tests import many_records, runs_made, sample
from tests.conftest import CHECKOUT, DATA

pytestmark = pytest.mark.world

RESULTS = CHECKOUT / "results"
EACH = 20  # of the committed lines, as all would take half a minute


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    made = schema.schema()
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def test_the_committed_one_is_made_of_these_types() -> None:
    hint = "python -m gpulift.engine.schema writes it anew"
    assert (RESULTS / schema.FILE).read_text(encoding="utf-8") == schema.text(), hint


def test_it_is_of_the_version_that_is_written() -> None:
    written = (CHECKOUT / "core" / "harness" / "record_file.hpp").read_text(encoding="utf-8")
    assert f'kSchemaVersion = "{schema.VERSION}"' in written
    assert f'kMethodVersion = "{schema.METHOD}"' in written


@pytest.mark.parametrize(
    "made",
    [
        runs_made.full_gpu,
        runs_made.without_gpu,
        runs_made.with_troubles,
        runs_made.duet,
        runs_made.of_ranks_and_disks,
    ],
)
def test_samples_obey_it(
    made: Callable[[], list[sample.Json]], validator: Draft202012Validator
) -> None:
    for record in made():
        validator.validate(record)


@pytest.mark.parametrize("folder", [RESULTS, DATA])
def test_committed_records_of_every_version_obey_it(
    folder: Path, validator: Draft202012Validator
) -> None:
    versions = set()
    for file in record_files_below(folder):
        for number, line in enumerate(content_of(file).splitlines()):
            if number % EACH == 0:
                record = json.loads(line)
                versions.add(record["schema"])
                validator.validate(record)
    assert len(versions) > 1


def test_synthetic_records_obey_it(tmp_path: Path, validator: Draft202012Validator) -> None:
    shape = many_records.Shape(models=1, cards=1, launches=1)
    for folder in many_records.write(tmp_path, 20, shape):
        for file in record_files_below(folder):
            for line in content_of(file).splitlines():
                validator.validate(json.loads(line))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.pop("case_id"),
        lambda r: r.update(launch=-1),
        lambda r: r.update(arm=1),
        lambda r: r["check"].update(tolerance=-1.0),
        lambda r: r["arms"][0]["windows"]["host_s"].append(0.0),
        lambda r: r["arms"][0]["cost"].update(bytes=None),
        lambda r: r["telemetry"]["power_w"].pop("median"),
        lambda r: r["context"]["gpu"].update(power_limit_w="much"),
        lambda r: r["context"]["host"].update(cores=0),
    ],
)
def test_it_refuses(change: Callable[[sample.Json], Any], validator: Draft202012Validator) -> None:
    record = runs_made.full_gpu()[0]
    change(record)
    with pytest.raises(ValidationError):
        validator.validate(record)


def test_only_what_a_line_holds_is_in_it() -> None:
    made = schema.schema()
    assert {"arm", "check", "context"} <= made["properties"].keys()
    assert not {"raw", "file", "line", "duet_arm", "check_meaning"} & made["properties"].keys()
    assert "facts" not in made["$defs"]["Gpu"]["properties"]
    assert "1.797" not in schema.text()
