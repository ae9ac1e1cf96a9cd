"""`gpulift watch` as a user calls it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpulift import cli
from gpulift.engine import packages
from gpulift.ground import programs, signals
from gpulift.ground.errors import OK, USAGE
from gpulift.ground.signals import Signals
from gpulift.watch import gauges, scalars, session
from gpulift.watch.job import attached
from gpulift.watch.log import Log
from gpulift.watch.samples import Sample
from tests.fake_nvml import FakeNvml
from tests.held import held

pytestmark = pytest.mark.world

SHOWN = pytest.CaptureFixture[str]
FAST = ("--interval", "0.01")
PIPE_BYTES = 4096  # the least that a pipe can hold


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(driver=False))


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def shell(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def refused(capfd: SHOWN, *arguments: object) -> str:
    """The one line that is said; no job was started."""
    job = () if "--" in arguments or "--pid" in arguments else shell("echo never")
    capfd.readouterr()
    assert cli.main(["watch", *map(str, arguments), *job]) == USAGE
    shown = capfd.readouterr()
    assert shown.out == ""
    (line,) = (one for one in shown.err.splitlines() if "not watched" not in one)
    return line


def test_the_jobs_output_and_exit_code_are_passed_on(root: Path, capfd: SHOWN) -> None:
    assert cli.main(["watch", *shell("echo result; echo progress >&2; exit 7")]) == 7
    shown = capfd.readouterr()
    assert shown.out == "result\n"
    assert "progress\n" in shown.err
    assert "gpulift: GPUs are not watched: NVML: Driver Not Loaded\n" in shown.err
    assert re.search(r"the watch itself: .* of CPU time, .* of a core; .* for each", shown.err)
    assert "article" not in shown.err


def test_log_and_picture_are_written(root: Path, tmp_path: Path, capfd: SHOWN) -> None:
    log, picture = tmp_path / "job.jsonl", tmp_path / "job.svg"
    files = ("--log", str(log), "--picture", str(picture))
    assert cli.main(["watch", *files, *shell("exit 0")]) == OK
    begin, *samples, end = lines(log)
    assert begin["watch"] == "1"
    assert begin["gpus"] == []
    assert samples[-1]["job"]["processes"] == 0
    assert end["exit_code"] == end["processes_left"] == 0
    assert end["overhead"]["samples"] == len(samples) + 1
    assert picture.read_text().startswith("<?xml")
    assert f"{log}: is there already; --force writes over it" in refused(capfd, *files)
    assert cli.main(["watch", "--force", *files, *shell("exit 4")]) == 4
    assert lines(log)[-1]["exit_code"] == 4


def test_a_job_longer_than_its_first_sample_has_two_within_an_interval(
    root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "job.jsonl"
    script = f"while ! grep -q time_s {log}; do sleep 0.01; done"
    assert cli.main(["watch", "--interval", "3600", "--log", str(log), *shell(script)]) == OK
    _, early, at_end, _ = lines(log)
    assert early["job"]["memory_bytes"] > 0
    assert at_end["time_s"] > early["time_s"] > 0


def test_gpus_are_in_lines_log_and_rules(
    root: Path, tmp_path: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    log = tmp_path / "job.jsonl"
    assert cli.main(["watch", "--gpu", "GPU-3a2b", "--log", str(log), *shell("exit 0")]) == OK
    begin, *samples, end = lines(log)
    assert [one["name"] for one in begin["gpus"]] == ["NVIDIA H100 80GB HBM3"]
    assert samples[-1]["gpus"][0]["sm_activity"] == pytest.approx(0.95)
    assert end["joules"] == [500]
    shown = capfd.readouterr().err
    assert "gpulift: GPU 0 NVIDIA H100 80GB HBM3, mean: SM 95 %, tensor 92 %" in shown
    assert "high GPU utilisation is not yet efficiency" in shown
    assert "No technique of" in shown


def test_processes_that_go_on_without_the_job_are_told(
    root: Path, tmp_path: Path, capfd: SHOWN
) -> None:
    log = tmp_path / "job.jsonl"
    with held(tmp_path / "pipe") as runs:
        assert cli.main(["watch", "--log", str(log), *shell(f"({runs} > /dev/null &)")]) == OK
    os.wait()
    shown = capfd.readouterr().err
    assert "not seen: the rest of 1 process that the job leaves running\n" in shown
    assert lines(log)[-1]["processes_left"] == 1


def test_options_of_the_job_are_the_jobs(root: Path, capfd: SHOWN) -> None:
    echo = 'echo "$@"'
    assert cli.main(["watch", "--", "sh", "-c", echo, "sh", "--quick", "--log", "--help"]) == OK
    assert capfd.readouterr().out == "--quick --log --help\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--",), "give either --pid PID or, after --, the command of a job"),
        (("--pid", "1", "--", "true"), "give either --pid PID or, after --, the command of a job"),
        (("--", "no-such-program"), "no-such-program: cannot be started: is not on PATH"),
        (("--", "/tmp"), "/tmp: cannot be started: is a folder"),
        (("--pid", str(1 << 40)), "there is no such process"),
        (("--interval", "0"), "--interval 0.0: give seconds, 0.01 or more"),
        (("--interval", "inf"), "--interval inf: give seconds, 0.01 or more"),
        (("--interval", "nan"), "--interval nan: give seconds, 0.01 or more"),
        (("--gpus", "a"), "--gpus a: name a GPU by its index, as 0, or by its UUID"),
        (("--gpus", "0"), "--gpus: NVML: Driver Not Loaded"),
        (("--log", "/proc/none/log"), "/proc/none/log: cannot be written"),
        (("--log", "pipe"), "pipe: is a pipe without a reader; start that first"),
        (("--picture", "pipe"), "pipe: is a pipe; name a file"),
        (("--picture", "job.png"), "--picture job.png: it is SVG; name it so"),
        (("--prometheus", "pipe"), "pipe: is a pipe; name a file"),
        (("--prometheus", "9400"), "--prometheus 9400: name a file"),
        (("--prometheus", "/proc/none/x"), "/proc/none/x: cannot be written"),
        (("--force", "--log", "a", "--picture", "a"), "is what --"),
        (("--force", "--prometheus", "a", "--picture", "x/../a"), "is what --"),
        (("--force", "--log", "a", "--picture", "link"), "is what --"),
    ],
)
def test_what_cannot_be_watched_is_one_line_and_writes_nothing(
    root: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(root)
    (root / "link").symlink_to("a")
    (root / "x").mkdir()
    os.mkfifo(root / "pipe")
    before = sorted(root.iterdir())
    assert says in refused(capfd, *arguments)
    assert sorted(root.iterdir()) == before


def test_a_log_that_cannot_be_written_is_said_once_and_stops_nothing(
    root: Path, capfd: SHOWN
) -> None:
    assert cli.main(["watch", *FAST, "--log", "/dev/full", *shell("exit 5")]) == 5
    assert capfd.readouterr().err.count("No space left on device; the log ends here") == 1


def test_a_log_may_be_a_pipe_and_ends_where_that_is_full(tmp_path: Path, capfd: SHOWN) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    log = Log(pipe)
    for number in range(PIPE_BYTES):
        log.add(Sample(number, 1.0, {}))
    log.close()
    assert json.loads(os.read(reader, PIPE_BYTES).splitlines()[1])["time_s"] == 1
    os.close(reader)
    said = f"gpulift: warning: {pipe}: it is full, and nobody reads it; the log ends here\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("name", ["INT", "USR1", "QUIT"])
def test_a_signal_of_the_watch_alone_reaches_the_job(name: str) -> None:
    script = f"trap 'exit 9' {name}; kill -{name} $PPID; while :; do sleep 0.02; done"
    watch = [sys.executable, "-m", "gpulift", "watch", *shell(script)]
    done = subprocess.run(watch, capture_output=True, start_new_session=True, timeout=60)
    assert done.returncode == 9


@pytest.mark.parametrize("in_foreground", [False, True])
def test_of_an_interruption_that_a_thread_got_the_terminal_tells_who_sent_it(
    monkeypatch: pytest.MonkeyPatch, in_foreground: bool
) -> None:
    monkeypatch.setattr(signals, "_is_in_foreground", lambda: in_foreground)
    with Signals() as kept:
        kept._note(signal.SIGINT, None)
        assert kept.wait(0) == (signal.SIGINT, in_foreground)


def test_prometheus_has_the_newest_sample_while_the_job_runs(root: Path, tmp_path: Path) -> None:
    gauges, copy = tmp_path / "job.prom", tmp_path / "copy"
    waiting = f"for i in $(seq 1200); do [ -s {gauges} ] && break; sleep 0.05; done"
    script = f"{waiting}; cp {gauges} {copy}"
    assert cli.main(["watch", *FAST, "--prometheus", str(gauges), *shell(script)]) == OK
    while_it_ran, at_its_end = copy.read_text(), gauges.read_text()
    assert "gpulift_watch_job_cpu_cores " in while_it_ran
    assert "\ngpulift_watch_up 1.0\n" in while_it_ran
    assert "gpulift_watch_job_cpu_cores " in at_its_end
    assert "\ngpulift_watch_up 0.0\n" in at_its_end


def test_prometheus_takes_the_place_of_its_own_file_alone(
    root: Path, tmp_path: Path, capfd: SHOWN
) -> None:
    file = tmp_path / "notes.txt"
    command = ["watch", "--prometheus", str(file)]
    file.write_text("theirs", encoding="utf-8")
    assert f"{file}: is there already; --force writes over it" in refused(capfd, *command[1:])
    assert file.read_text(encoding="utf-8") == "theirs"
    assert cli.main([*command, "--force", *shell("exit 3")]) == 3
    file.write_bytes(gauges.BEGINNING + b"job_processes of a watch that was killed\n")
    assert cli.main([*command, *shell("exit 4")]) == 4


class FakeWriter:
    """As torch's: a file of its own in the folder, which holds what is added."""

    def __init__(self, folder: str, filename_suffix: str, flush_secs: int) -> None:
        Path(folder).mkdir(exist_ok=True)
        self._file = Path(folder, f"events.out.tfevents.{time.time_ns()}{filename_suffix}")
        self._added: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._added.append((tag, value, step))

    def close(self) -> None:
        self._file.write_text(json.dumps(self._added))


