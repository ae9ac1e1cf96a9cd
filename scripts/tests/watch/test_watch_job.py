"""What a watch reads of processes: real ones, small, and none that waits for a clock."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpulift.ground.errors import USAGE, GpuliftError
from gpulift.watch import job as jobs
from gpulift.watch.job import Job, Reading, StartedJob, attached
from gpulift.watch.observer import Observer
from tests.held import held

pytestmark = pytest.mark.world

BURNT_S = 0.1
COUNTED_S = 0.06  # less what is lost of user and system time to the kernel's ticks of 10 ms
BURN = f"import time\nwhile time.process_time() < {BURNT_S}: pass"
PYTHON = (sys.executable, "-I", "-S", "-c")
LEADER_ENDS = """
import ctypes, os, threading
threading.Thread(target=lambda: os._exit(len(os.read(0, 1)))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


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


def test_of_what_is_waited_for_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    peak_bytes = 1 << 40  # beyond what a process of tests has itself
    used = resource.struct_rusage([0.25, 0.5, peak_bytes >> 10, *[0] * 13])
    monkeypatch.setattr(os, "wait4", lambda pid, flags: (pid, 3 << 8, used))
    job = StartedJob(["sh", "-c", "exit 3"])
    last = until_ended(job)
    assert last.cpu_s == pytest.approx(0.75)
    assert (last.peak_bytes, last.peak_limit_bytes) == (peak_bytes, 0)
    assert last.memory_bytes == last.processes == 0
    monkeypatch.undo()
    assert job.exit_code() == os.waitstatus_to_exitcode(os.waitpid(job.pid, 0)[1]) == 3


def test_a_peak_that_may_be_that_of_the_watch_is_a_limit() -> None:
    job = StartedJob(["sh", "-c", "exit 0"])
    last = until_ended(job)
    assert last.peak_bytes < last.peak_limit_bytes
    assert last.peak_limit_bytes >= psutil.Process().memory_info().rss / 2
    assert job.exit_code() == 0


def test_a_started_job_begins_with_nothing() -> None:
    job = StartedJob(["sh", "-c", "exit 0"])
    beginning = job.beginning()
    assert beginning.cpu_s == beginning.memory_bytes == 0
    assert beginning.time_s <= until_ended(job).time_s
    assert job.exit_code() == 0
    assert attached(os.getpid()).beginning() is None


def test_children_that_run_are_part_of_the_job() -> None:
    with waiting() as child:
        found = attached(os.getpid()).reading()
        assert found.processes >= 2
        assert found.threads >= found.processes
        assert found.memory_bytes > attached(child.pid).reading().memory_bytes > 0


def test_a_daemon_is_part_of_the_job_that_started_it(tmp_path: Path) -> None:
    others = set(psutil.Process().children())  # as what multiprocessing starts and keeps

    def ours() -> list[int]:
        return [one.pid for one in psutil.Process().children() if one not in others]

    with held(tmp_path / "job") as job_runs:
        with held(tmp_path / "daemon") as daemon_runs:
            job = StartedJob(["sh", "-c", f"({daemon_runs} &); exec {job_runs}"])
            while len(ours()) < 2:
                time.sleep(0.001)
            assert job.reading().processes == 2
        while job.reading().processes > 1:
            time.sleep(0.001)
        assert ours() == [job.pid]  # no zombie is left
    assert job.exit_code() == 0


def test_what_a_daemon_used_counts_when_it_has_ended(tmp_path: Path) -> None:
    with held(tmp_path / "job") as runs:
        script = f'("$0" -I -S -c "$1" &); exec {runs}'
        job = StartedJob(["sh", "-c", script, sys.executable, BURN])
        while job.reading().processes > 1 or job.reading().cpu_s < COUNTED_S:
            time.sleep(0.01)
        used = job.reading()
        assert used.cpu_s >= BURNT_S  # of what is waited for the kernel tells it without ticks
        assert used.file_bytes is not None
        assert used.file_bytes[0] > 1000  # its interpreter
    assert until_ended(job).processes == 0
    assert job.exit_code() == 0


def test_children_that_were_there_before_the_job_are_not_of_it() -> None:
    with waiting():
        job = StartedJob(["sh", "-c", "exit 0"])
        assert until_ended(job).processes == 0
        assert job.exit_code() == 0


def test_of_a_job_of_somebody_else_what_was_seen_is_kept(tmp_path: Path) -> None:
    with held(tmp_path / "job") as runs, held(tmp_path / "daemon") as daemon_runs:
        with held(tmp_path / "parent") as parent_runs:
            script = f"sh -c '{daemon_runs} & {parent_runs}'; exec {runs}"
            process = subprocess.Popen(["sh", "-c", script])
            job = attached(process.pid)
            while (seen := job.reading()).processes < 4:
                time.sleep(0.001)
        while len(psutil.Process(process.pid).children()) > 0:
            time.sleep(0.001)
        while job.reading().processes > 2:
            time.sleep(0.001)
        assert seen.processes == 4
        assert job.reading().processes == 2
    assert process.wait() == 0


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


def test_a_signal_that_may_not_be_sent_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    job = StartedJob(["sh", "-c", "exit 3"])
    monkeypatch.setattr(os, "kill", refuse)
    job.send(signal.SIGTERM)
    assert job.exit_code() == 3


def test_the_environment_is_the_one_that_is_given(capfd: pytest.CaptureFixture[str]) -> None:
    job = StartedJob(["/bin/sh", "-c", 'printf %s "$ONLY"'], environment={"ONLY": "this"})
    assert job.exit_code() == 0
    assert capfd.readouterr().out == "this"


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


def test_cpu_time_is_told_finer_than_by_ticks() -> None:
    ended = psutil.Process().cpu_times()
    began_s = time.process_time()
    used_s = jobs._cpu_s(psutil.Process())
    assert used_s is not None
    own_s = used_s - ended.children_user - ended.children_system
    assert began_s <= own_s <= time.process_time()


class Family(Job):
    """This process, and in the given readings one that ended after it was found."""

    def __init__(self, *ended: bool) -> None:
        super().__init__(psutil.Process())
        with subprocess.Popen(["sleep", "60"]) as process:
            self._ended = psutil.Process(process.pid)
            process.kill()
        self.ended = list(ended)

    def _family(self) -> list[psutil.Process]:
        return [self._root, *([self._ended] if self.ended.pop(0) else [])]


def test_a_reading_in_which_a_process_ended_is_taken_again() -> None:
    job = Family(True, True, False, False)
    job.reading()
    assert job.ended == [False]


def test_sums_do_not_shrink_where_processes_keep_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Family(False, *[True] * jobs.TRIES, False)
    used = iter([2.0, *[1.0, None] * jobs.TRIES, 0.5])
    monkeypatch.setattr(jobs, "_cpu_s", lambda _: next(used))
    assert [job.reading().cpu_s for _ in range(2)] == [2.0, 2.0]
    assert job.reading().cpu_s == 0.5  # of what was waited for by nobody
    assert job.ended == []


def test_a_process_whose_first_thread_ended_goes_on_with_the_others() -> None:
    with subprocess.Popen([*PYTHON, LEADER_ENDS], stdin=subprocess.PIPE) as process:
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
        job = attached(process.pid)
        found = job.reading()
        assert (found.processes, found.threads) == (1, 2)
        assert found.memory_bytes > 0
        assert found.first_run_s is found.first_wait_s is None  # it is not asleep
        assert process.stdin is not None
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert job.has_ended()


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

    def cores(self) -> float:
        return 2.0

    def reading(self) -> Reading:
        return self._readings.pop(0)


def reading(time_s: float, cpu_s: float, took_s: float = 0.0, **other: object) -> Reading:
    """One of a single process."""
    known: dict[str, object] = dict.fromkeys(
        ("cpu_wait_s", "first_run_s", "first_wait_s", "disk_bytes", "file_bytes")
    )
    usual: dict[str, object] = {"processes": 1, "threads": 1, "memory_bytes": 100}
    usual |= {"peak_bytes": 100, "peak_limit_bytes": 0}
    return Reading(time_s, took_s, cpu_s, **{**usual, **known, **other})  # type: ignore[arg-type]


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


def test_a_sample_begins_before_the_reading_that_it_is_compared_with() -> None:
    slow, prompt = reading(10.0, 5.0, took_s=0.6), reading(10.4, 7.0)
    assert slow.time_s - slow.took_s < prompt.time_s
    sample = Observer(ReadJob(slow, prompt), []).sample()
    assert sample.interval_s == pytest.approx(1.0)
    assert sample.job["cpu_cores"] == pytest.approx(2.0)  # and not 5 of 2


@pytest.mark.parametrize(
    ("cpu_s", "cores"),
    [
        ((0, 2.05, 3), (2, 1)),  # what ticks told late counts with the next sample
        ((0, 3, 4), (3, 1)),  # more than ticks explain is not hidden
        ((5, 2, 3), (0, 1)),  # counts that went with a process are no negative rates
    ],
)
def test_cpu_time_by_what_ticks_tell(cpu_s: tuple[float, ...], cores: tuple[float, ...]) -> None:
    told = (reading(float(time_s), used_s) for time_s, used_s in enumerate(cpu_s))
    observer = Observer(ReadJob(*told), [])
    for expected in cores:
        assert observer.sample().job["cpu_cores"] == pytest.approx(expected)


def test_all_that_a_started_job_used_is_in_its_first_sample() -> None:
    job = ReadJob(reading(10.5, 3.0), reading(11.0, 4.0, memory_bytes=0))
    job.beginning = lambda: reading(10.0, 0.0)  # type: ignore[method-assign]
    sample = Observer(job, []).sample()
    assert sample.interval_s == 1.0
    assert sample.job["cpu_cores"] == 4.0
    assert "memory_bytes" not in sample.job  # it is not 0 B


def test_the_watch_counts_its_own_cost() -> None:
    observer = Observer(attached(os.getpid()), [])
    observer.sample()
    cost = observer.overhead()
    assert cost.samples == 2
    assert 0 < cost.of_sample_s <= cost.elapsed_s
    assert cost.cpu_s > 0
