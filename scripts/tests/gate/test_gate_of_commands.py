"""`gate --base REF -- CMD` in somebody's repository, as a user calls it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.commands import verify_file
from gpulift.commands.old import rewritten
from gpulift.gate import commands, jobs
from gpulift.gate.jobs import Job, JobSide
from gpulift.gate.pairs import Run
from gpulift.gate.processes import run_to_end
from gpulift.ground.errors import FAILED, INCONCLUSIVE, INTERRUPTED, NOT_COMPARABLE, OK, USAGE
from tests.fake_runs import in_this_process
from tests.gate.test_processes import alive
from tests.gate.test_repositories import git

pytestmark = [
    pytest.mark.world,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]
Shown = pytest.CaptureFixture[str]
# A step that takes what `speed` says, as a number that only its run knows, with some noise.
STEP = """
import json, pathlib, random
speed = float(pathlib.Path("speed").read_text()) * random.gauss(1, 0.0005)
print(f"step: {speed:.6f} ms")
print(f"rate: {1 / speed:.6f} it/s")
pathlib.Path("out.json").write_text(json.dumps({"loss": speed}))
"""
GBENCH = """#!/usr/bin/env python3
import json, pathlib, sys
out = next(a for a in sys.argv if a.startswith("--benchmark_out=")).partition("=")[2]
speed = float(pathlib.Path("speed").read_text())
rows = [{"name": "BM_x/8", "run_name": "BM_x/8", "run_type": "iteration", "iterations": 10,
         "repetitions": 1, "repetition_index": 0, "threads": 1, "family_index": 0,
         "per_family_instance_index": 0, "real_time": speed, "cpu_time": speed,
         "time_unit": "ms"}]