class FullDisk(FakeWriter):
    """Whose second scalar finds no room."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        if self._added:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().add_scalar(tag, value, step)


@pytest.fixture
def board(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for --tensorboard, where torch and tensorboard are installed."""
    monkeypatch.setattr(packages, "is_installed", lambda _: True)
    monkeypatch.setitem(sys.modules, scalars.WRITER, SimpleNamespace(SummaryWriter=FakeWriter))
    return tmp_path / "board"


def added(board: Path) -> list[Any]:
    (file,) = board.iterdir()
    found: list[Any] = json.loads(file.read_text())
    return found


def test_tensorboard_has_a_scalar_of_each_quantity_in_each_sample(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    log = board.with_name("log")  # two samples of a job that runs, and one at its end
    job = shell(f"until [ $(grep -c time_s {log}) -gt 1 ]; do sleep 0.01; done; exit 3")
    assert cli.main(["watch", *FAST, "--log", str(log), "--tensorboard", str(board), *job]) == 3
    found = {(tag, step): value for tag, value, step in added(board)}
    assert found["job/processes", 0] >= 1
    assert found["gpu0/sm_activity", 0] == pytest.approx(0.95)
    steps = {step for _, step in found}
    assert steps == set(range(max(3, len(steps))))


def test_scalars_of_an_earlier_watch_are_written_over_by_force_alone(
    board: Path, capfd: SHOWN
) -> None:
    board.mkdir()
    command = ["watch", "--tensorboard", str(board)]
    assert cli.main([*command, *shell("exit 0")]) == OK  # an empty folder is as good as none
    (first,) = board.iterdir()
    assert f"{board}: has scalars already; --force writes over them" in refused(capfd, *command[1:])
    assert cli.main([*command, "--force", *shell("exit 4")]) == 4
    assert added(board)
    assert not first.exists()


def test_a_folder_of_others_is_not_written_to_even_by_force(board: Path, capfd: SHOWN) -> None:
    board.mkdir()
    theirs = board / "events.out.tfevents.1"
    theirs.write_text("theirs")
    for folder, says in (
        (board, f"{board}: holds files of others; name an empty folder"),
        (theirs, f"{theirs}: is no folder"),
        (board / "no" / "such", "cannot be written: there is no such folder"),
    ):
        assert says in refused(capfd, "--force", "--tensorboard", folder)
    both = ("--tensorboard", board.parent / "a", "--picture", board.parent / "a")
    assert "is what --" in refused(capfd, "--force", *both)
    assert [*board.iterdir()] == [theirs]


def test_without_its_packages_tensorboard_is_one_line_with_the_remedy(
    board: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in scalars.PACKAGES:
        monkeypatch.setattr(packages, "is_installed", lambda one, lacks=package: one != lacks)
        monkeypatch.setattr(sys, "executable", "/a b/python")
        install = f"'/a b/python' -m pip install {package}"
        said = f"--tensorboard: the Python package {package} is not installed: {install}"
        assert refused(capfd, "--tensorboard", board) == f"gpulift: error: {said}"
    monkeypatch.setattr(packages, "is_installed", lambda _: True)
    monkeypatch.setattr(scalars, "WRITER", "tests.no_such_module")
    said = "error: --tensorboard: No module named 'tests.no_such_module'"
    assert said in refused(capfd, "--tensorboard", board)
    assert not board.exists()


def test_scalars_that_cannot_be_written_are_said_once_and_stop_nothing(
    board: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, scalars.WRITER, SimpleNamespace(SummaryWriter=FullDisk))
    command = ["watch", *FAST, "--tensorboard", str(board), *shell("sleep 0.1; exit 5")]
    assert cli.main(command) == 5
    said = f"--tensorboard {board}: No space left on device; it is written no more"
    assert capfd.readouterr().err.count(said) == 1


def test_the_job_gets_the_callers_environment(
    root: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, f"PATH={os.environ['PATH']}\0LINES=a\nb=c\0PYTHONPATH=theirs\0".encode())
    os.close(write)
    monkeypatch.setenv(programs.JOB_ENVIRONMENT, str(read))
    assert cli.main(["watch", *shell('echo "$LINES $PYTHONPATH $GPULIFT_ROOT"')]) == OK
    assert capfd.readouterr().out == "a\nb=c theirs \n"


def test_the_job_gets_files_that_were_opened_for_it(root: Path, capfd: SHOWN) -> None:
    read, write = os.pipe()
    os.write(write, b"from a <(...)")
    os.close(write)
    os.set_inheritable(read, True)
    assert cli.main(["watch", "--", "cat", f"/dev/fd/{read}"]) == OK
    os.close(read)
    assert capfd.readouterr().out == "from a <(...)"


# --- Jobs of somebody else ---


class Came(Signals):
    """One signal, which comes at once."""

    def wait(self, limit_s: float) -> tuple[int, bool] | None:
        return signal.SIGINT, False


def test_an_interruption_ends_the_watch_and_not_the_job() -> None:
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE) as process:
        assert session.wait(attached(process.pid), Came(), float("inf")) == "interrupted"
        assert process.poll() is None
        process.communicate()


def test_the_end_of_a_job_of_somebody_else_is_no_failure(
    root: Path, tmp_path: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.jsonl"
    with subprocess.Popen(["sh", "-c", "read line; exit 3"], stdin=subprocess.PIPE) as process:
        stdin = process.stdin
        assert stdin is not None
        monkeypatch.setattr(session.Lines, "show", lambda self, sample: stdin.close())
        assert cli.main(["watch", *FAST, "--log", str(log), "--pid", str(process.pid)]) == OK
    assert lines(log)[-1]["exit_code"] is None
    said = r"gpulift: not seen: the last [\d.]+ m?s, and what left the job before a sample\n"
    assert re.search(said, capfd.readouterr().err)


# --- Lines ---


def test_lines_come_every_ten_seconds(capfd: SHOWN) -> None:
    made = session.Lines(2, [])
    known = {"cpu_cores": 0.5, "processes": 1.0, "memory_bytes": 1024.0}
    for time_s in (1.0, 2.0, 10.9, 11.0, 12.0, 21.5):
        made.show(Sample(time_s, 1.0, known))
    shown = capfd.readouterr().err.splitlines()
    assert [one.split()[1] for one in shown] == ["1.0", "11.0", "21.5"]


def test_on_a_terminal_the_job_writes_to_it_itself() -> None:
    script = "test -t 1 && test -t 2 && echo done; exit 6"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gpulift", "watch", *shell(script)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as watch:
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    assert watch.returncode == 6
    assert b"done\r\n" in said
    assert b"the watch itself" in said


def test_a_job_goes_on_where_the_terminal_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f"echo begun; while [ ! -e {gone} ]; do sleep 0.02; done; exit 6"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gpulift", "watch", *FAST, *shell(script)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as watch:
        os.close(theirs)
        said = b""
        while b"begun" not in said:
            said += _read(ours)
        os.close(ours)
        gone.touch()
        assert watch.wait(60) == 6


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
