"""`gate` against a fake gpulift-bench: verdicts, exit codes, evidence, what goes wrong."""

from __future__ import annotations

import copy
import json
import re
import signal
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import typer

from gpulift.commands.gate import gate
from gpulift.commands.old import rewritten
from gpulift.commands.verify_file import verified
from gpulift.gate import techniques
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
Shown = pytest.CaptureFixture[str]

MATMUL = "precision/matmul"
GRAPH = "launch/cuda_graph"
OF_GRAPH = f"{GRAPH}/n:1/plain"
BF16 = f"{MATMUL}/n:1/bf16"
CLEAN = (technique(MATMUL, ("fp32", "bf16")), technique(GRAPH))
SLOWER = (technique(MATMUL, ("fp32", "bf16"), log_time={"bf16": 0.005}), technique(GRAPH))
SHORT = (technique(MATMUL, ("fp32",)), technique(GRAPH))
SEGV = "ended with signal SIGSEGV"
CRASHES = (SHORT[0], technique(GRAPH, outcome="error", reason=SEGV))
SKIPS = (technique(MATMUL), technique(GRAPH, outcome="skipped", reason="out of memory"))
LACKING = technique(GRAPH, outcome="skipped", reason="no jemalloc", remedy="apt-get install it")
UNBUILT = {"unavailable": "built without LibTorch", "remedy": "./gpulift setup"}
OF_HOST = (technique(MATMUL), technique("allocator/x", gpus=0))
NOT_QUICK = (CLEAN[0], {**CLEAN[1], "cases": [{**CLEAN[1]["cases"][0], "quick": False}]})


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBench:
    made = FakeBench()
    made.install_in(tmp_path, monkeypatch)
    make_build(tmp_path / "base", CLEAN)
    make_build(tmp_path / "build", CLEAN)
    return made


