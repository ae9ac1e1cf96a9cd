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
from pathlib import Path

import pytest

from gpulift import cli
from gpulift.commands import gate_jobs, gate_options, verify_file
from gpulift.gate import jobs
from gpulift.gate.jobs import Job, JobSide
from gpulift.gate.pairs import Run
from gpulift.ground.errors import FAILED, INCONCLUSIVE, INTERRUPTED, NOT_COMPARABLE, OK, USAGE
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
json.dump({"loss": speed}, open("out.json", "w"))
"""
METRIC = r"stdout:step: ([0-9.]+) (?P<unit>\w+)"
RATE = r"stdout:rate: ([0-9.]+)"
RUN = ("--", "python3", "step.py")


def in_two_commits(folder: Path) -> None:
    for speed in ("1.0", "1.05"):
        (folder / "speed").write_text(speed, "utf-8")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", speed)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose head is 5 % slower than the commit before it."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "step.py").write_text(STEP, "utf-8")
    in_two_commits(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gate_jobs, "MOST_PAIRS", 1)  # these numbers are quiet
    return folder


def gate(*arguments: str) -> int:
    return cli.main(["gate", *arguments])


def evidence(shown: str) -> str:
    return shown.rpartition("evidence: ")[2].strip()


def test_a_slower_commit_is_found_and_the_same_one_passes(project: Path, capfd: Shown) -> None:
    assert gate("--base", "HEAD~1", "--metric", METRIC, "--higher", RATE, *RUN) == FAILED
    out = capfd.readouterr().out
    assert "head this checkout" in out
    assert "2 rows: 2 regressed" in out
    assert re.search(r"regressed    step: .* ms -> 1\.0[45]\d* ms, head / base 1\.0[45]", out)
    assert re.search(r"regressed    rate: .* -> 0\.9[45]\d*, head / base 0\.9[45]", out)
    assert gate("--base", "HEAD", "--head", "HEAD", "--metric", METRIC, *RUN) == OK
    assert "1 row: 1 equivalent (within 2 %)" in capfd.readouterr().out


def test_uncommitted_changes_are_what_is_judged(project: Path, capfd: Shown) -> None:
    (project / "speed").write_text("0.9", "utf-8")
    assert gate("--base", "HEAD", "--metric", METRIC, *RUN) == OK
    out = capfd.readouterr().out
    assert "with uncommitted changes" in out
    assert "1 improved" in out


def test_its_verdict_in_the_formats_of_others(project: Path, capfd: Shown) -> None:
    bmf, junit = project.parent / "bmf.json", project.parent / "junit.xml"
    outputs = ("--markdown", "--github", "--bmf", str(bmf), "--junit", str(junit))
    assert gate("--base", "HEAD~1", "--metric", METRIC, *outputs, *RUN) == FAILED
    out = capfd.readouterr().out
    assert out.startswith("**gpulift gate: 1 row: 1 regressed**")
    assert re.search(r"\| `step` \| .* ms \| 1\.0[45]\d* ms \| 1\.0", out)
    assert "::error title=gpulift regressed::" in out
    value = json.loads(bmf.read_text("utf-8"))["step"]["ms"]
    assert value["lower_value"] < value["value"] < value["upper_value"]
    assert 'failures="1"' in junit.read_text("utf-8")


def test_what_was_measured_is_judged_again(project: Path, capfd: Shown) -> None:
    assert gate("--base", "HEAD~1", "--metric", "out.json:loss", *RUN) == FAILED
    first = capfd.readouterr().out
    assert gate("--replay", evidence(first)) == FAILED
    assert capfd.readouterr().out == first
    assert gate("--replay", evidence(first), "--json") == FAILED
    document = json.loads(capfd.readouterr().out)
    assert document["mode"] == "commands in turns"
    (row,) = document["rows"]
    assert row["medians"]["head"]["value"] == pytest.approx(1.05, rel=0.01)


def test_a_slow_down_that_a_command_plants_is_found(project: Path, capfd: Shown) -> None:
    slowed = "python3 -c \"print('step: 1.5 ms')\""
    arguments = ("--base", "HEAD", "--head", "HEAD", "--metric", METRIC, "--plant")
    assert gate(*arguments, slowed, *RUN) == OK
    assert "step: planted by its command, read 4" in capfd.readouterr().out
    assert gate(*arguments, "python3 step.py", *RUN) == 3
    assert "control planted: FAILED" in capfd.readouterr().out


def test_a_metric_that_the_base_does_not_say_ends_it(project: Path, capfd: Shown) -> None:
    (project / "step.py").write_text(STEP + 'print("new: 1.0")\n', "utf-8")
    new = "stdout:new: (.*)"
    assert gate("--base", "HEAD", "--metric", METRIC, "--metric", new, *RUN) == FAILED
    assert "a run of the base new: " in capfd.readouterr().err


def test_a_least_change_that_is_larger_than_the_change_passes(project: Path, capfd: Shown) -> None:
    arguments = ("--base", "HEAD~1", "--metric", METRIC)
    assert gate(*arguments, "--threshold", "0.2", *RUN) == OK
    assert "1 equivalent" in capfd.readouterr().out
    thresholds = project.parent / "t.toml"
    thresholds.write_text('[rows."step"]\nleast_change = 0.2\n', "utf-8")
    assert gate(*arguments, "--thresholds", str(thresholds), *RUN) == OK


def test_a_certificate_holds_and_is_measured_again(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project.parent / "c.json"
    asked = ("--base", "HEAD~1", "--metric", METRIC, "--same", "step.py", "--certificate")
    assert gate(*asked, str(file), *RUN) == NOT_COMPARABLE
    assert "--same step.py: the first run of the base did not write it" in capfd.readouterr().err
    (project / "step.py").write_text(STEP + 'print("sum: 3")\n', "utf-8")
    in_two_commits(project)
    equal = ("--same", "stdout:sum: (.*)", "--certificate", str(file))
    assert gate(*asked[:4], *equal, *RUN) == FAILED
    shown = capfd.readouterr()
    assert f"certificate: {file}" in shown.err
    later = project.parent / "later.json"
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


def test_a_head_that_computes_something_else_is_not_comparable(project: Path, capfd: Shown) -> None:
    (project / "step.py").write_text(STEP + 'print("sum:", speed > 1.02)\n', "utf-8")
    in_two_commits(project)
    asked = ("--base", "HEAD~1", "--metric", METRIC, "--same", "stdout:sum: (.*)")
    assert gate(*asked, *RUN) == NOT_COMPARABLE
    said = "a run of the head has 'True', the first run of the base 'False' (line 1)"
    assert said in capfd.readouterr().err


def test_a_budget_that_is_too_small_says_what_is_needed(project: Path, capfd: Shown) -> None:
    assert gate("--base", "HEAD~1", "--budget", "0.5s", "--metric", METRIC, *RUN) == USAGE
    assert "is too small: the screen and the controls alone need about" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--base", "nothing", *RUN), "'nothing' is no reference of"),
        (("--base", "HEAD", "--metric", "x", *RUN), "--metric 'x': give wall"),
        (("--base", "HEAD", "--threshold", "2", *RUN), "--threshold 2: a fraction"),
        (("--base", "HEAD", "--filter", "x", *RUN), "--filter: for a gate of gpulift's own"),
        (("--base", "HEAD", "--metric", "wall"), "--metric: for a gate of a command behind --"),
        (("--base", "HEAD", "--same", "x"), "--same: for a gate of a command behind --"),
        (("--base", "HEAD", "--pytest", "b", "--same", "x"), "--same is for a command behind --"),
        (
            ("--base", "HEAD", "--certificate", "c.json", "--", "/a/b"),
            "'/a/b' has a path",
        ),
        (("--base", "HEAD", "--gbench", "a", "--pytest", "b"), "give one of --gbench"),
        (("--base", "HEAD", "--pytest", "b", "--metric", "wall"), "say their own numbers"),
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


def test_a_command_that_fails_at_once_ends_it(project: Path, capfd: Shown) -> None:
    assert gate("--base", "HEAD", "--", "sh", "-c", "echo no GPU >&2; exit 7") == FAILED
    assert "a run of the base ended with code 7: no GPU" in capfd.readouterr().err


PYTEST_JSON = """
import json, pathlib, sys
out = next(a for a in sys.argv if a.startswith("--benchmark-json=")).partition("=")[2]
speed = float(pathlib.Path("speed").read_text())
rows = [{"fullname": "t.py::test_a", "stats": {"median": speed}}]
json.dump({"benchmarks": rows}, open(out, "w"))
"""
GBENCH = """#!/usr/bin/env python3
import json, pathlib, sys
out = next(a for a in sys.argv if a.startswith("--benchmark_out=")).partition("=")[2]
speed = float(pathlib.Path("speed").read_text())
rows = [{"name": "BM_x/8", "run_name": "BM_x/8", "run_type": "iteration", "iterations": 10,
         "repetitions": 1, "repetition_index": 0, "threads": 1, "family_index": 0,
         "per_family_instance_index": 0, "real_time": speed, "cpu_time": speed,
         "time_unit": "ms"}]
