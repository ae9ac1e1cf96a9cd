"""What core/registers/ and the units of axes hold: every name that code or records use is there."""

from __future__ import annotations

import ast
import json
import re

import pytest

from gpulift.ground.registers import FOLDER, register, roof, slowdowns, unit
from gpulift.ground.text import UNITS
from gpulift.records.files import record_files_below
from gpulift.records.model import Record
from gpulift.records.read import read_file
from tests.conftest import CHECKOUT

A_UNIT = re.compile(r"\w*bytes?|\w*bits?|[kmgtp]i?b?|[mun]?s|seconds?|[kmg]?hz|[mk]?[wj]")


@pytest.fixture(scope="module")
def committed() -> list[Record]:
    """The records of all results."""
    files = record_files_below(CHECKOUT / "results")
    return [record for file in files for record in read_file(file).records]


def test_each_says_what_it_is() -> None:
    for file in FOLDER.glob("*.json"):
        assert json.loads(file.read_text(encoding="utf-8"))["about"]


def test_every_axis_named_after_a_unit_is_shown_with_it(committed: list[Record]) -> None:
    axes = {axis for record in committed for axis in record.case} | _declared_axes()
    named = {axis for axis in axes if A_UNIT.fullmatch(axis.rpartition("_")[2])}
    assert {axis for axis in named if axis.rpartition("_")[2] not in UNITS} == set()
    assert {"bytes", "kilobytes", "kibibytes", "mebibytes", "kernel_us"} <= named


def _declared_axes() -> set[str]:
    """Those that the techniques sweep, measured or not."""
    axes: set[str] = set()
    for file in (CHECKOUT / "benches").rglob("*.py"):
        for statement in ast.parse(file.read_bytes()).body:
            if isinstance(statement, ast.Assign) and "TECHNIQUE" in map(
                ast.unparse, statement.targets
            ):
                axes.update(ast.literal_eval(statement.value).get("sweep", {}))
    for pattern in ("*.cpp", "*.cu"):
        for file in (CHECKOUT / "benches").rglob(pattern):
            axes.update(re.findall(r'\{"(\w+)", \{', file.read_text(encoding="utf-8")))
    return axes


def test_every_roof_of_committed_records_is_known(committed: list[Record]) -> None:
    named = {
        arm.cost.roof for record in committed for arm in record.arms if arm.cost and arm.cost.roof
    }
    assert {name for name in named if not roof(name)} == set()
    assert len(named) > 10


def test_every_roof_is_measured_by_a_ceiling_that_is_there() -> None:
    for name, known in register("roofs")["roofs"].items():
        theme, technique = known["ceiling"].split("/")
        assert list((CHECKOUT / "benches" / theme).glob(f"{technique}.*")), name
        assert known["unit"] in ("B/s", "FLOP/s"), name


def test_every_limit_is_one_of_the_peaks() -> None:
    peaks = register("peaks")
    for name, known in register("roofs")["roofs"].items():
        by = known.get("limit", {}).get("by")
        assert by in (None, "nvlink") or by in peaks, name
        if by == "operations":
            operations = [of for of in peaks["operations"].values() if "per_clock" in of]
            assert any(known["limit"]["type"] in of["per_clock"] for of in operations), name


def test_slowdowns_have_the_names_that_the_engine_writes() -> None:
    source = (CHECKOUT / "core" / "harness" / "gpu_sample.cpp").read_text(encoding="utf-8")
    written = set(re.findall(r'\{0x[0-9a-f]+, "(\w+)"\}', source))
    assert written == set(register("slowdowns")["reasons"])
    hardware = {"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
    assert slowdowns("hardware") == hardware


def test_a_roof_of_newer_code_has_the_unit_of_its_family() -> None:
    assert unit("gemm/fp4") == "FLOP/s"
    assert unit("gemm/fp32") == "FLOP/s"
    assert unit("storage/read") == "B/s"


def test_the_engine_writes_the_newest_schema() -> None:
    source = (CHECKOUT / "core" / "harness" / "record_file.hpp").read_text(encoding="utf-8")
    (written,) = re.findall(r'kSchemaVersion = "([\d.]+)"', source)
    changes = (CHECKOUT / "results" / "schema" / "CHANGELOG.md").read_text(encoding="utf-8")
    assert written == re.findall(r"^## ([\d.]+)$", changes, re.MULTILINE)[0]