def run(*arguments: str) -> int:
    """The exit code; an error is a line on stderr, as the command line prints it."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(gate)
    try:
        code = app(args=rewritten(["gate", *arguments], {})[1:], standalone_mode=False)
    except GpuliftError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return code if isinstance(code, int) else 0


def against_base(*more: str) -> int:
    return run("--base", "base", "--out", "evidence", *more)


def replayed(capsys: pytest.CaptureFixture[str], code: int) -> Json:
    """The document of a replay."""
    capsys.readouterr()
    assert run("--replay", "evidence", "--format", "json") == code
    document: Json = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    return document


def verdicts(document: Json) -> dict[str, str]:
    return {row["subject"]: row["verdict"] for row in document["rows"]}


def change_setup(**changed: Any) -> None:
    """What gate.json keeps; None takes it away."""
    file = Path("evidence/gate.json")
    document = json.loads(file.read_text())
    setup = {**document["setup"], **changed}
    document["setup"] = {key: value for key, value in setup.items() if value is not None}
    file.write_text(json.dumps(document))


# --- What is said of two builds ---


@dataclass(frozen=True)
class Case:
    """Two builds, what the bench does with them, and what is said; `absent` is said nowhere."""

    name: str
    code: int
    said: Sequence[str]
    base: Sequence[Json] = CLEAN
    head: Sequence[Json] = CLEAN
    tag: str = TAG
    fake: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    absent: Sequence[str] = ()


def both(*techniques: Json) -> dict[str, Any]:
    return {"base": techniques, "head": techniques}


def of_graph(at: int) -> Callable[[str, int], bool]:
    return lambda name, launch: name == GRAPH and launch >= at


CASES = (
    Case(
        "equal",
        0,
        ["3 rows: 3 equivalent", "family of 3: ", "0.5 %", "no certificate for this model",
         "screen: 3 comparisons x 4 launches", "control planted: passed"],
    ),
    Case("slower", 1, [f"regressed    {BF16}: 1000 µs -> 1.00 ms; head/base 1.00", "8 launches"],
         head=SLOWER),
    Case("crash", 1, [f"error        {OF_GRAPH}: head: {SEGV}",
                      "base against a copy of itself in 1 that broke: is it the head?"],
         base=SHORT, head=CRASHES),
    Case("crash in turns", 1, [f"error        {OF_GRAPH}: head: {SEGV}"],
         base=SHORT, head=CRASHES, tag="another"),
    Case("base breaks", 5, [f"inconclusive {OF_GRAPH}: no base", SEGV], base=CRASHES, head=SHORT),
    Case("base breaks in turns", 5, [f"inconclusive {OF_GRAPH}: no base", SEGV], base=CRASHES,
         head=SHORT, tag="another"),
    Case("hardware", 3,
         [f"inconclusive {OF_GRAPH}: slowed down in 1 of 2 launches",
          "control hardware: FAILED: the hardware slowed itself down in every block of a"],
         fake={"slowed": of_graph(1)}, absent=["control null, "]),
    Case("unlike", 5,
         [f"{OF_GRAPH}: not timed alike in 2 of 2 launches: base queued behind the hold, head"
          " waiting for the host", "1 inconclusive, 2 equivalent"],
         head=(CLEAN[0], technique(GRAPH, log_time={"plain": 0.1})),
         fake={"unlike": of_graph(0)}),
    Case("skipped", 0, [": out of memory\n"], **both(*SKIPS)),
    Case("all skipped", 77, [": out of memory\n"], options=("cuda_graph",), **both(*SKIPS)),
    Case("no GPU", 0, ["1 equivalent, 1 skipped",
                       "planted slow-down found: allocator/x/n:1/plain: planted 1 %, read "],
         fake={"context": sample.CPU_CONTEXT}, **both(*OF_HOST)),
    Case("no GPU, nothing", 77,
         [": no NVIDIA driver on this machine; install the NVIDIA driver, version 580 or later\n",
          "model/x/n:1/plain: built without LibTorch; ./gpulift setup\n"],
         fake={"context": sample.CPU_CONTEXT}, **both(*CLEAN, technique("model/x", **UNBUILT))),
    Case("remedy", 77, [": no jemalloc; apt-get install it"], **both(LACKING)),
    Case("remedy in turns", 77, [": no jemalloc; apt-get install it"], tag="another",
         **both(LACKING)),
    Case("quick in the base", 0, ["3 equivalent"], head=NOT_QUICK),
    Case("quick in the head", 0, ["3 equivalent"], base=NOT_QUICK),
    Case("quick in none", 0, ["2 equivalent"], **both(*NOT_QUICK)),
    Case("all cases", 0, ["3 equivalent"], options=("--all",), **both(*NOT_QUICK)),
    Case("biased", 3, ["control null: FAILED", "alarm: regressed",
                       "control null failed, so nothing is confirmed"], fake={"bias": 0.005}),
    Case("blind", 3, ["planted 1 %, not found: equivalent", "not confirmed: a control failed",
                      "control planted failed, so nothing is confirmed",
                      "bf16: 1000 µs -> 1.00 ms; head/base 1.00"],
         head=SLOWER, fake={"felt": 0.0}),
    Case("noisy", 5, ["control planted: passed"], fake={"noise": 0.05}),
    Case("missing", 3, [f"missing: {OF_GRAPH} (2 of 4 launches)"],
         fake={"drop": lambda name, launch: name == GRAPH and launch == 1}),
    Case("nothing", 3, ["n:1/plain (0 of 4 launches)"],
         fake={"exit_codes": dict.fromkeys(range(1, 100), 1)}),
    Case("nothing in turns", 3, ["n:1/plain (0 of 4 launches)"], tag="another",
         fake={"exit_codes": dict.fromkeys(range(1, 100), 1)}),
    Case("other headers", 1, ["regressed ", "; alternating processes: less sharp"], head=SLOWER,
         tag="another"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_gate_says_it_says_again_of_its_evidence(
    bench: FakeBench, capsys: Shown, case: Case
) -> None:
    make_build(Path("base"), case.base)
    make_build(Path("build"), case.head, tag=case.tag)
    for name, value in case.fake.items():
        setattr(bench, name, value)
    assert against_base(*case.options) == case.code
    shown = capsys.readouterr()
    for words in case.said:
        assert words in shown.out + shown.err
    assert not [words for words in case.absent if words in shown.out + shown.err]
    calls = len(bench.calls)
    assert run("--replay", "evidence") == case.code
    assert capsys.readouterr().out == shown.out
    assert replayed(capsys, case.code)["mode"] == (
        "duet" if case.tag == TAG else "alternating processes"
    )
    assert len(bench.calls) == calls


def test_what_is_flagged_alone_is_confirmed_and_by_fresh_launches(bench: FakeBench) -> None:
    make_build(Path("build"), SLOWER)
    assert against_base() == 1
    first, second = (read_all(Path(f"evidence/cases/stage{stage}")) for stage in (1, 2))
    assert {record["arm"] for record in second} == {"bf16"}
    assert len(second) == 8
    assert first[0]["order"]["seed"] != second[0]["order"]["seed"]


def test_what_breaks_in_both_is_asked_of_the_base_alone(bench: FakeBench) -> None:
    make_build(Path("base"), SHORT)
    make_build(Path("build"), CRASHES)
    assert against_base() == 1
    sides = [word for word in bench.calls[-1] if word.endswith("base/modules")]
    here = f"{Path.cwd()}/"
    assert {word.replace(here, "") for word in sides} == {
        "--base=base/modules",
        "--head=base/modules",
    }
    assert {record["technique"] for record in read_all(Path("evidence/alone"))} == {GRAPH}
    crashed = read_all(Path("evidence/cases/stage1"))
    assert len([one for one in crashed if one["technique"] == GRAPH]) == 1


def test_processes_take_turns_and_where_only_large_changes_are_seen_a_large_one_is_planted(
    bench: FakeBench, capsys: Shown
) -> None:
    make_build(Path("build"), CLEAN, tag="another")
    bench.noise = 0.05
    assert against_base() == 5
    (size,) = re.findall(r"control planted, (\S+) % slower on purpose", capsys.readouterr().err)
    assert 10 < float(size) < 100
    first = [call[0].split("/")[-2] for call in bench.calls[:8]]
    assert first == ["base", "build", "build", "base", "build", "base", "base", "build"]


def test_its_certificate_holds(bench: FakeBench) -> None:
    make_build(Path("build"), SLOWER)
    assert against_base("--certificate", "c.json") == 1
    found = verified(Path("c.json"))
    assert not found.problems
    assert [row.verdict for row in found.rows] == ["regressed", "equivalent", "equivalent"]
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


# --- What is refused ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "soon"), "give a time above 0"),
        (("--budget", "10"), "give a time above 0"),
        (("--budget", "0m"), "give a time above 0"),
        (("--budget", "10s"), "need about 24 s by the planned times"),  # 3 rows, 4 of controls
        (("--arm-time", "0"), "--arm-time must be more than 0"),
        (("--arm-time", "inf"), "--arm-time must be more than 0 and finite, not inf"),
        (("nothing-like-it",), "no case matches the filter"),
        (("precision(",), "'precision(' is not a regular expression"),
        (("--explain", "no/such"), "no row of the comparison holds 'no/such'"),
        (("--format", "junit=no/such/file.xml"), "no such folder"),
        (("--format", "html"), "--format knows lines, json, "),
        (("--with", "make"), "--with knows command, "),
        (("--replay", "evidence"), "measures nothing: leave out --base, --out"),
        (("--format", "json", "--format", "github"), "--format json stands alone"),
        (("--format", "lines", "--format", "markdown"), "--format lines stands alone"),
        (("--json", "--explain", MATMUL), "--explain is for lines"),
        (("--thresholds", "limits.toml"), "--thresholds: 'fp23' matches no row"),
        (("--head", "nothere"), "no build folder either"),
        (("--metric", "wall"), "--metric: for a gate of a command behind --"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(
    bench: FakeBench, capsys: Shown, arguments: tuple[str, ...], words: str
) -> None:
    Path("limits.toml").write_text("[rows.fp23]\nleast_change = 0.05\n")
    assert against_base(*arguments) == 2
    assert words in capsys.readouterr().err
    assert bench.calls == []
    assert not Path("evidence").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name either --base REF"),
        (("--base", "base", "--out", "base"), "--out base: is there already"),
        (("--base", "base", "--out", "file/evidence"), "cannot be written"),
        (("--replay", "nowhere"), "no evidence of a gate"),
        (("--replay", "x", "matmul"), "leave out the filter"),
        (("--replay", "x", "--head", "build"), "leave out --head"),
        (("--replay", "x", "--all"), "leave out --all"),
        (("--replay", "x", "--budget", "300s"), "leave out --budget"),
        (("--replay", "x", "--out", "other"), "leave out --out"),
        (("--replay", "x", "--seed", "1"), "leave out --seed"),
        (("--replay", "x", "--gpu", "0"), "leave out --gpu"),
        (("--replay", "x", "--arm-time", "0.2"), "leave out --arm-time"),
        (("--replay", "x", "--thresholds", "limits.toml"), "leave out --thresholds"),
    ],
)
def test_what_does_not_fit_is_refused(
    bench: FakeBench, capsys: Shown, arguments: tuple[str, ...], words: str
) -> None:
    Path("limits.toml").write_text("[rows.bf16]\nleast_change = 0.05\n")
    Path("file").touch()
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err
    assert bench.calls == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"least": -0.5}, "setup.least must be float > 0"),
        ({"least": None}, "setup.least is missing"),
        ({"equivalent": 50}, "setup.equivalent must be float < 1"),
        ({"planted_size": -0.1}, "setup.planted_size must be float >= 0"),
        ({"floors": {OF_GRAPH: -2}}, f"floors.{OF_GRAPH} must be float >= 0"),
        ({"null_rows": [{"technique": "x", "case_id": "y", "arm": "z"}]}, "must be among the rows"),
        (
            {"rows": [{"technique": GRAPH, "case_id": "n:1", "arm": "plain"}] * 2},
            f"setup.rows names {OF_GRAPH} more than once",
        ),
        (
            {"unsteady": [{"technique": GRAPH, "case_id": "n:2", "arm": "plain"}]},
            "setup.unsteady must be among the rows",
        ),
        ({"method": "0"}, "decision method 0"),
    ],
)
def test_a_replay_names_a_field_of_the_set_up_that_no_gate_writes(
    bench: FakeBench, capsys: Shown, changed: Json, words: str
) -> None:
    assert against_base() == 0
    change_setup(**changed)
    assert run("--replay", "evidence") == (4 if "method" in changed else 2)
    assert words in capsys.readouterr().err


def test_a_replay_reads_what_older_gates_kept_and_refuses_other_schemas(bench: FakeBench) -> None:
    assert against_base() == 0
    change_setup(unsteady=None)
    assert run("--replay", "evidence") == 0
    Path("evidence/gate.json").write_text('{"schema": "2.0"}')
    assert run("--replay", "evidence") == 2


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "words"),
    [
        ("planted/stage1/launch-0000/precision.matmul.jsonl", '"planted": "0.01"',
         '"planted": "much"', 2, "{file}:1: notes.planted must be a number, not 'much'"),
        ("null/stage1/launch-0000/launch.cuda_graph.jsonl", '"card": "1a2b3c4d"',
         '"card": "deadbeef"', 4, "to deadbeef at {file}:1"),
    ],
)  # fmt: skip
def test_a_replay_refuses_records_that_no_gate_left(
    bench: FakeBench, capsys: Shown, file: str, old: str, new: str, code: int, words: str
) -> None:
    assert against_base() == 0
    changed = Path("evidence") / file
    changed.write_text(changed.read_text().replace(old, new))
    assert run("--replay", "evidence") == code
    assert words.format(file=changed) in capsys.readouterr().err


def test_a_card_that_changes_while_a_gate_measures_is_refused(
    bench: FakeBench, capsys: Shown
) -> None:
    def change() -> None:
        if len(bench.calls) > 1:
            bench.context = copy.deepcopy(bench.context)
            bench.context["gpu"]["card"] = "deadbeef"

    bench.on_call = change
    assert against_base() == 4
    assert "gpu.card changed in the midst of the gate, from 1a2b3c4d" in capsys.readouterr().err


def in_build(**facts: str) -> Json:
    """The context of a build that has other facts."""
    return {**sample.GPU_CONTEXT, "build": {**sample.BUILD, **facts}}


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (
            in_build(type="Debug", compiler="Clang 19", commit="fedcba9"),
            "build.compiler (Clang 19 in base, GNU 12.2.0 in head), build.type (Debug in base,",
        ),
        (
            {**sample.GPU_CONTEXT, "versions": {"cublaslt": "12.8"}, "cuda_runtime": "12.8"},
            "cuda_runtime (12.8 in base, 13.0 in head), libraries.cublaslt (12.8",
        ),
        (in_build(commit="fedcba9"), ""),
    ],
)
def test_builds_that_differ_in_more_than_the_commit_are_refused(
    bench: FakeBench, capsys: Shown, context: Json, said: str
) -> None:
    bench.contexts = {"base": context}
    assert against_base() == (4 if said else 0)
    err = capsys.readouterr().err
    assert said in err
    assert "build.commit" not in err
    assert not (said and bench.calls)


def test_a_case_that_one_side_lacks_is_not_comparable(bench: FakeBench, capsys: Shown) -> None:
    make_build(Path("build"), (*CLEAN, technique("transfer/new")))
    assert against_base() == 4
    assert "only in the head: transfer/new/n:1/plain" in capsys.readouterr().err
    assert against_base("--", "-transfer") == 0


# --- How it ends ---


def test_an_interrupt_keeps_the_evidence(bench: FakeBench, capsys: Shown) -> None:
    bench.exit_codes = {2: 130}
    assert against_base() == 130
    assert "what was measured is kept in evidence" in capsys.readouterr().err
    assert read_all(Path("evidence/cases/stage1"))
    assert run("--replay", "evidence") == 5
    said = capsys.readouterr().out
    assert "the gate was broken off: the last launches that were kept are of the screen" in said
    assert "2 of 4 launches" in said
    assert "result" not in json.loads(Path("evidence/gate.json").read_text())


def test_a_budget_that_slow_rows_use_up_breaks_the_gate_off(
    bench: FakeBench, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.row_launch_s = 40.0

    def fake_time(limit_s: float | None, planned_s: float, used_s: float) -> Budget:
        return Budget(limit_s, planned_s, lambda: bench.now_s)

    monkeypatch.setattr(techniques, "Budget", fake_time)
    assert against_base("--budget", "90s") == 5
    said = "the budget of 90 s broke the gate off: what was measured is kept in evidence"
    assert said in capsys.readouterr().err
    document = replayed(capsys, 5)
    assert document["counts"]["inconclusive"] == 3
    assert "by its budget" in document["controls"][0]["said"]
    assert "result" not in json.loads(Path("evidence/gate.json").read_text())
    assert len(read_all(Path("evidence"))) == 2


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
    bench: FakeBench, capsys: Shown, ended: int, code: int, words: str
) -> None:
    bench.exit_codes = {1: ended}
    assert against_base() == code
    assert words in capsys.readouterr().err


def test_a_budget_that_the_builds_ate_says_so(
    bench: FakeBench, capsys: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def slow_build(reference: str, gpu: int | None, say: Say, until_s: float | None) -> Build:
        now_s[0] += 280.0
        return find_build(reference, gpu, say)

    monkeypatch.setattr(techniques, "find_build", slow_build)
    assert against_base("--budget", "300s") == 2
    said = capsys.readouterr().err
    assert "need about 304 s by the planned times, 280 s of which went into builds" in said
    assert bench.calls == []
    assert against_base("--budget", "320s") == 0


def test_evidence_goes_to_a_new_folder_each_time_and_none_is_left_of_what_is_refused(
    bench: FakeBench,
) -> None:
    assert run("--base", "base", "--budget", "10s") == 2
    assert not list(Path(".gate/runs").iterdir())
    for _ in range(2):
        assert run("--base", "base") == 0
    first, second = sorted(Path(".gate/runs").iterdir())
    assert first.name.endswith("-abc1234-abc1234")
    assert second.name == f"{first.name}-2"


# --- What a certificate of the machine says ---


@pytest.mark.parametrize(
    ("changes", "options", "code", "said"),
    [
        (
            {},
            (),
            0,
            "certificate nvidia-h200 (1 card): 0 of 1 A/A suites raised an alarm (95 % bound 95.0"
            " %); no slow-down was planted; 2 of 3 rows are in it, each in 5 to 7 of its suites",
        ),
        ({"method": "0"}, (), 1, f"of decision method 0, this gate of {DECISION_METHOD}: it does"),
        (
            {"arm_time_s": 0.3},
            (),
            1,
            "was made with 0.3 s per build and launch, this gate takes 0.2 s: it does not",
        ),
        ({"arm_time_s": 0.3}, ("--arm-time", "0.3"), 0, "2 of 3 rows are in it"),
    ],
)
def test_a_certificate_raises_the_margins(
    bench: FakeBench,
    capsys: Shown,
    monkeypatch: pytest.MonkeyPatch,
    changes: Json,
    options: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    other = f"{MATMUL}/n:1/fp32"
    made = replace(
        issue([unchanged(0)]),
        floors={BF16: 0.01},
        rows=(BF16, other),
        unchanged=(UnchangedRow(BF16, 5, 1), UnchangedRow(other, 7, 0)),
        **{"method": DECISION_METHOD, "arm_time_s": ARM_TIME_S, **changes},
    )
    monkeypatch.setattr(techniques, "find_certificate", lambda results, slug: made)
    make_build(Path("build"), SLOWER)
    assert against_base(*options) == code
    assert said in capsys.readouterr().out


@pytest.fixture
def certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate whose suites left one row inconclusive."""
    unsteady = UnchangedRow(BF16, suites=3, inconclusive=2)
    one = replace(issue([unchanged(0)]), rows=(BF16,), unchanged=(unsteady,))
    monkeypatch.setattr(techniques, "find_certificate", lambda results, slug: one)


