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
from collections.abc import Callable, Sequence
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
from gpulift.exchange.rows import cells_of, columns, rows_of
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


def various() -> list[sample.Json]:
    """Records of an H200 of which each has something that others lack."""
    items = {"items": 8192.0, "item": "token"}
    said = {"cost": items, "metrics": {"joules_per_step": 1.5}, "power_w": 500.0}
    step = sample.record("training/step", {"n": 1}, [sample.arm("eager", 1e-3, **said)])
    host = [sample.arm("eager", 1e-6, held=False), sample.arm("graph", 1e-3)]
    unread = sample.record("launch/graph", {"n": 1}, host)
    del unread["telemetry"]["throttle"]
    steady = sample.record("launch/graph", {"n": 2}, [sample.arm("eager", 1e-3)])
    steady["telemetry"]["throttle"] = []
    made = (runs_made.with_troubles(), runs_made.of_ranks_and_disks(), runs_made.full_gpu()[:6])
    return [*(one for group in made for one in group), step, unread, steady]


@pytest.mark.parametrize(
    "arguments",
    [
        "csv gpu",
        "csv cpu",
        "csv gpu --all-columns",
        "gbench gpu",
        "prometheus gpu",
        "prometheus cpu",
    ],
)
def test_a_table_holds_what_it_held(
    arguments: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: Callable[[str], None],
) -> None:
    made(root / "gpu", various())
    made(root / "cpu", runs_made.without_gpu())
    monkeypatch.chdir(root)
    text = exported(capsys, *arguments.split())
    # Digits behind the sixth are those of the processor's logarithms.
    number = re.compile(r"-?(?=[\d.]{8})\d+\.\d+(e[-+]\d+)?")
    kept(number.sub(lambda found: f"{float(found[0]):.6g}", text))


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


def test_two_runs_do_not_pass_for_repetitions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [made(tmp_path / name, runs_made.without_gpu()) for name in "ab"]
    assert cli.main(["export", "gbench", *map(str, folders)]) == USAGE
    assert "holds one run, these are 2" in capsys.readouterr().err


# --- JUnit ---


def test_junit_has_what_failed_and_where_it_was_measured(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.with_troubles())
    written = exported(capsys, "junit", folder).encode()
    assert not complaints(written)
    document = ET.fromstring(written)
    failed = {one.attrib["name"]: one.find("failure") for one in document.iter("testcase")}
    error = failed["transfer/pinned_copy/bytes:4096"]
    assert error is not None
    assert "signal SIGSEGV" in error.attrib["message"]
    names = {one.attrib["name"]: one.attrib["value"] for one in document.iter("property")}
    assert names["machine"] == "NVIDIA H200"
    assert "built from uncommitted changes" in names["marks"]


def test_junit_takes_the_health_that_was_kept_beside_the_records(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path / "run", runs_made.full_gpu())
    health = {"id": "health/ecc", "verdict": "fail", "reason": "2 errors", "remedy": "reset"}
    kept = {"checks": [health | {"kind": "health"}, health | {"id": "time/x", "kind": "measured"}]}
    (folder / "qualification.json").write_text(json.dumps(kept), encoding="utf-8")
    document = ET.fromstring(exported(capsys, "junit", folder).encode())
    failed = [one for one in document.iter("testcase") if one.find("failure") is not None]
    assert [(one.attrib["classname"], one.attrib["name"]) for one in failed] == [("health", "ecc")]


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


# --- Prometheus ---


def test_prometheus_reads_every_sample(tmp_path: Path) -> None:
    text = prometheus_text([run_of(tmp_path / "run", various())])
    families = list(text_string_to_metric_families(text))
    assert all(family.type == "gauge" and family.documentation for family in families)
    samples = sum(len(family.samples) for family in families)
    assert samples == sum(not line.startswith("#") for line in text.splitlines())


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
        cases = ET.fromstring(text.encode()).iter("testcase")
        (roof,) = (case for case in cases if case.attrib.get("name") == "device_memory/burst")
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


def test_a_run_in_which_all_was_skipped_is_said_to_have_measured_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = exported(capsys, "github", made(tmp_path / "run", runs_made.without_gpu()[-2:]))
    assert "Nothing was measured in this run." in page
    assert "➖ skipped" in page


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