document = {"context": {"date": "2026-01-01T00:00:00+00:00"}, "benchmarks": rows}
pathlib.Path(out).write_text(json.dumps(document))
"""
ENTRY = '\nrows += [dict(rows[0], name="BM_new", run_name="BM_new", family_index=1{})]\ndocument ='
TIMED, BROKEN, SKIPS = (
    GBENCH.replace("\ndocument =", ENTRY.format(more))
    for more in ("", ', error_occurred=True, error_message="no memory"', ", skipped=True")
)
PYTEST_JSON = """
import json, pathlib, sys
out = next(a for a in sys.argv if a.startswith("--benchmark-json=")).partition("=")[2]
speed = float(pathlib.Path("speed").read_text())
rows = [{"fullname": "t.py::test_a", "stats": {"median": speed}}]
pathlib.Path(out).write_text(json.dumps({"benchmarks": rows}))
"""
METRIC = r"stdout:step: ([0-9.]+) (?P<unit>\w+)"
RATE = r"stdout:rate: ([0-9.]+)"
BASE = ("--base", "HEAD~1", "--head", "HEAD")
SAME = ("--base", "HEAD", "--head", "HEAD", "--metric", METRIC)
STEPS = ("--base", "HEAD~1", "--metric", METRIC)
RUN = ("--", "python3", "step.py")
BENCH = (*BASE, "--with", "gbench", "--", "bench")


def commit(folder: Path, **files: str) -> None:
    for name, content in files.items():
        file = folder / ("step.py" if name == "step" else name)
        file.write_text(content, "utf-8")
        file.chmod(0o755)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "more")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose head is 5 % slower than the commit before it; scripts run here."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for speed in ("1.0", "1.05"):
        commit(folder, step=STEP, speed=speed)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(commands, "MOST_PAIRS", 1)  # these numbers are quiet
    in_this_process(monkeypatch)
    return folder


def gate(*arguments: str) -> int:
    return cli.main(["gate", *arguments])


def evidence(shown: str) -> str:
    return shown.rpartition("evidence: ")[2].strip()


def test_a_slower_commit_is_found_by_real_processes(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(project.parent / "cache"))
    monkeypatch.setattr(commands, "MOST_PAIRS", 1)
    assert gate(*STEPS, "--higher", RATE, *RUN) == FAILED
    out = capfd.readouterr().out
    assert "head this checkout" in out
    assert "2 rows: 2 regressed" in out
    assert re.search(r"regressed    step: .* ms -> 1\.0[45]\d* ms; head/base 1\.0[45]", out)
    assert re.search(r"regressed    rate: .* -> 0\.9[45]\d*; head/base 0\.9[45]", out)


# --- What is said ---

SLOWED = "python3 -c \"print('step: 1.5 ms')\""


@pytest.mark.parametrize(
    ("commits", "arguments", "code", "said"),
    [
        ([], (*SAME, *RUN), OK, "1 row: 1 equivalent (within 2 %)"),
        ([STEP + "#"], (*STEPS, *RUN), OK, "1 equivalent"),
        ([], (*STEPS, "--threshold", "0.2", *RUN), OK, "1 equivalent"),
        ([], (*STEPS, "--thresholds", "t.toml", *RUN), OK, "1 equivalent"),
        ([], (*SAME, "--plant", SLOWED, *RUN), OK, "step: planted by its command, read 4"),
        ([], (*SAME, "--plant", "python3 step.py", *RUN), 3, "control planted: FAILED"),
        ([], (*STEPS, "--budget", "0.01s", *RUN), USAGE, "is too small: the screen and"),
        ([], (*STEPS, "--metric", "stdout:new: (.*)", *RUN), FAILED, "a run of the base new: "),
        ([], ("--base", "HEAD", "--", "sh", "-c", "echo no GPU >&2; exit 7"), FAILED,
         "a run of the base ended with code 7: no GPU"),
        ([], ("--base", "HEAD", "--", "sh", "no.sh"), USAGE, "error: no.sh: is not in HEAD ("),
        ([], ("--base", "HEAD", "no.py"), USAGE, "error: no.py: there is no such file"),
        ([STEP + 'print("sum: True")', STEP + 'print("sum: False")'],
         (*STEPS, "--same", "stdout:sum: (.*)", *RUN), NOT_COMPARABLE,
         "a run of the head has 'False', the first run of the base 'True' (line 1)"),
    ],
)  # fmt: skip
def test_what_a_gate_of_a_command_says(
    project: Path,
    capfd: Shown,
    commits: Sequence[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    (project / "t.toml").write_text('[rows."step"]\nleast_change = 0.2\n', "utf-8")
    for step in commits:
        commit(project, step=step)
    assert gate(*arguments) == code
    shown = capfd.readouterr()
    assert said in shown.out + shown.err


def test_uncommitted_changes_are_what_is_judged(project: Path, capfd: Shown) -> None:
    (project / "speed").write_text("0.9", "utf-8")
    assert gate("--base", "HEAD", "--metric", METRIC, *RUN) == OK
    out = capfd.readouterr().out
    assert "with uncommitted changes" in out
    assert "1 improved" in out


def test_its_verdict_in_other_forms_and_judged_again(project: Path, capfd: Shown) -> None:
    bmf, junit = project.parent / "bmf.json", project.parent / "junit.xml"
    forms = ("--format", "markdown", "--format", "github", "--format", f"bmf={bmf}")
    folder = str(project.parent / "evidence")
    more = ("--format", f"junit={junit}", "--out", folder)
    assert gate(*STEPS, *forms, *more, *RUN) == FAILED
    out = capfd.readouterr().out
    assert out.startswith("**gpulift gate: ❌ 1 row: 1 regressed**")
    assert re.search(r"\| ❌ regressed \| `step` \| .* ms \| 1\.0[45]\d* ms \| head/base 1\.0", out)
    assert "::error title=gpulift regressed::" in out
    value = json.loads(bmf.read_text("utf-8"))["step"]["ms"]
    assert value["lower_value"] < value["value"] < value["upper_value"]
    assert 'failures="1"' in junit.read_text("utf-8")
    assert "evidence" not in out, "a folder of this machine is nothing for a comment"
    assert gate("--replay", folder, "--format", "json") == FAILED
    document = json.loads(capfd.readouterr().out)
    assert document["mode"] == "commands in turns"
    (row,) = document["rows"]
    assert row["medians"]["head"]["value"] == pytest.approx(1.05, rel=0.01)
    assert gate("--replay", folder, "--explain", "step") == FAILED
    assert "Gate: confirmation: fresh launches, look at 8" in capfd.readouterr().out


def test_two_commits_with_the_same_files_are_said_to_be_so(project: Path, capfd: Shown) -> None:
    git(project, "commit", "--quiet", "--allow-empty", "-m", "nothing")
    for sides in (("--base", "HEAD~1"), ("--base-python", sys.executable, "--head-python",
                                         sys.executable)):  # fmt: skip
        assert gate(*sides, "--metric", METRIC, *RUN) == OK
        out = capfd.readouterr().out.splitlines()
        assert "the same as the base, so that only noise can differ: 1 row" in out[0]


def test_a_certificate_holds_and_is_measured_again(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, later = project.parent / "c.json", project.parent / "later.json"
    asked = (*STEPS, "--certificate", str(file), "--same")
    assert gate(*asked, "step.py", *RUN) == NOT_COMPARABLE
    assert "--same step.py: the first run of the base did not write it" in capfd.readouterr().err
    (project / "speed").write_text("1.1", "utf-8")
    assert gate(*asked, "stdout:(sum): 3", *RUN) == USAGE
    assert "--certificate is of commits: commit the changes" in capfd.readouterr().err
    commit(project, step=STEP + 'print("sum: 3")\n', speed="1.0")
    commit(project, speed="1.05")
    assert gate(*asked, "stdout:sum: (.*)", *RUN) == FAILED
    shown = capfd.readouterr()
    assert f"certificate: {file}" in shown.err
    assert gate("--replay", evidence(shown.out), "--certificate", str(later)) == FAILED
    first, second = (json.loads(one.read_bytes())["says"] for one in (file, later))
    assert first == second

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, cli.main(command[3:]))

    monkeypatch.setattr(verify_file, "run", run)
    assert cli.main(["verify", str(file), "--again"]) == OK
    out = capfd.readouterr().out
    assert "\nsame sign and size\n" in out
    assert "differs: nothing that either tells" in out
    monkeypatch.chdir(project.parent)
    assert cli.main(["verify", str(file), "--again"]) == USAGE
    assert "is in no git repository" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--base", "nothing", *RUN), "'nothing' is no reference of"),
        (("--base", "HEAD", "--metric", "x", *RUN), "--metric 'x': give wall"),
        (("--base", "HEAD", "--threshold", "2", *RUN), "--threshold 2: a fraction"),
        (("--base", "HEAD", "--timeout", "0", *RUN), "--timeout must be more than 0"),
        (("--base", "HEAD", "--filter", "x", *RUN), "--filter: for a gate of gpulift's own"),
        (("--base", "HEAD", "--metric", "wall"), "--metric: for a gate of a command behind --"),
        (("--base", "HEAD", "--same", "x"), "--same: for a gate of a command behind --"),
        (("--base", "HEAD", "--with", "gbench"), "--with: for a gate of a command behind --"),
        (("--base", "HEAD", "--pytest", "b", "--same", "x"), "--same is for a command: this tool"),
        (("--base", "HEAD", "--certificate", "c.json", "--", "/a/b"), "'/a/b' has a path"),
        (("--base", "HEAD", "--pytest", "b", "--metric", "wall"), "says its own numbers"),
        (("--base", "HEAD", "--metric", "wall", "--metric", "wall", *RUN), "are called wall"),
        (("--base", "HEAD", "filter", *RUN), "is one argument too many"),
        (RUN, "name either --base REF"),
        (("--base", "HEAD", "--", "no-such-program"), "cannot be started"),
    ],
)
def test_wrong_calls_are_one_line(
    project: Path, capfd: Shown, arguments: tuple[str, ...], said: str
) -> None:
    assert gate(*arguments) == USAGE
    err = capfd.readouterr().err.strip().splitlines()
    assert said in err[-1]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("--base r -- -input", "--base r -- -input"),
        ("--base r -- cmd -x", "--base r -- <> cmd -x"),
        ("--with gbench -- b -x", "--with gbench -- <> b -x"),
        ("--with=pytest -- -x", "--with=pytest -- <> -x"),
        ("--gbench=b -- -x", "--with gbench -- <> b -x"),
        ("--pytest t --json", "--with pytest --format json -- <> t"),
        ("--github --bmf=f --junit f", "--format github --format bmf=f --format junit=f"),
        ("--base r --", "--base r --"),
    ],
)
def test_what_stands_behind_two_hyphens_and_options_of_before(given: str, made: str) -> None:
    words = [word.replace("<>", "") for word in made.split()]
    assert rewritten(["gate", *given.split()], {}) == ["gate", *words]
    assert rewritten(["watch", "--", "cmd"], {}) == ["watch", "--", "cmd"]


@pytest.mark.parametrize(("seconds", "pairs"), [(0.01, 5), (0.8, 3), (1.0, 3), (2.0, 1), (60, 1)])
def test_a_launch_of_a_short_command_has_several_pairs(seconds: float, pairs: int) -> None:
    assert commands.pairs_of_launch(seconds) == pairs


# --- Of other tools, and other Pythons ---


def test_rows_of_pytest_benchmark(project: Path, capfd: Shown) -> None:
    for speed in ("1.0", "1.05"):
        commit(project, **{"pytest.py": PYTEST_JSON}, speed=speed)
    assert gate("--base", "HEAD~1", "--with", "pytest", "--", "tests") == FAILED
    assert "regressed    t.py::test_a: 1.00 s -> 1.05 s" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("base", "head", "speed", "code", "said"),
    [
        (GBENCH, GBENCH, "1.05", FAILED, "regressed    BM_x/8: 1.00 ms -> 1.05 ms"),
        (TIMED, BROKEN, "1.0", FAILED, "error        BM_new: head: no memory"),
        (TIMED, SKIPS, "1.0", FAILED, "error        BM_new: head skips what the base measures"),
        (BROKEN, TIMED, "1.0", INCONCLUSIVE, "inconclusive BM_new: no base: no memory"),
        (TIMED, GBENCH, "1.0", INCONCLUSIVE, "inconclusive BM_new: only in the base"),
        (SKIPS, TIMED, "1.0", OK, "skipped      BM_new: without a reason"),
        (GBENCH, TIMED, "1.0", OK, "skipped      BM_new: only in the head"),
        (GBENCH, GBENCH.replace('"time_unit"', '"error_occurred": True, "time_unit"'), "1.0",
         FAILED, "error        BM_x/8: head: without a reason"),
        (GBENCH, GBENCH.replace("BM_x", "two"), "1.0", NOT_COMPARABLE, "have no row in common"),
    ],
)  # fmt: skip
def test_a_row_that_one_side_lacks_is_told_and_never_passes(
    project: Path, capfd: Shown, base: str, head: str, speed: str, code: int, said: str
) -> None:
    commit(project, bench=base, speed="1.0")
    commit(project, bench=head, speed=speed)
    assert gate(*BENCH) == code
    shown = capfd.readouterr()
    assert said in shown.out + shown.err


def test_two_pythons_run_the_same_command(project: Path, tmp_path: Path, capfd: Shown) -> None:
    pythons = []
    for name, speed in (("a", "1.0"), ("b", "1.1")):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        answers = '[ "$1" = -c ] && exec python3 "$@"'
        (folder / "python").write_text(f'#!/bin/sh\n{answers}\necho "step: {speed} ms"\n', "utf-8")
        (folder / "python").chmod(0o755)
        pythons.append(str(folder / "python"))
    arguments = ("--base-python", pythons[0], "--head-python", pythons[1], "--metric", METRIC)
    assert gate(*arguments, "--", "python", "any.py") == FAILED
    assert "1 ms -> 1.1 ms" in capfd.readouterr().out


# --- What would fool it ---


def test_base_against_base_that_looks_slower_is_looked_at_again(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first runs of base against base are slower in their second side, as by chance.
    real, runs = jobs.run_once, []

    def run_once(job: Job, side: JobSide, out: Path, left_s: float) -> Run:
        runs.append(out)
        run = real(job, side, out, left_s)
        by_chance = "null/stage1" in out.as_posix() and out.stem == "head"
        return jobs._slowed(run, 0.05) if by_chance else run

    monkeypatch.setattr(jobs, "run_once", run_once)
    assert gate(*SAME, *RUN) == OK
    assert "control null: passed" in capfd.readouterr().out
    assert any("null/stage2" in out.as_posix() for out in runs)


def test_a_run_of_what_is_in_the_checkout_is_not_comparable(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head would be found to be as fast as the base."""
    (project / "lib").mkdir()
    for speed in ("1", "2"):
        (project / "lib" / "own.py").write_text(f"SPEED = {speed}", "utf-8")
        commit(project)
    monkeypatch.setattr(jobs, "run_to_end", run_to_end)
    monkeypatch.setenv("PYTHONPATH", str(project / "lib"))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which ./gpulift sets for itself
    (project / "step.py").write_text(STEP.replace("import json", "import own, json"), "utf-8")
    assert gate(*STEPS, *RUN) == NOT_COMPARABLE
    assert "lib/own.py, which is in your checkout" in capfd.readouterr().err
    assert not list((project.parent / "cache").rglob("launch.json"))