def noisy(log_time: float = 0.0) -> tuple[Json, ...]:
    """Builds in which that row varies by 5 %."""
    bf16: Json = {"noise": {"bf16": 0.05}, "log_time": {"bf16": log_time}}
    return technique(MATMUL, ("fp32", "bf16"), **bf16), technique(GRAPH)


BROKEN = (technique(MATMUL, ("fp32", "bf16"), outcome="error", reason=SEGV), technique(GRAPH))


@pytest.mark.usefixtures("certified")
def test_what_suites_left_inconclusive_is_looked_at_once_and_not_counted(
    bench: FakeBench, capsys: Shown
) -> None:
    for build in ("base", "build"):
        make_build(Path(build), noisy())
    assert against_base("--format", "github") == 0
    said = capsys.readouterr().out
    assert "3 rows: 1 inconclusive, 2 equivalent" in said
    assert (
        "1 inconclusive as in most of their trials on nvidia-h200, looked at once and not"
        " counted: precision/matmul (1); a filter that names them looks longer"
    ) in said
    assert not [line for line in said.splitlines() if line.startswith("::")]
    assert {one["arm"] for one in read_all(Path("evidence/null"))} == {"fp32", "plain"}


@pytest.mark.usefixtures("certified")
@pytest.mark.parametrize(
    ("head", "verdict"), [(noisy(log_time=0.7), "regressed"), (BROKEN, "error")]
)
def test_what_suites_left_inconclusive_may_still_regress_and_break(
    bench: FakeBench, capsys: Shown, head: tuple[Json, ...], verdict: str
) -> None:
    make_build(Path("base"), noisy())
    make_build(Path("build"), head)
    assert against_base() == 1
    assert verdicts(replayed(capsys, 1))[BF16] == verdict


