"""Reference files: what is read, what is refused, and what is committed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.machine.reference_build import to_json
from gpulift.analysis.reference import SCHEMA, find_reference, read_reference
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.records.model import slug
from tests.conftest import CHECKOUT

DATASHEET = {
    "kind": "datasheet",
    "roof": "device_memory",
    "value": 4.8e12,
    "unit": "B/s",
    "meaning": "peak memory bandwidth",
    "source": "datasheet",
    "date": "2026-11-21",
}
MEASURED = {
    "kind": "measured",
    "check": "roof/device_memory/burst",
    "value": 4.7e12,
    "unit": "B/s",
    "tolerance": 0.05,
    "tolerance_from": "default",
    "cards": 1,
    "launches": 3,
    "conditions": {
        "driver": "580.1",
        "cuda_runtime": "13.0",
        "power_limit_w": 700.0,
        "method": "1",
        "commit": "abc1234",
    },
    "source": "gpulift:nvidia-h200/0123456789ab",
    "date": "2026-11-21",
}
PUBLISHED = {
    "kind": "published",
    "roof": "gemm/bf16",
    "value": 7.945e14,
    "unit": "FLOP/s",
    "meaning": "best shape",
    "conditions": "mean of 100",
    "source": "a repository",
    "date": "2026-08-22",
}


def written(folder: Path, *entries: dict[str, Any], schema: str = SCHEMA, **top: Any) -> Path:
    file = folder / "x.json"
    document = {"schema": schema, "name": "GPU", "entries": list(entries), **top}
    file.write_text(json.dumps(document))
    return file


def test_all_three_kinds_are_read(tmp_path: Path) -> None:
    reference = read_reference(written(tmp_path, DATASHEET, MEASURED, PUBLISHED))
    assert reference.peak("device_memory") == 4.8e12
    entry = reference.measured["roof/device_memory/burst"]
    assert (entry.tolerance, entry.cards, entry.conditions.power_limit_w) == (0.05, 1, 700)
    assert reference.published[0].subject == "gemm/bf16"
    assert reference.sources == ("datasheet (2026-11-21)",)


@pytest.mark.parametrize(
    ("entry", "change", "words"),
    [
        (DATASHEET, {"unit": None}, "unit is missing"),
        (DATASHEET, {"unit": ""}, "unit must be one of"),
        (DATASHEET, {"value": 0}, "value must be float > 0.0"),
        (DATASHEET, {"value": "4.8e12"}, "value must be float, not str"),
        (DATASHEET, {"date": "yesterday"}, "date must be a day, YYYY-MM-DD"),
        (DATASHEET, {"date": "2026-13-45"}, "date must be a day, YYYY-MM-DD"),
        (DATASHEET, {"unit": "furlongs"}, "unit must be one of B/s,"),
        (DATASHEET, {"tolerance": 0.1}, "tolerance is not known here"),
        (DATASHEET, {"kind": "guessed"}, "kind must be one of"),
        (DATASHEET, {"kind": None}, "kind is missing"),
        (MEASURED, {"unit": None}, "unit is missing"),
        (MEASURED, {"tolerance": -0.01}, "tolerance must be float >= 0.0"),
        (MEASURED, {"tolerance": 1.0}, "tolerance must be float < 1.0"),
        (MEASURED, {"tolerance_from": "a feeling"}, "tolerance_from must be one of"),
        (MEASURED, {"cards": 0}, "cards must be int >= 1"),
        (MEASURED, {"launches": 2.5}, "launches must be int, not float"),
        (MEASURED, {"conditions": {"method": "1", "mood": "good"}}, "conditions.mood is not known"),
        (MEASURED, {"conditions": {}}, "conditions.method is missing"),
        (PUBLISHED, {"check": "roof/gemm/bf16/burst"}, "roof or check must be there, and not both"),
        (PUBLISHED, {"roof": None}, "roof or check must be there, and not both"),
        (PUBLISHED, {"conditions": ""}, "conditions must not be empty"),
        (PUBLISHED, {"regime": "warm"}, "regime must be one of burst, short, sustained"),
        (PUBLISHED, {"mood": "good"}, "mood is not known here"),
    ],
)
def test_what_is_wrong_is_named_with_file_entry_and_field(
    tmp_path: Path, entry: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    changed = {key: value for key, value in (entry | change).items() if value is not None}
    file = written(tmp_path, changed)
    with pytest.raises(GpuliftError) as caught:
        read_reference(file)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{file}: entries[0]")
    assert caught.value.exit_code == USAGE


@pytest.mark.parametrize("entry", [DATASHEET, MEASURED, PUBLISHED])
def test_the_same_entry_twice_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    with pytest.raises(GpuliftError, match="more than once"):
        read_reference(written(tmp_path, entry, copy.deepcopy(entry)))


def test_one_figure_with_other_operands_is_another_one(tmp_path: Path) -> None:
    told = PUBLISHED | {"operation": "matrix product", "regime": "short", "operands": "zeros"}
    file = written(tmp_path, told, told | {"operands": "random normal"})
    first, second = read_reference(file).published
    assert first.told == "matrix product; short; operands zeros; best shape; mean of 100"
    assert second.operands == "random normal"
    assert [one["operands"] for one in json.loads(to_json(read_reference(file)))["entries"]] == [
        "zeros",
        "random normal",
    ]


def test_figures_stay_without_what_they_do_not_tell(tmp_path: Path) -> None:
    reference = read_reference(written(tmp_path, PUBLISHED))
    assert reference.published[0].told == "best shape; mean of 100"
    assert not {"operation", "regime", "operands"} & set(
        json.loads(to_json(reference))["entries"][0]
    )


def test_unknown_versions_and_keys_of_the_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuliftError, match=f"schema is 2.0, but this gpulift reads {SCHEMA}"):
        read_reference(written(tmp_path, DATASHEET, schema="2.0"))
    with pytest.raises(GpuliftError, match="remark is not known here"):
        read_reference(written(tmp_path, DATASHEET, remark="hello"))
    with pytest.raises(GpuliftError, match="cannot be read"):
        read_reference(tmp_path / "absent.json")
    assert find_reference(tmp_path, "gpu") is None


def test_a_file_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "reference" / "gpu.json"
    file.parent.mkdir()
    for name in ("One card", "Another card"):
        file.write_bytes(written(tmp_path, DATASHEET, name=name).read_bytes())
        found = find_reference(tmp_path, "gpu")
        assert found is not None
        assert found.name == name


def test_committed_files_are_named_after_their_gpu_and_written_as_the_writer_writes() -> None:
    files = sorted((CHECKOUT / "results" / "reference").glob("*.json"))
    assert files
    for file in files:
        reference = read_reference(file)
        assert file.name == f"{slug(reference.name)}.json"
        assert reference.peak("device_memory"), file
        assert file.read_text(encoding="utf-8") == to_json(reference)
        assert all(entry.source.find("http") < 0 for entry in reference.published)
        if file.stem.startswith("nvidia-"):
            assert reference.published, file
        for entry in reference.published:
            assert all((entry.operation, entry.regime, entry.operands)), (file, entry)


def test_the_memory_of_a_b200_is_that_of_its_bus() -> None:
    reference = find_reference(CHECKOUT / "results", "nvidia-b200")
    assert reference is not None
    assert reference.peak("device_memory") == 2 * 3.996e9 * 7680 / 8


def test_no_published_figure_is_beyond_what_a_card_can_do() -> None:
    """But for clocks above the listed boost, by which cards beat datasheets."""
    for file in (CHECKOUT / "results" / "reference").glob("nvidia-*.json"):
        reference = read_reference(file)
        for entry in reference.published:
            peak = reference.peak(entry.roof)
            assert peak is None or entry.value < 1.2 * peak, (file, entry)