json.dump({"context": {"date": "2026-01-01T00:00:00+00:00"}, "benchmarks": rows}, open(out, "w"))
"""


def test_rows_of_pytest_benchmark(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = project.parent / "bin"
    fake.mkdir()
    (fake / "fake_pytest.py").write_text(PYTEST_JSON, "utf-8")
    (fake / "python").write_text(f'#!/bin/sh\nexec python3 "{fake}/fake_pytest.py" "$@"\n')
    (fake / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    assert gate("--base", "HEAD~1", "--pytest", "tests") == FAILED
    assert "regressed    t.py::test_a: 1.00 s -> 1.05 s" in capfd.readouterr().out


def test_rows_of_google_benchmark(project: Path, capfd: Shown) -> None:
    for reference, speed in (("one", "1.0"), ("two", "1.05")):
        (project / "bench").write_text(GBENCH, "utf-8")
        (project / "bench").chmod(0o755)
        (project / "speed").write_text(speed, "utf-8")
        git(project, "add", ".")
        git(project, "commit", "--quiet", "-m", reference)
    assert gate("--base", "HEAD~1", "--head", "HEAD", "--gbench", "bench") == FAILED
    out = capfd.readouterr().out
    assert "1 regressed" in out
    assert "1.00 ms -> 1.05 ms" in out


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
    assert gate(*arguments, "--", "python", "step.py") == FAILED
    assert "1 ms -> 1.1 ms" in capfd.readouterr().out


def test_sides_without_a_row_in_common_are_not_comparable(project: Path, capfd: Shown) -> None:
    for name in ("one", "two"):
        (project / "bench").write_text(GBENCH.replace("BM_x", name), "utf-8")
        (project / "bench").chmod(0o755)
        git(project, "add", ".")
        git(project, "commit", "--quiet", "-m", name)
    assert gate("--base", "HEAD~1", "--gbench", "bench") == NOT_COMPARABLE
    assert "have no row in common" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["gate", "--base", "r", "--", "-input"], ["gate", "--base", "r", "--", "-input"]),
        (
            ["gate", "--base", "r", "--", "cmd", "-x"],
            ["gate", "--base", "r", "--", "", "cmd", "-x"],
        ),
        (["gate", "--gbench=b", "--", "-x"], ["gate", "--gbench=b", "--", "", "-x"]),
        (["gate", "--base", "r", "--"], ["gate", "--base", "r", "--"]),
        (["watch", "--", "cmd"], ["watch", "--", "cmd"]),
    ],
)
def test_what_stands_behind_two_hyphens(given: list[str], made: list[str]) -> None:
    assert gate_options.with_command(given) == made


@pytest.mark.parametrize(("seconds", "pairs"), [(0.01, 5), (0.8, 3), (1.0, 3), (2.0, 1), (60, 1)])
def test_a_launch_of_a_short_command_has_several_pairs(seconds: float, pairs: int) -> None:
    assert gate_jobs.pairs_of_launch(seconds) == pairs


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
    assert gate("--base", "HEAD", "--head", "HEAD", "--metric", METRIC, *RUN) == OK
    assert "control null: passed" in capfd.readouterr().out
    assert any("null/stage2" in out.as_posix() for out in runs)


def committed(project: Path, *texts: str) -> None:
    """A commit for each text of `bench`."""
    for text in texts:
        (project / "bench").write_text(text, "utf-8")
        (project / "bench").chmod(0o755)
        (project / "speed").write_text("1.0", "utf-8")
        git(project, "add", ".")
        git(project, "commit", "--quiet", "--allow-empty", "-m", "bench")


ENTRY = '\nrows += [dict(rows[0], name="BM_new", run_name="BM_new", family_index=1{})]\njson.dump'
TIMED, BROKEN, SKIPS = (
    GBENCH.replace("\njson.dump", ENTRY.format(more))
    for more in ("", ', error_occurred=True, error_message="no memory"', ", skipped=True")
)


@pytest.mark.parametrize(
    ("base", "head", "code", "said"),
    [
        (TIMED, BROKEN, FAILED, "error        BM_new: head: no memory"),
        (TIMED, SKIPS, FAILED, "error        BM_new: head skips what the base measures"),
        (BROKEN, TIMED, INCONCLUSIVE, "inconclusive BM_new: no base: no memory"),
        (TIMED, GBENCH, INCONCLUSIVE, "inconclusive BM_new: only in the base"),
        (SKIPS, TIMED, OK, "skipped      BM_new: without a reason"),
        (GBENCH, TIMED, OK, "skipped      BM_new: only in the head"),
    ],
)
def test_a_row_that_one_side_lacks_is_told_and_never_passes(
    project: Path, capfd: Shown, base: str, head: str, code: int, said: str
) -> None:
    committed(project, base, head)
    assert gate("--base", "HEAD~1", "--head", "HEAD", "--gbench", "bench") == code
    assert said in capfd.readouterr().out


def test_the_only_row_that_fails_in_the_head_is_an_error(project: Path, capfd: Shown) -> None:
    broken = GBENCH.replace('"time_unit"', '"error_occurred": True, "time_unit"')
    committed(project, GBENCH, broken)
    assert gate("--base", "HEAD~1", "--head", "HEAD", "--gbench", "bench") == FAILED
    assert "error        BM_x/8: head: without a reason" in capfd.readouterr().out


def test_a_run_of_what_is_in_the_checkout_is_not_comparable(
    project: Path, capfd: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head would be found to be as fast as the base."""
    (project / "step.py").write_text(STEP + "import lib.own", "utf-8")
    (project / "lib").mkdir()
    for speed in ("1", "2"):
        (project / "lib" / "own.py").write_text(f"SPEED = {speed}", "utf-8")
        git(project, "add", ".")
        git(project, "commit", "--quiet", "-m", speed)
    monkeypatch.setenv("PYTHONPATH", str(project / "lib"))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)  # which ./gpulift sets for itself
    (project / "step.py").write_text(STEP.replace("import json", "import own, json"), "utf-8")
    assert gate("--base", "HEAD~1", "--metric", METRIC, *RUN) == NOT_COMPARABLE
    assert "lib/own.py, which is in your checkout" in capfd.readouterr().err
    assert not list((project.parent / "cache").rglob("launch.json"))


