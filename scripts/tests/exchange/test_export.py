"""`gpulift export`: each format as its real consumer reads it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpulift import cli
from gpulift.analysis.analyse import JudgedRun
from gpulift.analysis.machine.results import CheckResult
from gpulift.analysis.summary import summarise
from gpulift.commands.exchange import EXPORTS
from gpulift.exchange.csv_table import all_columns
from gpulift.exchange.gbench_out import gbench_text
from gpulift.exchange.prometheus import prometheus_text
from gpulift.exchange.rows import Row, cells_of, columns, rows_of
from gpulift.ground.errors import FAILED, OK, USAGE
from gpulift.ground.estimate import Estimate
from gpulift.records.read import Run, read_run
from tests import runs_made, sample
from tests.junit_rules import complaints

pytestmark = pytest.mark.world

COMPARE = Path("/usr/share/benchmark/compare.py")
README = Path(__file__).resolve().parents[2] / "gpulift" / "exchange" / "README.md"
PROMTOOL = shutil.which("promtool")


def made(folder: Path, records: Sequence[sample.Json]) -> Path:
    """A run folder with these records."""
    return sample.write(folder, records)


def run_of(folder: Path, records: Sequence[sample.Json]) -> Run:
    return read_run(made(folder, records))


def exported(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What `export` prints; it has to succeed."""
    assert cli.main(["export", *map(str, arguments)]) == OK
    return capsys.readouterr().out


def test_tables_have_every_case_of_a_folder_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = runs_made.without_gpu()
    other = [{**one, "technique": "attention/sdpa"} for one in full if one.get("arms")][:1]
    sample.write(tmp_path / "cpu" / "full", full)
    sample.write(tmp_path / "cpu" / "other", other)
    for format in ("csv", "prometheus"):
        assert "attention/sdpa" in exported(capsys, format, tmp_path), format
    assert "attention/sdpa" not in exported(capsys, "gbench", tmp_path), "which is of one run"


def rows_in_duckdb(query: str) -> list[Any]:
    """What DuckDB answers, row by row."""
    answer = duckdb.sql(query)
    assert answer is not None
    return answer.fetchall()


# --- Google Benchmark ---


@pytest.mark.skipif(not COMPARE.exists(), reason="libbenchmark-tools is not installed")
def test_the_compare_tool_of_google_benchmark_reads_ours(tmp_path: Path) -> None:
    arms = [sample.arm("fp32", 1e-3), sample.arm("bf16", 5e-4)]
    slower = [sample.arm("fp32", 1e-3), sample.arm("bf16", 6e-4)]
    for name, of in (("base", arms), ("head", slower)):
        run = run_of(tmp_path / name, sample.launches(9, "precision/matmul", {"n": 512}, of))
        (tmp_path / f"{name}.json").write_text(gbench_text([run]), encoding="utf-8")
    answer = tmp_path / "answer.json"
    files = [str(tmp_path / "base.json"), str(tmp_path / "head.json")]
    # The tool imports the folder beside it, which PYTHONSAFEPATH of `./gpulift test` leaves out.
    done = subprocess.run(
        [sys.executable, str(COMPARE), "-d", str(answer), "benchmarks", *files],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONSAFEPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(answer.read_text(encoding="utf-8"))}
    bf16 = found["precision/matmul/n:512/bf16/iterations:1/manual_time"]
    assert len(bf16["measurements"]) == 9  # a launch is a repetition
    assert np.mean([one["time"] for one in bf16["measurements"]]) == pytest.approx(0.2, abs=0.01)
    assert bf16["utest"]["time_pvalue"] < 0.001
    assert "U Test, Repetitions: 9 vs 9" in done.stdout