@pytest.mark.usefixtures("certified")
@pytest.mark.parametrize(
    ("options", "rows", "usual"),
    [
        ((), noisy(), True),
        (("matmul",), noisy(), False),
        (("--all",), noisy(), False),
        (("--", "-launch"), noisy(), True),
        (("--", "-launch|fp32"), noisy(), False),  # nothing else is left
        (("--arm-time", "0.3"), noisy(), False),  # which the certificate does not cover
        ((), (noisy()[0] | {"arms": ["bf16"]}, technique(GRAPH, unavailable="no")), False),
    ],
)
def test_who_names_what_suites_left_inconclusive_gets_a_longer_look(
    bench: FakeBench, capsys: Shown, options: tuple[str, ...], rows: Sequence[Json], usual: bool
) -> None:
    for build in ("base", "build"):
        make_build(Path(build), rows)
    code = against_base(*options)
    document = replayed(capsys, code)
    assert document["unsteady"] == ([BF16] if usual else [])
    screened = [one for one in read_all(Path("evidence/cases/stage1")) if one["arm"] == "bf16"]
    assert len(screened) == (4 if usual else 16)
    covered = "are in it, each in 3 of its suites" in document["certificate"]
    assert covered == ("--arm-time" not in options)


# --- How it is shown ---


def test_explain_shows_every_step(bench: FakeBench, capsys: Shown) -> None:
    make_build(Path("build"), SLOWER)
    against_base("--explain", f"{MATMUL}/n:1")
    said = capsys.readouterr().out
    _, rows, path = said.partition(f"{BF16}: regressed\n  ")
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
    assert f"{MATMUL}/n:1/fp32: equivalent\n" in said
    assert f"\n{GRAPH}" not in said
    explained = [line[2:] for line in said.splitlines() if line.startswith("  ")]
    sections = [line.partition(": ")[0] for line in explained]
    assert sections.count("Family") == 2, "of either row"
    assert not [line for line in explained if not line.startswith(SECTIONS)]


