"""`gate` against a fake gpulift-bench: verdicts, exit codes, evidence, what goes wrong."""

from __future__ import annotations

import copy
import json
import re
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from gpulift.commands import gate as gate_command
from gpulift.commands.gate import gate
from gpulift.commands.verify_file import verified
from gpulift.gate import setup as gate_setup
from gpulift.gate.builds import Build, Say, find_build
from gpulift.gate.certificate import UnchangedRow
from gpulift.gate.measure import Budget
from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.ground.steps import SECTIONS
from gpulift.verdicts.decision import ARM_TIME_S, DECISION_METHOD
from proof.certificate import issue
from tests import sample
from tests.fake_gate import TAG, FakeBench, Json, make_build, read_all, technique
from tests.trials_made import unchanged

pytestmark = pytest.mark.world

MATMUL = "precision/matmul"
GRAPH = "launch/cuda_graph"
CLEAN = (technique(MATMUL, ("fp32", "bf16")), technique(GRAPH))
SLOWER = (technique(MATMUL, ("fp32", "bf16"), log_time={"bf16": 0.005}), technique(GRAPH))
CRASHES = (
    technique(MATMUL, ("fp32",)),
    technique(GRAPH, outcome="error", reason="ended with signal SIGSEGV"),
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBench:
    made = FakeBench()
    made.install_in(tmp_path, monkeypatch)
    make_build(tmp_path / "base", CLEAN)
    make_build(tmp_path / "build", CLEAN)
    return made


def head_is(*techniques: Json) -> None:
    make_build(Path("build"), techniques)


def run(*arguments: str) -> int:
    """The exit code; an error is a line on stderr, as the command line prints it."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(gate)
    try:
        code = app(args=list(arguments), standalone_mode=False)
    except GpuliftError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return code if isinstance(code, int) else 0


def against_base(*more: str) -> int:
    return run("--base", "base", "--out", "evidence", *more)


def verdicts(capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, str]:
    """Of a gate that printed JSON."""
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    return {f"{row['technique']}/{row['arm']}": row["verdict"] for row in document["rows"]}


@contextmanager
def changed_setup() -> Iterator[Json]:
    """What gate.json keeps, to be changed."""
    file = Path("evidence/gate.json")
    document = json.loads(file.read_text())
    yield document
    file.write_text(json.dumps(document))


def test_equal_builds_are_green(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    assert against_base() == 0
    said = capsys.readouterr()
    assert "3 comparisons: 0 error, 0 regressed, 0 inconclusive, 0 improved, 3 equivalent" in (
        said.out
    )
    assert said.out.count("passed") == 3
    assert "family of 3" in said.out
    assert "0.5 %" in said.out
    assert "no certificate for this model" in said.out
    assert "screen: 3 comparisons x 4 launches" in said.err
    assert not [line for line in said.out.splitlines() if line.startswith("equivalent")]


def test_its_certificate_holds(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    head_is(*SLOWER)
    assert against_base("--certificate", "c.json") == 1
    found = verified(Path("c.json"))
    assert not found.problems
    assert [row["verdict"] for row in found.rows] == ["regressed", "equivalent", "equivalent"]
    assert found.says["conditions"]["card"] == "NVIDIA H200"
    document = json.loads(Path("c.json").read_bytes())
    records = [line for one in document["parts"][1:] for line in one["lines"]]
    records[0]["arms"][0]["windows"]["device_s"][0] *= 1.5
    document["parts"].insert(0, {"file": "null/stage2/launch-0099/x.jsonl", "lines": []})
    document["parts"][0]["sha256"] = ""
    Path("c.json").write_text(json.dumps(document))
    assert "it was edited: the hash of null/stage2/" in verified(Path("c.json")).problems[0]
    for record in records:
        record["context"]["gpu"]["max_sm_clock_hz"] = "1"
    Path("c.json").write_text(json.dumps(document))
    with pytest.raises(GpuliftError, match=r"gpu\.max_sm_clock_hz must be"):
        verified(Path("c.json"))


def test_a_regression_is_found_confirmed_and_named(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    head_is(*SLOWER)
    assert against_base() == 1
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("regressed")]
    assert "precision/matmul/n:1/bf16: 1000 µs -> 1.00 ms; head/base 1.00" in line
    assert "8 launches" in line
    second = read_all(Path("evidence/cases/stage2"))
    assert {record["arm"] for record in second} == {"bf16"}
    assert len(second) == 8
    seeds = {stage: read_all(Path(f"evidence/cases/{stage}"))[0]["order"]["seed"]
             for stage in ("stage1", "stage2")}  # fmt: skip
    assert seeds["stage1"] != seeds["stage2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["precision(", "--out", "new"], "'precision(' is not a regular expression"),
        (["--out", "base"], "--out base: is there already"),
        (["--head", "nothere", "--out", "new"], "name build folders"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_built(
    bench: FakeBench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.setattr(gate_command, "find_build", None)
    assert run("--base", "base", *arguments) == 2
    assert words in capsys.readouterr().err


def test_a_replay_gives_the_same_verdicts_and_measures_nothing(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    head_is(*SLOWER)
    assert against_base("--json") == 1
    measured = json.loads(capsys.readouterr().out)
    calls = len(bench.calls)
    assert run("--replay", "evidence", "--json") == 1
    assert json.loads(capsys.readouterr().out) == measured
    assert len(bench.calls) == calls
    kept = json.loads(Path("evidence/gate.json").read_text())["result"]
    assert kept == {key: value for key, value in measured.items() if key != "evidence"}


def test_a_replay_refuses_another_method_and_other_folders(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--replay", "nowhere") == 2
    against_base()
    with changed_setup() as document:
        document["setup"]["method"] = "0"
    capsys.readouterr()
    assert run("--replay", "evidence") == 4
    assert "decision method 0" in capsys.readouterr().err
    Path("evidence/gate.json").write_text('{"schema": "2.0"}')
    assert run("--replay", "evidence") == 2


def test_a_crash_in_the_head_leaves_the_rest_judged(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    make_build(Path("base"), (technique(MATMUL, ("fp32",)), technique(GRAPH)))
    head_is(*CRASHES)
    assert against_base("--json") == 1
    assert verdicts(capsys, 1) == {
        "precision/matmul/fp32": "equivalent",
        "launch/cuda_graph/plain": "error",
    }
    crashed = read_all(Path("evidence/cases/stage1"))
    assert len([r for r in crashed if r["technique"] == GRAPH]) == 1


def test_what_breaks_in_both_is_asked_of_the_base_alone(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    make_build(Path("base"), (technique(MATMUL, ("fp32",)), technique(GRAPH)))
    head_is(*CRASHES)
    assert against_base() == 1
    said = capsys.readouterr()
    assert "error        launch/cuda_graph/n:1/plain: head: ended with signal SIGSEGV" in said.out
    assert "base against a copy of itself in 1 that broke: is it the head?" in said.err
    alone = bench.calls[-1]
    assert {f"--{side}=base/modules" for side in ("base", "head")} == {
        x.replace(f"{Path.cwd()}/", "") for x in alone if x.endswith("base/modules")
    }
    assert {record["technique"] for record in read_all(Path("evidence/alone"))} == {GRAPH}
    assert run("--replay", "evidence") == 1
    assert "head: ended with signal SIGSEGV" in capsys.readouterr().out


@pytest.mark.parametrize("tag", [TAG, "another"])
def test_a_base_that_breaks_alone_is_no_error_of_the_head(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], tag: str
) -> None:
    make_build(Path("base"), CRASHES, tag=tag)
    head_is(technique(MATMUL, ("fp32",)), technique(GRAPH))
    assert against_base("--json") == 5
    document = json.loads(capsys.readouterr().out)
    (row,) = [one for one in document["rows"] if one["technique"] == GRAPH]
    assert row["verdict"] == "inconclusive"
    assert row["reason"].startswith("no base")
    assert "SIGSEGV" in row["reason"]
    assert run("--replay", "evidence") == 5


def test_a_hardware_slow_down_is_no_failure_of_the_code(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.slowed = lambda name, launch: name == GRAPH and launch == 1
    assert against_base() == 3
    said = capsys.readouterr().out
    assert "inconclusive launch/cuda_graph/n:1/plain: slowed down in 1 of 2 launches" in said
    assert "control hardware: FAILED: the hardware slowed itself down in every block of a" in said
    assert "0 error" in said
    assert not Path("evidence/null").exists()


def test_sides_that_are_not_timed_alike_are_not_judged(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.unlike = lambda name, launch: name == GRAPH
    head_is(technique(MATMUL, ("fp32", "bf16")), technique(GRAPH, log_time={"plain": 0.1}))
    assert against_base() == 5
    said = capsys.readouterr().out
    assert (
        "launch/cuda_graph/n:1/plain: not timed alike in 2 of 2 launches: base queued behind the"
        " hold, head waiting for the host"
    ) in said
    assert "1 inconclusive, 0 improved, 2 equivalent" in said


def in_build(**facts: str) -> Json:
    """The context of a build that has other facts."""
    return {**sample.GPU_CONTEXT, "build": {**sample.BUILD, **facts}}


def test_builds_that_differ_in_more_than_the_commit_are_refused(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.contexts = {"base": in_build(type="Debug", compiler="Clang 19", commit="fedcba9")}
    assert against_base() == 4
    said = capsys.readouterr().err
    assert "build.compiler (Clang 19 in base, GNU 12.2.0 in head)" in said
    assert "build.type (Debug in base, Release in head)" in said
    assert "build.commit" not in said
    assert bench.calls == []
    other = {**sample.GPU_CONTEXT, "versions": {"cublaslt": "12.8"}, "cuda_runtime": "12.8"}
    bench.contexts = {"base": other}
    assert against_base() == 4
    said = capsys.readouterr().err
    assert "cuda_runtime (12.8 in base, 13.0 in head), libraries.cublaslt (12.8" in said
    bench.contexts = {"base": in_build(commit="fedcba9")}
    assert against_base() == 0


def test_skipped_rows_are_no_failure(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("base", "build"):
        make_build(
            Path(folder),
            (technique(MATMUL), technique(GRAPH, outcome="skipped", reason="out of memory")),
        )
    assert against_base("--json") == 0
    assert verdicts(capsys)["launch/cuda_graph/plain"] == "skipped"
    assert run("cuda_graph", "--base", "base", "--out", "other") == 77


def test_without_a_gpu_only_the_host_is_measured(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.context = sample.CPU_CONTEXT
    for folder in ("base", "build"):
        make_build(Path(folder), (technique(MATMUL), technique("allocator/x", gpus=0)))
    assert against_base() == 0
    said = capsys.readouterr().out
    assert "1 equivalent, 1 skipped" in said
    assert "planted slow-down found: allocator/x/n:1/plain: planted 1 %, read " in said
    assert run(MATMUL, "--base", "base", "--out", "other") == 77


def test_why_nothing_ran_is_said_once_with_the_remedy(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.context = sample.CPU_CONTEXT
    lacking = {"unavailable": "built without LibTorch", "remedy": "./gpulift setup"}
    for folder in ("base", "build"):
        make_build(Path(folder), (*CLEAN, technique("model/resnet", **lacking)))
    assert against_base() == 77
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if re.match(r"\d+ skipped: ", line)] == [
        "3 skipped: no NVIDIA driver on this machine; install the NVIDIA driver, version 580 or"
        " later",
        "1 skipped: built without LibTorch; ./gpulift setup",
    ]


def test_what_gpulift_bench_skips_is_said_with_its_remedy(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = technique(GRAPH, outcome="skipped", reason="no jemalloc", remedy="apt-get install it")
    for folder, tag in (("base", TAG), ("build", TAG), ("other", "another")):
        make_build(Path(folder), (lacking,), tag=tag)
    for head in ("build", "other"):
        assert run("--base", "base", "--head", head) == 77
        assert "1 skipped: no jemalloc; apt-get install it\n" in capsys.readouterr().out


def test_a_case_that_one_side_lacks_is_not_comparable(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    head_is(*CLEAN, technique("transfer/new"))
    assert against_base() == 4
    assert "only in the head: transfer/new/n:1/plain" in capsys.readouterr().err
    assert against_base("--", "-transfer") == 0


@pytest.mark.parametrize("side", ["base", "build"])
def test_what_is_quick_on_one_side_is_compared(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], side: str
) -> None:
    slow = technique(GRAPH)
    slow["cases"][0]["quick"] = False
    make_build(Path(side), (CLEAN[0], slow))
    assert against_base("--json") == 0
    assert "launch/cuda_graph/plain" in verdicts(capsys)


def test_the_quick_cases_are_the_default(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = technique(GRAPH)
    slow["cases"][0]["quick"] = False
    for side in ("base", "build"):
        make_build(Path(side), (CLEAN[0], slow))
    assert against_base("--json") == 0
    assert "launch/cuda_graph/plain" not in verdicts(capsys)
    assert run("--base", "base", "--all", "--json") == 0
    assert "launch/cuda_graph/plain" in verdicts(capsys)


def test_a_broken_instrument_is_exit_3(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.bias = 0.005
    assert against_base() == 3
    said = capsys.readouterr()
    assert "control null: FAILED" in said.out
    assert "alarm: regressed" in said.out
    assert "control null failed, so nothing is confirmed" in said.err


def test_a_blind_instrument_is_exit_3(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.felt = 0.0
    head_is(*SLOWER)
    assert against_base() == 3
    said = capsys.readouterr()
    assert re.search(r"control planted: FAILED: \S+: planted 1 %, not found: equivalent", said.out)
    assert "bf16: 1000 µs -> 1.00 ms; head/base 1.00" in said.out
    assert "not confirmed: a control failed" in said.out
    assert "control planted failed, so nothing is confirmed" in said.err


def test_where_only_large_changes_are_seen_a_large_one_is_planted(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.noise = 0.05
    assert against_base() == 5
    said = capsys.readouterr()
    size = float(re.findall(r"control planted, (\S+) % slower on purpose", said.err)[0])
    assert 10 < size < 100
    assert "control planted: passed" in said.out


def test_a_planted_note_that_is_no_number_is_named(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert against_base() == 0
    (file,) = Path("evidence/planted/stage1/launch-0000").glob("precision.*.jsonl")
    file.write_text(file.read_text().replace('"planted": "0.01"', '"planted": "much"'))
    assert run("--replay", "evidence") == 2
    assert f"{file}:1: notes.planted must be a number, not 'much'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("least", -0.5, "setup.least must be float > 0"),
        ("equivalent", 50, "setup.equivalent must be float < 1"),
        ("planted_size", -0.1, "setup.planted_size must be float >= 0"),
        (
            "floors",
            {f"{GRAPH}/n:1/plain": -2},
            "floors.launch/cuda_graph/n:1/plain must be float >= 0",
        ),
        ("null_rows", [{"technique": "x", "case_id": "y", "arm": "z"}], "must be among the rows"),
        (
            "rows",
            [{"technique": GRAPH, "case_id": "n:1", "arm": "plain"}] * 2,
            f"setup.rows names {GRAPH}/n:1/plain more than once",
        ),
        (
            "unsteady",
            [{"technique": GRAPH, "case_id": "n:2", "arm": "plain"}],
            "setup.unsteady must be among the rows",
        ),
    ],
)
def test_a_replay_names_a_field_of_the_set_up_that_no_gate_writes(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], key: str, value: object, words: str
) -> None:
    assert against_base() == 0
    with changed_setup() as document:
        document["setup"][key] = value
    assert run("--replay", "evidence") == 2
    assert words in capsys.readouterr().err


def test_a_card_that_changes_in_the_midst_of_a_gate_is_refused(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert against_base() == 0
    (file,) = Path("evidence/null/stage1/launch-0000").glob(f"{GRAPH.replace('/', '.')}.jsonl")
    card = bench.context["gpu"]["card"]
    file.write_text(file.read_text().replace(f'"card": "{card}"', '"card": "deadbeef"'))
    assert run("--replay", "evidence") == 4
    said = capsys.readouterr().err
    assert f"gpu.card changed in the midst of the gate, from {card} at " in said
    assert f"to deadbeef at {file}:1" in said


def test_a_card_that_changes_while_a_gate_measures_is_refused(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    def change() -> None:
        if len(bench.calls) > 1:
            bench.context = copy.deepcopy(bench.context)
            bench.context["gpu"]["card"] = "deadbeef"

    bench.on_call = change
    assert against_base() == 4
    assert "gpu.card changed in the midst of the gate" in capsys.readouterr().err


def test_missing_launches_are_exit_3(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.drop = lambda name, launch: name == GRAPH and launch == 1
    assert against_base() == 3
    assert "missing: launch/cuda_graph/n:1/plain (2 of 4 launches)" in capsys.readouterr().out
    assert not Path("evidence/null").exists()


@pytest.mark.parametrize("tag", [TAG, "another"])
def test_a_gpulift_bench_that_leaves_no_records_is_exit_3(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], tag: str
) -> None:
    make_build(Path("build"), CLEAN, tag=tag)
    bench.exit_codes = dict.fromkeys(range(1, 100), 1)
    assert against_base() == 3
    assert "n:1/plain (0 of 4 launches)" in capsys.readouterr().out


def test_other_headers_fall_back_to_alternating_processes(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    make_build(Path("build"), SLOWER, tag="another")
    assert against_base("--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["mode"] == "alternating processes"
    assert {row["note"] for row in document["rows"]} == {"alternating processes: less sharp"}
    found = {row["arm"]: row["verdict"] for row in document["rows"]}
    assert found == {"fp32": "equivalent", "bf16": "regressed", "plain": "equivalent"}
    first = [call[0].split("/")[-2] for call in bench.calls[:8]]
    assert first == ["base", "build", "build", "base", "build", "base", "base", "build"]
    assert run("--replay", "evidence", "--json") == 1
    assert json.loads(capsys.readouterr().out) == document


def test_alternating_processes_see_a_crash_of_the_head(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    make_build(Path("base"), (technique(MATMUL, ("fp32",)), technique(GRAPH)))
    make_build(Path("build"), CRASHES, tag="another")
    assert against_base() == 1
    assert "error        launch/cuda_graph/n:1/plain: head: ended with signal" in (
        capsys.readouterr().out
    )


def test_an_interrupt_keeps_the_evidence(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.exit_codes = {2: 130}
    assert against_base() == 130
    assert "what was measured is kept in evidence" in capsys.readouterr().err
    assert read_all(Path("evidence/cases/stage1"))
    assert run("--replay", "evidence") == 5
    said = capsys.readouterr().out
    assert "the gate was broken off: the last launches that were kept are of the screen" in said
    assert "2 of 4 launches" in said
    document = json.loads(Path("evidence/gate.json").read_text())
    assert "result" not in document


def test_a_budget_that_slow_rows_use_up_breaks_the_gate_off(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.row_launch_s = 40.0

    def fake_time(limit_s: float | None, planned_s: float, used_s: float) -> Budget:
        return Budget(limit_s, planned_s, lambda: bench.now_s)

    monkeypatch.setattr(gate_setup, "Budget", fake_time)
    assert against_base("--budget", "90s", "--json") == 5
    said = capsys.readouterr()
    assert "the budget of 90 s broke the gate off: what was measured is kept in evidence" in (
        said.err
    )
    document = json.loads(said.out)
    assert document["counts"]["inconclusive"] == 3
    assert "by its budget" in document["controls"][0]["said"]
    assert "result" not in json.loads(Path("evidence/gate.json").read_text())
    assert len(read_all(Path("evidence"))) == 2
    assert run("--replay", "evidence", "--json") == 5
    assert json.loads(capsys.readouterr().out) == document


@pytest.mark.parametrize(
    ("ended", "code", "words"),
    [
        (2, 2, "refused, see above"),
        (4, 4, "refused, see above"),
        (75, 75, "refused, see above"),
        (-signal.SIGTERM, 143, "ended by SIGTERM"),
        (-signal.SIGKILL, 1, "ended by SIGKILL"),
    ],
)
def test_how_gpulift_bench_ends_is_said(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], ended: int, code: int, words: str
) -> None:
    bench.exit_codes = {1: ended}
    assert against_base() == code
    assert words in capsys.readouterr().err


def test_a_budget_too_small_for_the_screen_is_refused(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert against_base("--budget", "10s") == 2
    said = capsys.readouterr().err
    # Three rows and four of controls; the latter confirmed, at two builds of 0.2 s each.
    assert "need about 24 s by the planned times" in said
    assert not Path("evidence").exists()
    assert run("--base", "base", "--budget", "10s") == 2
    assert list(Path(".gate/runs").iterdir()) == []
    assert bench.calls == []


def test_a_budget_that_the_builds_ate_says_so(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def slow_build(reference: str, gpu: int | None, say: Say, until_s: float | None) -> Build:
        now_s[0] += 280.0
        return find_build(reference, gpu, say)

    monkeypatch.setattr(gate_command, "find_build", slow_build)
    assert against_base("--budget", "300s") == 2
    said = capsys.readouterr().err
    assert "need about 304 s by the planned times, 280 s of which went into builds" in said
    assert bench.calls == []
    assert against_base("--budget", "320s") == 0


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        (("matmul",), "the filter"),
        (("--head", "build"), "--head"),
        (("--all",), "--all"),
        (("--budget", "300s"), "--budget"),
        (("--out", "other"), "--out"),
        (("--seed", "1"), "--seed"),
        (("--gpu", "0"), "--gpu"),
        (("--arm-time", "0.2"), "--arm-time"),
    ],
)
def test_a_replay_refuses_what_it_would_ignore(
    bench: FakeBench,
    capsys: pytest.CaptureFixture[str],
    option: tuple[str, ...],
    shown: str,
) -> None:
    assert against_base() == 0
    assert run("--replay", "evidence", *option) == 2
    assert capsys.readouterr().err.endswith(f"measures nothing: leave out {shown}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "soon"), "give a time above 0"),
        (("--budget", "10"), "give a time above 0"),
        (("--budget", "0m"), "give a time above 0"),
        (("--arm-time", "0"), "--arm-time must be more than 0"),
        (("--arm-time", "inf"), "--arm-time must be more than 0 and finite, not inf"),
        (("nothing-like-it",), "no case matches the filter"),
        (("(",), "not a regular expression"),
        (("--explain", "no/such"), "no row of the comparison holds 'no/such'"),
        (("--junit", "no/such/file.xml"), "no such folder"),
        (("--replay", "evidence"), "measures nothing: leave out --base, --out"),
        (("--json", "--github"), "--json stands alone"),
        (("--json", "--explain", MATMUL), "--json stands alone"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert against_base(*arguments) == 2
    assert words in capsys.readouterr().err
    assert bench.calls == []
    assert not Path("evidence").exists()


def test_a_gate_needs_a_base(bench: FakeBench) -> None:
    assert run() == 2


def test_a_folder_that_cannot_be_written_is_one_line(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    assert run("--base", "base", "--out", "file/evidence") == 2
    assert "cannot be written" in capsys.readouterr().err
    assert run("--base", "base", "--out", "build") == 2
    assert "is there already" in capsys.readouterr().err


def test_evidence_goes_to_a_new_folder_each_time(bench: FakeBench) -> None:
    for _ in range(2):
        assert run("--base", "base") == 0
    first, second = sorted(Path(".gate/runs").iterdir())
    assert first.name.endswith("-abc1234-abc1234")
    assert second.name == f"{first.name}-2"


def test_a_certificate_raises_the_margins(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def certified_with(method: str, arm_time_s: float = ARM_TIME_S) -> None:
        row, other = "precision/matmul/n:1/bf16", "precision/matmul/n:1/fp32"
        one = replace(
            issue([unchanged(0)]),
            method=method,
            arm_time_s=arm_time_s,
            floors={row: 0.01},
            rows=(row, other),
            unchanged=(UnchangedRow(row, 5, 1), UnchangedRow(other, 7, 0)),
        )
        made = {"nvidia-h200": one}
        monkeypatch.setattr(gate_setup, "find_certificate", lambda results, slug: made[slug])

    head_is(*SLOWER)
    certified_with(DECISION_METHOD)
    assert against_base() == 0
    said = capsys.readouterr().out
    assert "certificate nvidia-h200 (1 card): 0 of 1 A/A suites raised an alarm" in said
    assert "no slow-down was planted; 2 of 3 rows are in it, each in 5 to 7 of its suites" in said
    certified_with("0")
    assert run("--base", "base") == 1
    said = capsys.readouterr().out
    assert f"is of decision method 0, this gate of {DECISION_METHOD}: it does not cover" in said
    certified_with(DECISION_METHOD, arm_time_s=0.3)
    assert run("--base", "base") == 1
    said = capsys.readouterr().out
    assert "was made with 0.3 s per build and launch, this gate takes 0.2 s: it does not" in said
    certified_with(DECISION_METHOD, arm_time_s=0.3)
    assert run("--base", "base", "--arm-time", "0.3") == 0


NOISY = "precision/matmul/n:1/bf16"


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate whose suites left one row inconclusive."""
    one = replace(
        issue([unchanged(0)]),
        rows=(NOISY,),
        unchanged=(UnchangedRow(NOISY, suites=3, inconclusive=2),),
    )
    monkeypatch.setattr(gate_setup, "find_certificate", lambda results, slug: one)


def noisy(log_time: float = 0.0) -> tuple[Json, ...]:
    """Builds in which that row varies by 5 %."""
    bf16: Json = {"noise": {"bf16": 0.05}, "log_time": {"bf16": log_time}}
    return technique(MATMUL, ("fp32", "bf16"), **bf16), technique(GRAPH)


def screened(row: str, folder: Path = Path("evidence")) -> int:
    """Launches of the first stage."""
    arm = row.rpartition("/")[2]
    return sum(one["arm"] == arm for one in read_all(folder / "cases" / "stage1"))


@pytest.mark.usefixtures("certified")
def test_what_suites_left_inconclusive_is_looked_at_once_and_not_counted(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    make_build(Path("base"), noisy())
    head_is(*noisy())
    assert against_base("--github") == 0
    said = capsys.readouterr().out
    assert "3 comparisons: 0 error, 0 regressed, 1 inconclusive, 0 improved, 2 equivalent" in said
    assert (
        "1 inconclusive as in most of their trials on nvidia-h200, looked at once and not"
        " counted: precision/matmul (1); a filter that names them looks longer"
    ) in said
    assert not [line for line in said.splitlines() if line.startswith(("inconclusive", "::"))]
    assert screened(NOISY) == 4
    controls = {one["arm"] for one in read_all(Path("evidence/null"))}
    assert controls == {"fp32", "plain"}
    assert run("--replay", "evidence", "--github") == 0
    assert capsys.readouterr().out == said


@pytest.mark.usefixtures("certified")
@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        (noisy(log_time=0.7), "regressed"),
        (
            (
                technique(MATMUL, ("fp32", "bf16"), outcome="error", reason="SIGSEGV"),
                technique(GRAPH),
            ),
            "error",
        ),
    ],
)
def test_what_suites_left_inconclusive_may_still_regress_and_break(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], head: tuple[Json, ...], verdict: str
) -> None:
    make_build(Path("base"), noisy())
    head_is(*head)
    assert against_base("--json") == 1
    assert verdicts(capsys, 1)[f"{MATMUL}/bf16"] == verdict