def test_a_repetition_is_a_launch_with_its_step_time_and_counters(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", runs_made.full_gpu())
    document = json.loads(gbench_text([run]))
    rows = [row for row in rows_of([run]) if row.step_s is not None]
    assert len(document["benchmarks"]) == len(rows)
    name = "precision/matmul/n:8192/bf16/iterations:1/manual_time"
    mine = [one for one in document["benchmarks"] if one["name"] == name]
    theirs = [r for r in rows if r.record.case_id == "n:8192" and r.arm and r.arm.name == "bf16"]
    assert [one["repetition_index"] for one in mine] == [0, 1, 2]
    assert [one["real_time"] / 1e9 for one in mine] == pytest.approx([r.step_s for r in theirs])
    assert mine[0]["speedup"] == pytest.approx(15.9, rel=0.02)
    assert mine[0]["flops_per_second"] * mine[0]["real_time"] / 1e9 == pytest.approx(2.0 * 8192**3)
    assert document["context"]["gpu"] == "NVIDIA H200"


def test_what_was_not_measured_is_named_and_no_entry_of_zero_time(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", runs_made.with_troubles())
    document = json.loads(gbench_text([run]))
    assert all(one["real_time"] > 0 for one in document["benchmarks"])
    missing = {one["name"]: one for one in document["context"]["gpulift_not_measured"]}
    assert missing["precision/matmul/n:512/fp8"]["reason"] == "compute capability 8.0 has no FP8"
    assert missing["precision/matmul/n:1024"]["outcome"] == "failed"
    assert missing["transfer/pinned_copy/bytes:4096"]["outcome"] == "error"


def test_two_runs_do_not_pass_for_repetitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [made(tmp_path / name, runs_made.without_gpu()) for name in "ab"]
    assert cli.main(["export", "gbench", *map(str, folders)]) == USAGE
    assert "holds one run, these are 2" in capsys.readouterr().err


# --- JUnit ---


def test_junit_counts_what_it_holds(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.with_troubles())
    written = exported(capsys, "junit", folder).encode()
    assert not complaints(written)
    document = ET.fromstring(written)
    assert document.tag == "testsuites"
    (suite,) = document.findall("testsuite")
    cases = suite.findall("testcase")
    counts = {
        "tests": len(cases),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
        "skipped": len(suite.findall("testcase/skipped")),
    }
    assert {key: int(suite.attrib[key]) for key in counts} == counts
    del counts["skipped"]
    assert {key: int(document.attrib[key]) for key in counts} == counts
    failed = {one.attrib["name"]: one.find("failure") for one in cases}
    error = failed["transfer/pinned_copy/bytes:4096"]
    assert error is not None
    assert "signal SIGSEGV" in error.attrib["message"]
    assert counts["failures"] == 2
    names = {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
    assert names["machine"] == "NVIDIA H200"
    assert "built from uncommitted changes" in names.values()


def test_junit_takes_the_health_that_was_kept_beside_the_records(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.full_gpu())
    health = {"id": "health/ecc", "verdict": "fail", "reason": "2 errors", "remedy": "reset"}
    kept = {"checks": [health | {"kind": "health"}, health | {"id": "time/x", "kind": "measured"}]}
    (folder / "qualification.json").write_text(json.dumps(kept), encoding="utf-8")
    document = ET.fromstring(exported(capsys, "junit", folder).encode())
    failed = [one for one in document.iter("testcase") if one.find("failure") is not None]
    assert [(one.attrib["classname"], one.attrib["name"]) for one in failed] == [
        ("qualify.health", "ecc")
    ]


def test_only_duets_are_no_test_suite(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.duet())
    assert cli.main(["export", "junit", str(folder)]) == USAGE
    assert "only records of kind duet" in capsys.readouterr().err


# --- CSV ---


def test_duckdb_answers_the_question_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = re.search(r"```sql\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert query is not None
    case = {"trace": "training"}
    names = [("driver", 9e-4), ("async", 2e-4), ("arena", 1e-4)]
    arms = [sample.arm(name, seconds) for name, seconds in names]
    h200 = sample.launches(3, "allocator/device_malloc", case, arms)
    other = json.loads(json.dumps(sample.GPU_CONTEXT))
    other["gpu"]["name"] = "NVIDIA A100"
    slow_arena = [*arms[:2], sample.arm("arena", 3e-4)]
    a100 = sample.launches(3, "allocator/device_malloc", case, slow_arena, context=other)
    runs = [run_of(tmp_path / "1", h200), run_of(tmp_path / "2", a100)]
    runs.append(run_of(tmp_path / "3", runs_made.without_gpu()))  # with a skipped arm
    (tmp_path / "results.csv").write_bytes(all_columns(runs))
    monkeypatch.chdir(tmp_path)
    answer = rows_in_duckdb(query.group(1))
    assert [row[:3] for row in answer] == [
        ("cpu-amd-epyc-7b13", "allocator/host_malloc", "jemalloc"),
        ("nvidia-a100", "allocator/device_malloc", "async"),
        ("nvidia-h200", "allocator/device_malloc", "arena"),
    ]
    assert answer[2][3] == pytest.approx(1e-4, rel=0.01)


def test_cells_are_those_of_each_row_s_own_record(tmp_path: Path) -> None:
    """What rows share is computed once, and never taken from another record or machine."""
    runs = [
        run_of(tmp_path / "gpu", runs_made.full_gpu()),
        run_of(tmp_path / "cpu", runs_made.without_gpu()),
        run_of(tmp_path / "troubles", runs_made.with_troubles()),
    ]
    found = list(cells_of(runs, lambda value: value))
    assert len(found) == len(list(rows_of(runs)))
    for row, cells in found:
        assert cells == [column.value(row) for column in columns()]


def test_csv_has_the_scalar_columns_and_a_row_for_a_skip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    text = exported(capsys, "csv", folder, "--all-columns")
    table = list(csv.DictReader(io.StringIO(text)))
    assert list(table[0]) == [column.name for column in columns()]
    skipped = next(row for row in table if row["technique"] == "precision/matmul")
    assert (skipped["record_outcome"], skipped["arm"], skipped["step_s"]) == ("skipped", "", "")
    assert skipped["record_reason"] == "no NVIDIA driver on this machine"
    file = tmp_path / "x.csv"
    file.write_text(text, encoding="utf-8")
    fastest = f"SELECT arg_min(arm, step_s) FROM '{file}' WHERE arm LIKE '%malloc'"
    assert rows_in_duckdb(fastest) == [("jemalloc",)]


def test_csv_begins_with_a_row_for_an_arm_of_a_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    table = list(csv.DictReader(io.StringIO(exported(capsys, "csv", folder))))
    by_arm = {(row["technique"], row["arm"]): row for row in table}
    assert len(by_arm) == len(table)
    jemalloc = by_arm["allocator/host_malloc", "jemalloc"]
    assert (jemalloc["baseline"], jemalloc["launches"]) == ("glibc", "3")
    assert float(jemalloc["low"]) < float(jemalloc["speedup"]) < float(jemalloc["high"])
    assert float(jemalloc["speedup"]) == pytest.approx(2e-4 / 1.4e-4, rel=0.05)
    assert int(jemalloc["memory_bytes"]) == 90 << 20
    assert by_arm["allocator/host_malloc", "glibc"]["speedup"] == ""
    mimalloc = by_arm["allocator/host_malloc", "mimalloc"]
    assert (mimalloc["outcome"], mimalloc["time_s"]) == ("skipped", "")
    assert mimalloc["reason"] == "libmimalloc.so.2 is not installed"
    read = by_arm["ceiling/host_memory", "read"]
    assert (read["baseline"], read["unit"]) == ("", "B/s")
    assert float(read["rate"]) == pytest.approx((256 << 20) / 0.018, rel=0.05)
    skipped = by_arm["precision/matmul", ""]
    assert (skipped["outcome"], skipped["reason"]) == (
        "skipped",
        "no NVIDIA driver on this machine",
    )
    assert set(jemalloc) & {"question", "expectation"} == set()


def test_csv_counts_the_items_that_have_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = {"bytes": 1e6, "items": 64.0, "item": "image"}
    arms = [sample.arm("a", 1e-3, cost=cost), sample.arm("b", 5e-4, cost=cost)]
    folder = made(tmp_path / "run", [sample.record("x/y", {"n": 1}, arms)])
    table = list(csv.DictReader(io.StringIO(exported(capsys, "csv", folder))))
    (row,) = (row for row in table if row["arm"] == "b")
    assert row["unit"] == "images/s"
    assert float(row["rate"]) == pytest.approx(128e3, rel=0.05)


def test_only_csv_has_fewer_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    assert cli.main(["export", "gbench", str(folder), "--all-columns"]) == USAGE
    assert "--all-columns is of csv" in capsys.readouterr().err


ERRATUM = """
[[errata]]
number = 1
short = "copies were counted twice"
runs = ["nvidia-h200/wrong"]
techniques = "^transfer/"
records = "some"
wrong = "what"
later = "mended"
"""


def test_known_errors_are_in_tables_summaries_and_contexts(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "results" / "errata.toml").write_text(ERRATUM, encoding="utf-8")
    folder = made(tmp_path / "wrong", runs_made.full_gpu())
    table = csv.DictReader(io.StringIO(exported(capsys, "csv", folder)))
    said = {(row["technique"].split("/")[0], row["errata"]) for row in table}
    assert ("transfer", "copies were counted twice") in said
    assert {errors for theme, errors in said if theme != "transfer"} == {""}
    assert "`copies were counted twice` |" in exported(capsys, "github", folder)
    context = json.loads(exported(capsys, "gbench", folder))["context"]
    assert context["gpulift_known_errors"] == ["copies were counted twice"]


def test_what_is_no_more_in_todays_sweep_is_marked(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = {"arms": ["pageable", "pinned"], "sweep": {"n": [1]}}
    (root / "results" / "today.json").write_text(
        json.dumps({"techniques": {"transfer/copy": declared, "transfer/old": "gone"}}), "utf-8"
    )
    arms = [sample.arm(name, 1e-3) for name in ("pageable", "pinned", "chunked")]
    cases = [("transfer/copy", 1), ("transfer/copy", 2), ("transfer/old", 1), ("own/copy", 1)]
    records = [one for id, n in cases for one in sample.launches(2, id, {"n": n}, arms)]
    table = csv.DictReader(io.StringIO(exported(capsys, "csv", made(tmp_path / "run", records))))
    found = {(row["technique"], row["case"], row["arm"]): row for row in table}
    assert {key: row["gone"] for key, row in found.items() if key[2] != "pageable"} == {
        ("transfer/copy", "n:1", "pinned"): "",
        ("transfer/copy", "n:1", "chunked"): "arm",
        ("transfer/copy", "n:2", "pinned"): "case",
        ("transfer/copy", "n:2", "chunked"): "case",
        ("transfer/old", "n:1", "pinned"): "technique",
        ("transfer/old", "n:1", "chunked"): "technique",
        ("own/copy", "n:1", "pinned"): "",
        ("own/copy", "n:1", "chunked"): "",
    }
    assert {key[0]: row["text"] for key, row in found.items()} == {
        "transfer/copy": "before (2026-11-21)",
        "transfer/old": "before (2026-11-21)",
        "own/copy": "",
    }


def test_joules_and_rates_have_columns(tmp_path: Path) -> None:
    cost = {"flops": 1e9, "roof": "gemm/bf16"}
    one = sample.record("ceiling/gemm", {"n": 1}, [sample.arm("a", 1e-3, cost=cost, power_w=500.0)])
    (row,) = rows_of([run_of(tmp_path / "run", [one])])
    values = {column.name: column.value(row) for column in columns()}
    assert values["step_energy_j"] == pytest.approx(0.5, rel=0.05)
    assert values["flops_per_s"] == pytest.approx(1e12, rel=0.01)
    assert values["bytes_per_s"] is None
    assert values["speedup"] is None  # a ceiling's arms stand for themselves


def test_what_bounds_an_arm_has_a_column(tmp_path: Path) -> None:
    arms = [sample.arm("eager", 1e-6, held=False), sample.arm("graph", 1e-3)]
    made = [sample.record("a/b", {"n": 1}, arms), sample.unmeasured("a/c", {}, "skipped", "no")]
    bound = next(one for one in columns() if one.name == "bound")
    rows = rows_of([run_of(tmp_path / "run", made)])
    assert list(map(bound.value, rows)) == ["host", "device", None]


def test_what_schema_1_7_added_has_columns(tmp_path: Path) -> None:
    rows = list(rows_of([run_of(tmp_path / "run", runs_made.of_ranks_and_disks())]))
    known = {column.name: column for column in columns()}

    def cells(row: Row, *names: str) -> list[object]:
        return [known[name].value(row) for name in names]

    tree, turbo = rows[1], rows[-1]
    assert cells(tree, "arm", "checked", "ranks", "step_cpu_s") == ["tree", False, 2, None]
    assert cells(tree, "arm_environment_json") == ['{"NCCL_ALGO":"Ring"}']
    (gpus,) = cells(tree, "gpus_json")
    assert [one["card"] for one in json.loads(str(gpus))] == ["1a2b3c4d", "5e6f7a8b"]
    assert cells(turbo, "arm", "checked", "ranks") == ["turbo", True, 1]
    assert cells(turbo, "step_cpu_s") == [pytest.approx(0.05, rel=0.02)]
    precondition = ("precondition", "precondition_most", "precondition_worst")
    assert cells(turbo, *precondition) == ["resident_share", 0.01, 0.002]
    assert cells(turbo, "scratch", "libraries") == ["ext4, not rotational", "pillow 12.0.0"]
    assert cells(turbo, "planned_blocks", "gpus_json") == [4, None]


def test_only_an_arm_that_ran_was_checked_or_not(tmp_path: Path) -> None:
    rows = list(rows_of([run_of(tmp_path / "run", runs_made.with_troubles())]))
    (column,) = (one for one in columns() if one.name == "checked")
    values = {row.arm.outcome: column.value(row) for row in rows if row.arm}
    assert values.pop("ok") is True
    assert values == dict.fromkeys(values)
    assert "skipped" in values


@pytest.mark.parametrize(
    ("change", "cells"),
    [
        ({"throttle": ["hw_slowdown", "sw_power_cap"]}, ("hw_slowdown, sw_power_cap", True)),
        ({"throttle": []}, (None, True)),
        ({}, (None, False)),
    ],
)
def test_no_throttling_is_told_from_throttling_that_was_not_read(
    tmp_path: Path, change: sample.Json, cells: tuple[str | None, bool]
) -> None:
    one = sample.record("training/step", {"n": 1}, [sample.arm("eager", 1e-3)])
    del one["telemetry"]["throttle"]
    one["telemetry"] |= change
    (row,) = rows_of([run_of(tmp_path / "run", [one])])
    values = {column.name: column.value(row) for column in columns()}
    assert (values["case_throttle"], values["case_throttle_known"]) == cells


def test_metrics_and_what_an_item_is_have_columns(tmp_path: Path) -> None:
    said = {"cost": {"items": 8192.0, "item": "token"}, "metrics": {"joules_per_step": 1.5}}
    arms = [sample.arm("eager", 1e-3, **said), sample.arm("graph", 1e-3)]
    one = sample.record("training/step", {"n": 1}, arms)
    known = {column.name: column for column in columns()}
    first, second = rows_of([run_of(tmp_path / "run", [one])])
    assert known["item"].value(first) == "token"
    assert known["metrics_json"].value(first) == '{"joules_per_step":1.5}'
    assert known["item"].value(second) is None
    assert known["metrics_json"].value(second) == "{}"


# --- Prometheus ---


def test_prometheus_reads_every_sample(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", runs_made.full_gpu())
    text = prometheus_text([run])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert sum(len(family.samples) for family in families.values()) == sum(
        not line.startswith("#") for line in text.splitlines()
    )
    for family in families.values():
        assert family.type == "gauge"
        assert family.documentation
    speedups = {
        (one.labels["case"], one.labels["arm"]): one.value
        for one in families["gpulift_speedup_ratio"].samples
    }
    assert speedups["n:8192", "bf16"] == pytest.approx(15.9, rel=0.02)
    launches = families["gpulift_launches"].samples
    assert {one.value for one in launches} == {3.0}
    assert families["gpulift_run_info"].samples[0].labels["driver"] == "580.159.04"


@pytest.mark.parametrize(
    ("verdict", "qualified"),
    [("pass", 1.0), ("fail", 0.0), ("inconclusive", 0.0)],
)
def test_prometheus_tells_whether_a_machine_passes(
    tmp_path: Path, verdict: str, qualified: float
) -> None:
    run = run_of(tmp_path / "run", runs_made.full_gpu())
    checks = (
        CheckResult("roof/a", verdict, estimate=Estimate(2.0, 1.9, 2.1, 3), unit="B/s", limit=1.6),
        CheckResult("time/b", "pass", estimate=Estimate(2.0, 1.9, 2.1, 3), unit="s", limit=3.0),
    )
    text = prometheus_text([run], [JudgedRun(summarise(run), checks)])
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    (told,) = families["gpulift_qualified"]
    assert (told.value, told.labels["machine"]) == (qualified, "nvidia-h200")
    found = {(one.labels["check"], one.labels["verdict"]) for one in families["gpulift_check"]}
    assert found == {("roof/a", verdict), ("time/b", "pass")}
    ratios = {o.labels["check"]: o.value for o in families["gpulift_check_of_limit_ratio"]}
    assert ratios == pytest.approx({"roof/a": 1.25, "time/b": 1.5})


def test_a_folder_is_judged_by_the_newest_of_each_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest run of most techniques measured no roof; another one in the folder did."""
    above = tmp_path / "nvidia-h200"
    every = runs_made.full_gpu()
    roofs = [one for one in every if one["technique"].startswith("ceiling/")]
    later = [{**one, "started_at": "2026-11-28T04:00:00Z"} for one in every if one not in roofs]
    made(above / "2026-11-21-abc1234", roofs)
    newest = made(above / "2026-11-28-abc1234", later)
    for named, judges in ((above, True), (newest, False)):
        text = exported(capsys, "junit", named)
        (suite,) = ET.fromstring(text.encode()).findall("testsuite")
        (roof,) = (case for case in suite if case.attrib.get("name") == "device_memory/burst")
        assert ("not measured" not in ET.tostring(roof, "unicode")) == judges
    text = exported(capsys, "prometheus", above)
    assert text.count("\ngpulift_qualified{") == 1, "a machine, not each of its runs"


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    text = prometheus_text([run_of(tmp_path / "run", [*runs_made.full_gpu(), *runs_made.duet()])])
    done = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_skips_are_counted_and_have_no_time(tmp_path: Path) -> None:
    text = prometheus_text([run_of(tmp_path / "run", runs_made.without_gpu())])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counts = {o.labels["outcome"]: o.value for o in families["gpulift_records"].samples}
    assert counts == {"ok": 6, "skipped": 2, "failed": 0, "error": 0}
    timed = {one.labels["technique"] for one in families["gpulift_step_time_seconds"].samples}
    assert timed == {"ceiling/host_memory", "allocator/host_malloc"}


def test_two_runs_of_one_name_do_not_overwrite_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = [sample.arm("a", 2e-3), sample.arm("b", 1e-3)]
    fast = [sample.arm("a", 1e-3), sample.arm("b", 1e-3)]
    folders = [
        made(tmp_path / name / "run", [sample.record("x/y", {"n": 1}, arms)])
        for name, arms in (("1", slow), ("2", fast))
    ]
    assert cli.main(["export", "prometheus", *map(str, folders)]) == USAGE
    assert "two runs of the same name" in capsys.readouterr().err


# --- GitHub ---


def test_the_step_summary_is_short_and_says_the_verdict(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = exported(capsys, "github", made(tmp_path / "run", runs_made.with_troubles()))
    assert page.startswith("## gpulift: ❌ fail on `NVIDIA H200`\n")
    assert "signal SIGSEGV" in page
    assert "**Mind: built from uncommitted changes.**" in page
    assert len(page.splitlines()) < 60
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in tables[:3]}) == 1


def test_the_step_summary_is_appended_where_github_wants_it(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = made(tmp_path / "run", runs_made.full_gpu())
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert exported(capsys, "github", folder) == ""
    assert summary.read_text(encoding="utf-8").startswith("before\n## gpulift: ")
    out = tmp_path / "own.md"
    exported(capsys, "github", folder, "--out", out)
    assert out.read_text(encoding="utf-8").startswith("## gpulift: ")
    assert summary.read_text(encoding="utf-8").count("## gpulift: ") == 1


def test_a_run_in_which_all_was_skipped_is_said_to_have_measured_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = exported(capsys, "github", made(tmp_path / "run", runs_made.without_gpu()[-2:]))
    assert "Nothing was measured in this run." in page
    assert "➖ skipped" in page


# --- What goes wrong ---


@pytest.mark.parametrize("format", sorted(EXPORTS))
def test_only_skipped_records_make_a_truthful_file(
    format: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu()[-2:])
    out = tmp_path / "out"
    assert cli.main(["export", format, str(folder), "--out", str(out)]) == OK
    assert "nothing was measured in these records" in capsys.readouterr().err
    assert out.stat().st_size > 0


@pytest.mark.parametrize("format", sorted(EXPORTS))
def test_one_record_is_enough(format: str, root: Path, tmp_path: Path) -> None:
    folder = made(tmp_path / "run", runs_made.full_gpu()[:1])
    out = tmp_path / "out"
    assert cli.main(["export", format, str(folder), "--out", str(out)]) == OK
    assert out.stat().st_size > 0


def test_no_records_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "csv", str(tmp_path)]) == USAGE
    assert "there are no records" in capsys.readouterr().err
    assert cli.main(["export", "csv"]) == USAGE
    assert "name RESULTS" in capsys.readouterr().err


def test_an_unknown_format_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "xls"]) == USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert all(name in said for name in EXPORTS)


def test_a_file_is_written_over_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    out = tmp_path / "x.csv"
    out.write_text("mine", encoding="utf-8")
    arguments = ["export", "csv", str(folder), "--out", str(out)]
    assert cli.main(arguments) == USAGE
    assert "--force" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "mine"
    assert cli.main([*arguments, "--force"]) == OK
    assert out.read_text(encoding="utf-8").startswith("gpu,")
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_a_full_disk_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    assert cli.main(["export", "csv", str(folder), "--out", "/dev/full"]) == FAILED
    said = capsys.readouterr().err
    assert said == "gpulift: error: /dev/full: cannot be written: No space left on device\n"


def test_a_full_standard_output_is_one_line(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpulift", "export", "csv", str(folder)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=Path(__file__).resolve().parents[2],
        )
    assert done.returncode == FAILED
    assert done.stderr.splitlines() == [
        "gpulift: error: standard output cannot be written: No space left on device"
    ]


def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.without_gpu())
    for out in (tmp_path / "no" / "x.csv", Path("/proc/x.csv"), folder, tmp_path / ("x" * 300)):
        assert cli.main(["export", "csv", str(folder), "--out", str(out)]) == USAGE
        assert capsys.readouterr().err.count("\n") == 1


def test_a_filter_leaves_cases_of_which_an_arm_matches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path, runs_made.full_gpu())
    whole = exported(capsys, "csv", folder).splitlines()
    kept = exported(capsys, "csv", folder, "--filter", "precision/matmul/n:512/bf16").splitlines()
    of_case = [line for line in whole if "precision/matmul" in line and ",n:512," in line]
    assert len(of_case) == 4, "all arms, which are held against each other"
    assert kept == [whole[0], *of_case]
    rest = exported(capsys, "csv", folder, "--filter", "-^precision/").splitlines()
    assert rest == [line for line in whole if "precision/matmul" not in line]
    assert cli.main(["export", "csv", str(folder), "--filter", "none"]) == USAGE
    assert "no case of the records matches the filter 'none'" in capsys.readouterr().err