def test_what_cannot_be_explained_is_refused_before_anything_is_shown(
    bench: FakeBench, capsys: Shown
) -> None:
    assert against_base() == 0
    capsys.readouterr()
    junit = ("--format", "junit=gate.xml")
    assert run("--replay", "evidence", "--explain", "glibc", *junit) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert not Path("gate.xml").exists()
    assert f"there are: {OF_GRAPH}, " in said.err
    assert run("--replay", "evidence", "--explain", "Fp32") == 0
    assert f"\n{MATMUL}/n:1/fp32: equivalent\n" in capsys.readouterr().out


def test_forms_are_called_as_before_for_a_release(bench: FakeBench, capsys: Shown) -> None:
    make_build(Path("build"), SLOWER)
    assert against_base("--github", "--junit", "gate.xml") == 1
    said = capsys.readouterr()
    assert "--github is called --format github now" in said.err
    assert "--junit is called --format junit=gate.xml now" in said.err
    (command,) = [x for x in said.out.splitlines() if x.startswith("::")]
    assert command.startswith(f"::error title=gpulift regressed::regressed    {MATMUL}/n:1")
    assert "95 %25 interval" in command
    suite = ET.parse("gate.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    (failure,) = suite.iter("failure")
    assert "Gate: confirmation: fresh launches, look at 8" in (failure.text or "")
    assert run("--replay", "evidence", "--junit=gate.xml") == 1, "its own file it replaces"
    Path("gate.xml").write_text("theirs", encoding="utf-8")
    assert run("--replay", "evidence", "--junit", "gate.xml") == USAGE
    assert "gate.xml: is there already; name another file" in capsys.readouterr().err
    assert Path("gate.xml").read_text(encoding="utf-8") == "theirs"


def test_a_threshold_per_row_is_kept_in_the_evidence_and_replayed(
    bench: FakeBench, capsys: Shown
) -> None:
    make_build(Path("build"), SLOWER)
    file = Path("limits.toml")
    file.write_text('[rows."matmul/.*bf16"]\nleast_change = 0.05\n', encoding="utf-8")
    assert run(GRAPH, "--base", "base", "--thresholds", str(file)) == 0, "of a row left out"
    assert against_base("--thresholds", str(file)) == 0
    setup = json.loads(Path("evidence/gate.json").read_text())["setup"]
    assert setup["least_changes"] == {BF16: 0.05}
    file.unlink()
    assert verdicts(replayed(capsys, 0))[BF16] == "equivalent"
    assert run("--replay", "evidence", "--explain", "bf16") == 0
    assert "least change that is called one: 5 % (--thresholds: 5 %)" in capsys.readouterr().out
