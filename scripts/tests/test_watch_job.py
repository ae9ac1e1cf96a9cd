"""What a watch reads of processes: real ones, small, and none that waits for a clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpulift.errors import USAGE, GpuliftError
from gpulift.watch import job as jobs
from gpulift.watch.job import Job, Reading, StartedJob, attached
from gpulift.watch.observer import Observer

BURNT_S = 0.1
COUNTED_S = 0.06  # less what is lost of user and system time to the kernel's ticks of 10 ms
BURN = f"import time\nwhile time.process_time() < {BURNT_S}: pass"
PYTHON = (sys.executable, "-I", "-S", "-c")


def until_ended(job: StartedJob) -> Reading:
    """What was used when it has ended and was not waited for."""
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert job.has_ended()
    return job.reading()


@contextmanager
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its input is closed."""
    with subprocess.Popen(["sh", "-c", "read line"], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def test_cpu_seconds_of_a_job_are_there_when_it_has_ended() -> None:
    job = StartedJob([*PYTHON, BURN])
    assert COUNTED_S <= until_ended(job).cpu_s < 100 * BURNT_S
    assert job.exit_code() == 0


def test_those_of_children_that_it_waited_for_count() -> None:
    job = StartedJob(["sh", "-c", '"$0" -I -S -c "$1"; exit 3', sys.executable, BURN])
    assert until_ended(job).cpu_s >= COUNTED_S
    assert job.exit_code() == 3


def test_children_that_run_are_part_of_the_job() -> None:
    with waiting() as child:
        found = attached(os.getpid()).reading()
        assert found.processes >= 2
        assert found.threads >= found.processes
        assert found.memory_bytes > attached(child.pid).reading().memory_bytes > 0


def test_bytes_that_it_read_count_from_files_without_a_disk() -> None:
    job = StartedJob(["sh", "-c", "head -c 1048576 /dev/zero > /dev/null"])
    found = until_ended(job)
    assert found.file_bytes is not None
    assert found.file_bytes[0] >= 1 << 20
    assert job.exit_code() == 0


@pytest.mark.parametrize(
    ("command", "code"), [("exit 7", 7), ("kill -TERM $$", 128 + signal.SIGTERM)]
)
def test_the_exit_code_is_that_of_a_shell(command: str, code: int) -> None:
    assert StartedJob(["sh", "-c", command]).exit_code() == code


def test_a_signal_is_passed_on() -> None:
    job = StartedJob(["sh", "-c", "trap 'exit 9' TERM; kill -STOP $$; while :; do :; done"])
    os.waitid(os.P_PID, job.pid, os.WSTOPPED)
    assert not job.has_ended()
    job.send(signal.SIGTERM)
    job.send(signal.SIGCONT)
    assert job.exit_code() == 9


def test_the_environment_is_the_one_that_is_given() -> None:
    read, write = os.pipe()
    job = StartedJob(["/bin/sh", "-c", 'printf %s "$ONLY"'], write, environment={"ONLY": "this"})
    os.close(write)
    assert job.exit_code() == 0
    assert os.read(read, 100) == b"this"
    os.close(read)


def test_a_program_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "job").touch(mode=0o644)
    with pytest.raises(GpuliftError, match="cannot be started: Permission denied") as error:
        StartedJob([str(tmp_path / "job")])
    assert error.value.exit_code == USAGE


@pytest.mark.parametrize("pid", [-1, 0, 1 << 40])
def test_a_process_that_is_not_there_is_refused(pid: int) -> None:
    with pytest.raises(GpuliftError, match=f"--pid {pid}: there is no such process") as error:
        attached(pid)
    assert error.value.exit_code == USAGE


def test_one_that_has_ended_is_refused_and_one_that_ends_is_seen() -> None:
    with waiting() as process:
        job = attached(process.pid)
        assert not job.has_ended()
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert job.has_ended()
        with pytest.raises(GpuliftError, match="no such process"):
            attached(process.pid)
    assert job.has_ended()
    assert job.reading().processes == 0


def test_waits_of_threads_that_ended_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PROC", tmp_path)
    waits = jobs._ThreadWaits()
    assert waits.add([1]) is None

    def thread(name: str, wait_s: float) -> Path:
        file = tmp_path / "1" / "task" / name / "schedstat"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"5 {wait_s * 1e9:.0f} 7\n")
        return file

    thread("1", 1.0)
    other = thread("2", 0.5)
    assert waits.add([1]) == pytest.approx(1.5)
    other.unlink()
    thread("1", 2.0)
    assert waits.add([1]) == pytest.approx(2.5)
    assert waits.add([]) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("content", "cores"),
    [("150000 100000\n", 1.5), ("max 100000\n", float("inf")), ("", float("inf"))],
)
def test_a_containers_quota_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, cores: float
) -> None:
    monkeypatch.setattr(jobs, "CPU_LIMIT", tmp_path / "cpu.max")
    assert jobs.cgroup_cores() == float("inf")
    (tmp_path / "cpu.max").write_text(content)
    assert jobs.cgroup_cores() == cores
    assert attached(os.getpid()).cores() == min(cores, len(os.sched_getaffinity(0)))


# --- Samples ---


class ReadJob(Job):
    """Tells readings that are given."""

    def __init__(self, *readings: Reading) -> None:
        super().__init__(psutil.Process())
        self._readings = list(readings)

    def reading(self) -> Reading:
        return self._readings.pop(0)


def reading(time_s: float, cpu_s: float, **other: object) -> Reading:
    """One of a single process."""
    known: dict[str, object] = dict.fromkeys(
        ("cpu_wait_s", "first_run_s", "first_wait_s", "disk_bytes", "file_bytes")
    )
    usual = {"processes": 1, "threads": 1, "memory_bytes": 100}
    return Reading(**{"time_s": time_s, "cpu_s": cpu_s, **usual, **known, **other})  # type: ignore[arg-type]


def test_a_sample_is_what_happened_between_two_readings() -> None:
    then = reading(10.0, 1.0, cpu_wait_s=0.0, first_run_s=1.0, first_wait_s=0.0, disk_bytes=(0, 5))
    now = reading(14.0, 5.0, cpu_wait_s=2.0, first_run_s=1.5, first_wait_s=0.5, disk_bytes=(80, 5))
    sample = Observer(ReadJob(then, now), []).sample()
    assert (sample.time_s, sample.interval_s) == (4.0, 4.0)
    job = sample.job
    assert job["cpu_cores"] == 1.0
    assert job["cpu_wait_cores"] == 0.5
    assert job["first_thread_asleep"] == 0.75
    assert job["disk_read_bytes_per_s"] == 20
    assert job["disk_written_bytes_per_s"] == 0
    assert "file_read_bytes_per_s" not in job


def test_counts_that_went_with_a_process_are_no_negative_rates() -> None:
    observer = Observer(ReadJob(reading(0.0, 5.0), reading(1.0, 2.0), reading(2.0, 3.0)), [])
    assert observer.sample().job["cpu_cores"] == 0
    assert observer.sample().job["cpu_cores"] == 1


def test_the_watch_counts_its_own_cost() -> None:
    observer = Observer(attached(os.getpid()), [])
    observer.sample()
    cost = observer.overhead()
    assert cost.samples == 2
    assert 0 < cost.of_sample_s <= cost.elapsed_s
    assert cost.cpu_s > 0