def test_two_commits_with_the_same_files_are_said_to_be_so(project: Path, capfd: Shown) -> None:
    git(project, "commit", "--quiet", "--allow-empty", "-m", "nothing")
    assert gate("--base", "HEAD~1", "--metric", METRIC, *RUN) == OK
    out = capfd.readouterr().out.splitlines()
    assert "the same as the base, so that only noise can differ: 1 row" in out[0]
    python = sys.executable
    both = ("--base-python", python, "--head-python", python)
    assert gate(*both, "--metric", METRIC, *RUN) == OK
    assert "the same as the base, so that only noise can differ" in capfd.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_gate_that_is_killed_leaves_no_entry_in_the_repository(
    project: Path, number: signal.Signals
) -> None:
    before = sorted(
        str(file) for file in (project / ".git").rglob("*") if "objects" not in str(file)
    )
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
    after = sorted(
        str(file) for file in (project / ".git").rglob("*") if "objects" not in str(file)
    )
    assert after == before


@pytest.mark.parametrize(
    ("found", "folder", "code"),
    [
        ("0.1", "at", NOT_COMPARABLE),
        ("1", "at", OK),
        ("0.1", "at/__pycache__", OK),  # as of numba
        ("0.1", "tagged", OK),
    ],
)
def test_a_run_that_goes_on_from_what_another_left_is_not_comparable(
    project: Path, capfd: Shown, found: str, folder: str, code: int
) -> None:
    text = (
        f"import os\nos.makedirs('{folder}', exist_ok=True)\n"
        f"factor = {found} if os.path.exists('{folder}/ckpt') else 1\n"
        f"open('{folder}/ckpt', 'w').close()\nopen('tagged/CACHEDIR.TAG', 'w').close()\n"
    )
    (project / "tagged").mkdir()
    (project / "tagged" / "kept").touch()
    git(project, "add", "tagged")
    step = STEP.replace("random.gauss(", "factor * random.gauss(")
    (project / "step.py").write_text(text + step, "utf-8")
    git(project, "commit", "--quiet", "-a", "-m", "goes on")
    git(project, "commit", "--quiet", "--allow-empty", "-m", "more")
    assert gate("--base", "HEAD~1", "--metric", METRIC, *RUN) == code
    said = capfd.readouterr().err
    other = r"that finds at/ckpt of an earlier one says (9\.9\d|10|10\.\d) times another"
    assert bool(re.search(other, said)) == bool(code)