def entries(project: Path) -> list[str]:
    files = (project / ".git").rglob("*")
    return sorted(str(file) for file in files if "objects" not in str(file))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_gate_that_is_killed_leaves_no_entry_in_the_repository(
    project: Path, number: signal.Signals
) -> None:
    before = entries(project)
    running, held = project.parent / "running", project.parent / "held"
    script = f"echo $$ > {running}; exec sleep 5"
    job = [sys.executable, "-m", "gpulift", "gate", "--base", "HEAD~1", "--", "sh", "-c", script]
    command = ["env", "--default-signal=HUP", *job]  # CI may ignore it
    held.mkdir()
    environment = {**os.environ, "TMPDIR": str(held)}
    environment["PYTHONPATH"] = str(Path(cli.__file__).parents[1])
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as gating:
        assert gating.stderr
        assert any("one run of the base" in line for line in gating.stderr)
        while not running.is_file() or not running.read_text("utf-8"):
            time.sleep(0.01)
        gating.send_signal(number)
    if number != signal.SIGKILL:  # which nobody hears
        assert gating.returncode == INTERRUPTED
        assert not alive(running)
        assert not list(held.iterdir())
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert entries(project) == before


@pytest.mark.parametrize(
    ("factor", "folder", "code"),
    [
        ("0.1", "at", NOT_COMPARABLE),
        ("1", "at", OK),
        ("0.1", "at/__pycache__", OK),  # as of numba
        ("0.1", "tagged", OK),
    ],
)
def test_a_run_that_goes_on_from_what_another_left_is_not_comparable(
    project: Path, capfd: Shown, factor: str, folder: str, code: int
) -> None:
    text = (
        f"import os\nos.makedirs('{folder}', exist_ok=True)\n"
        f"factor = {factor} if os.path.exists('{folder}/ckpt') else 1\n"
        f"open('{folder}/ckpt', 'w').close()\nopen('tagged/CACHEDIR.TAG', 'w').close()\n"
    )
    (project / "tagged").mkdir()
    (project / "tagged" / "kept").touch()
    commit(project, step=text + STEP.replace("random.gauss(", "factor * random.gauss("))
    commit(project)
    assert gate(*STEPS, *RUN) == code
    said = capfd.readouterr().err
    other = r"that finds at/ckpt of an earlier one says (9\.9\d|10|10\.\d) times another"
    assert bool(re.search(other, said)) == bool(code)
