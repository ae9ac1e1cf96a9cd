"""What core/registers/ holds: every name that the code or records use is there."""

from __future__ import annotations

import json
import re

from gpulift.records.files import record_files_below
from gpulift.records.read import read_file
from gpulift.registers import FOLDER, register, roof, slowdowns, unit
from tests.conftest import CHECKOUT


def test_each_says_what_it_is() -> None:
    for file in FOLDER.glob("*.json"):
        assert json.loads(file.read_text(encoding="utf-8"))["about"]


def test_every_roof_of_committed_records_is_known() -> None:
    named = {
        arm.cost.roof
        for file in record_files_below(CHECKOUT / "results")
        for record in read_file(file).records
        for arm in record.arms
        if arm.cost and arm.cost.roof
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
