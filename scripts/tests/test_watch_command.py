"""`gpulift watch` as a user calls it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpulift import cli
from gpulift.errors import OK, USAGE
from gpulift.watch import screen, session, signals
from gpulift.watch.job import attached
from gpulift.watch.samples import Sample
from gpulift.watch.signals import Signals
from tests.fake_nvml import FakeNvml

SHOWN = pytest.CaptureFixture[str]
FAST = ("--interval", "0.01")


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(driver=False))


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def shell(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def test_the_jobs_output_and_exit_code_are_passed_on(root: Path, capfd: SHOWN) -> None:
    assert cli.main(["watch", *shell("echo result; echo progress >&2; exit 7")]) == 7
    shown = capfd.readouterr()
    assert shown.out == "result\n"
    assert "progress\n" in shown.err
    assert "gpulift: GPUs are not watched: NVML: Driver Not Loaded\n" in shown.err
    assert re.search(r"the watch itself: .* of CPU time, .* of a core; .* for each", shown.err)
    assert "none of them can be applied" in shown.err


def test_log_and_picture_are_written(root: Path, tmp_path: Path, capfd: SHOWN) -> None:
    log, picture = tmp_path / "job.jsonl", tmp_path / "job.svg"
    files = ("--log", str(log), "--picture", str(picture))
    assert cli.main(["watch", *files, *shell("exit 0")]) == OK
    begin, *samples, end = lines(log)
    assert begin["watch"] == "1"
    assert begin["gpus"] == []
    assert samples[-1]["job"]["processes"] == 1
    assert end["exit_code"] == 0
    assert end["overhead"]["samples"] == len(samples) + 1
    assert picture.read_text().startswith("<?xml")
    assert cli.main(["watch", *files, *shell("echo never")]) == USAGE
    shown = capfd.readouterr()
    assert f"{log}: is there already; --force writes over it" in shown.err
    assert "never" not in shown.out
    assert cli.main(["watch", "--force", *files, *shell("exit 4")]) == 4
    assert lines(log)[-1]["exit_code"] == 4


def test_gpus_are_in_lines_log_and_rules(
    root: Path, tmp_path: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    log = tmp_path / "job.jsonl"
    assert cli.main(["watch", "--gpus", "0", "--log", str(log), *shell("exit 0")]) == OK
    begin, *samples, end = lines(log)
    assert [one["name"] for one in begin["gpus"]] == ["NVIDIA H100 80GB HBM3"]
    assert samples[-1]["gpus"][0]["sm_activity"] == pytest.approx(0.95)
    assert end["joules"] == [500]
    shown = capfd.readouterr().err
    assert "gpulift: GPU 0 NVIDIA H100 80GB HBM3, mean: SM 95 %, tensor 92 %" in shown
    assert "high GPU utilisation is not yet efficiency" in shown
    assert "No technique of" in shown


def test_options_of_the_job_are_the_jobs(root: Path, capfd: SHOWN) -> None:
    echo = 'echo "$@"'
    assert cli.main(["watch", "--", "sh", "-c", echo, "sh", "--quick", "--log", "--help"]) == OK
    assert capfd.readouterr().out == "--quick --log --help\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either --pid PID or, after --, the command of a job"),
        (("--pid", "1", "--", "true"), "give either --pid PID or, after --, the command of a job"),
        (("--", "no-such-program"), "no-such-program: there is no such program"),
        (("--pid", str(1 << 40)), "there is no such process"),
        (("--interval", "0", "--", "true"), "--interval 0.0: give 0.01 seconds or more"),
        (("--interval", "nan", "--", "true"), "--interval nan: give 0.01 seconds or more"),
        (("--gpus", "a", "--", "true"), "--gpus a: name each GPU once by its index"),
        (("--gpus", "0", "--", "true"), "--gpus: NVML: Driver Not Loaded"),
        (("--log", "/proc/none/log", "--", "true"), "/proc/none/log: cannot be written"),
    ],
)
def test_what_cannot_be_watched_is_one_line_and_writes_nothing(
    root: Path, tmp_path: Path, capfd: SHOWN, arguments: tuple[str, ...], says: str
) -> None:
    log = tmp_path / "job.jsonl"
    before = () if "--log" in arguments else ("--log", str(log))
    assert cli.main(["watch", *before, *arguments]) == USAGE
    shown = [one for one in capfd.readouterr().err.splitlines() if "not watched" not in one]
    assert len(shown) == 1
    assert says in shown[0]
    assert not log.exists()


def test_a_log_that_cannot_be_written_is_said_once_and_stops_nothing(
    root: Path, capfd: SHOWN
) -> None:
    assert cli.main(["watch", *FAST, "--log", "/dev/full", *shell("exit 5")]) == 5
    assert capfd.readouterr().err.count("No space left on device; the log ends here") == 1


def test_a_signal_of_the_watch_alone_reaches_the_job() -> None:
    script = "trap 'exit 9' INT; kill -INT $PPID; while :; do :; done"
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
    script = f"while [ ! -s {gauges} ]; do :; done; cp {gauges} {copy}"
    assert cli.main(["watch", *FAST, "--prometheus", str(gauges), *shell(script)]) == OK
    assert "gpulift_watch_job_cpu_cores " in copy.read_text()
    assert not gauges.exists()


def test_the_job_gets_the_callers_environment(
    root: Path, capfd: SHOWN, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.write(write, f"PATH={os.environ['PATH']}\0LINES=a\nb=c\0PYTHONPATH=theirs\0".encode())
    os.close(write)
    monkeypatch.setenv(session.ENVIRONMENT, str(read))
    assert cli.main(["watch", *shell('echo "$LINES $PYTHONPATH $GPULIFT_ROOT"')]) == OK
    assert capfd.readouterr().out == "a\nb=c theirs \n"


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
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.jsonl"
    with subprocess.Popen(["sh", "-c", "read line; exit 3"], stdin=subprocess.PIPE) as process:
        stdin = process.stdin
        assert stdin is not None
        monkeypatch.setattr(screen.Lines, "show", lambda self, sample: stdin.close())
        assert cli.main(["watch", *FAST, "--log", str(log), "--pid", str(process.pid)]) == OK
    assert lines(log)[-1]["exit_code"] is None


# --- On a terminal ---


def test_lines_come_every_ten_seconds(capfd: SHOWN) -> None:
    made = screen.Lines(2, [])
    known = {"cpu_cores": 0.5, "processes": 1.0, "memory_bytes": 1024.0}
    for time_s in (1.0, 2.0, 10.9, 11.0, 12.0, 21.5):
        made.show(Sample(time_s, 1.0, known))
    shown = capfd.readouterr().err.splitlines()
    assert [one.split()[1] for one in shown] == ["1.0", "11.0", "21.5"]


def test_on_a_terminal_the_job_writes_to_one_and_the_view_is_below() -> None:
    script = "test -t 1 && printf '10%%\\r20%%\\rdone\\n'; exit 6"
    ours, theirs = pty.openpty()
    code = f"from gpulift import cli; raise SystemExit(cli.main({['watch', *shell(script)]!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs) as watch:
        os.close(theirs)
        said = b""
        while chunk := _read(ours):
            said += chunk
    os.close(ours)
    assert watch.returncode == 6
    assert b"done\r\n" in said
    assert b"10%" not in said
    assert b"the watch itself" in said


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""