@pytest.mark.usefixtures("certified")
@pytest.mark.parametrize(
    ("asked", "usual"),
    [
        (("matmul",), False),
        (("--all",), False),
        (("--", "-launch"), True),
        (("--", "-launch|fp32"), False),  # nothing else is left
        (("--arm-time", "0.3"), False),  # which the certificate does not cover
    ],
)
def test_who_names_what_suites_left_inconclusive_gets_a_longer_look(
    bench: FakeBench, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], usual: bool
) -> None:
    make_build(Path("base"), noisy())
    head_is(*noisy())
    against_base("--json", *asked)
    document = json.loads(capsys.readouterr().out)
    assert document["unsteady"] == ([NOISY] if usual else [])
    assert screened(NOISY) == (4 if usual else 16)
    assert ("are in it, each in 3 of its suites" in document["certificate"]) == (
        "--arm-time" not in asked
    )


@pytest.mark.usefixtures("certified")
def test_the_only_rows_that_can_be_measured_are_looked_at_longer(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = technique(GRAPH, unavailable="needs a library")
    for build in (Path("base"), Path("build")):
        make_build(build, (technique(MATMUL, ("bf16",)), graph))
    against_base("--json")
    assert json.loads(capsys.readouterr().out)["unsteady"] == []


def test_evidence_of_before_unsteady_rows_is_replayed(bench: FakeBench) -> None:
    assert against_base() == 0
    with changed_setup() as document:
        document["schema"] = "1.1"
        del document["setup"]["unsteady"]
    assert run("--replay", "evidence") == 0


def test_explain_shows_every_step(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    head_is(*SLOWER)
    against_base("--explain", "precision/matmul/n:1")
    said = capsys.readouterr().out
    _, rows, path = said.partition("precision/matmul/n:1/bf16: regressed\n  ")
    assert rows
    begins = re.sub(r"\(gpulift:nvidia-h200/\w{12}, evidence/", "(", path).split("\n  ")
    file = "cases/stage1/launch-0000/precision.matmul.jsonl:2"
    assert begins[0].startswith("Comparability: base folder base (abc1234), head this checkout ")
    assert [line[:12] for line in begins[1:3]] == ["Comparabilit"] * 2
    assert begins[3].startswith(
        f"Launch value: screen launch 1, base ({file}): median step 1.00 ms"
    )
    assert begins[4].startswith(f"Launch value: screen launch 1, head ({file}): median step 1.0")
    assert begins[5].startswith("Launch value: screen launch 1: head/base 1.00")
    assert "\n  Paired launches: 4; change 0." in said
    assert "confirmation launch 8: head/base 1.00" in said
    assert "confirmation launch 9" not in said
    assert "precision/matmul/n:1/fp32: equivalent\n" in said
    assert "\nlaunch/cuda_graph" not in said
    explained = [line[2:] for line in said.splitlines() if line.startswith("  ")]
    assert explained
    sections = [line.partition(": ")[0] for line in explained]
    assert sections.count("Family") == 2, "of either row"
    assert not [line for line in explained if not line.startswith(SECTIONS)]


def test_a_replay_refuses_what_it_cannot_explain_before_it_shows_anything(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    head_is(*SLOWER)
    assert against_base() == 1
    capsys.readouterr()
    assert run("--replay", "evidence", "--explain", "glibc", "--junit", "gate.xml") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert not Path("gate.xml").exists()
    assert "there are: launch/cuda_graph/n:1/plain, " in said.err
    assert run("--replay", "evidence", "--explain", "Fp32") == 1
    assert "\nprecision/matmul/n:1/fp32: equivalent\n" in capsys.readouterr().out


def test_github_and_junit(bench: FakeBench, capsys: pytest.CaptureFixture[str]) -> None:
    head_is(*SLOWER)
    assert against_base("--github", "--junit", "gate.xml") == 1
    (command,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("::")]
    assert command.startswith("::error title=gpulift regressed::regressed    precision/matmul/n:1")
    assert "95 %25 interval" in command
    suite = ET.parse("gate.xml").getroot()
    assert suite.get("tests") == "6"
    assert suite.get("failures") == "1"
    (failure,) = suite.iter("failure")
    assert "Gate: confirmation: fresh launches, look at 8" in (failure.text or "")
    assert run("--replay", "evidence", "--junit", "gate.xml") == 1, "its own file it replaces"
    Path("gate.xml").write_text("theirs", encoding="utf-8")
    assert run("--replay", "evidence", "--junit", "gate.xml") == USAGE
    assert "gate.xml: is there already; name another file" in capsys.readouterr().err
    assert Path("gate.xml").read_text(encoding="utf-8") == "theirs"


def limits(content: str) -> str:
    Path("limits.toml").write_text(content, encoding="utf-8")
    return "limits.toml"


def test_a_threshold_per_row_is_kept_in_the_evidence_and_replayed(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    head_is(*SLOWER)
    file = limits('[rows."matmul/.*bf16"]\nleast_change = 0.05\n')
    assert against_base("--thresholds", file, "--json") == 0
    assert verdicts(capsys)[f"{MATMUL}/bf16"] == "equivalent"
    setup = json.loads(Path("evidence/gate.json").read_text())["setup"]
    assert setup["least_changes"] == {f"{MATMUL}/n:1/bf16": 0.05}
    Path(file).unlink()
    assert run("--replay", "evidence", "--json") == 0
    assert verdicts(capsys)[f"{MATMUL}/bf16"] == "equivalent"
    assert run("--replay", "evidence", "--explain", "bf16") == 0
    assert "least change that is called one: 5 % (--thresholds: 5 %)" in capsys.readouterr().out


def test_a_file_of_thresholds_for_no_row_measures_nothing(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert against_base("--thresholds", limits("[rows.fp23]\nleast_change = 0.05\n")) == 2
    assert "--thresholds: 'fp23' matches no row" in capsys.readouterr().err
    assert not Path("evidence").exists()


def test_a_threshold_of_a_row_that_the_filter_leaves_out_is_no_error(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    file = limits("[rows.bf16]\nleast_change = 0.05\n")
    assert against_base(GRAPH, "--thresholds", file) == 0


def test_a_replay_takes_its_thresholds_from_the_evidence(
    bench: FakeBench, capsys: pytest.CaptureFixture[str]
) -> None:
    file = limits("[rows.bf16]\nleast_change = 0.05\n")
    assert run("--replay", "evidence", "--thresholds", file) == 2
    assert "leave out --thresholds" in capsys.readouterr().err
