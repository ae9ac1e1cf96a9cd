"""The process of a Python arm, spoken to as gpulift-bench does."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

WORKER = Path(__file__).parents[2] / "core" / "python" / "gpulift_worker.py"
# What gpulift-bench does: answers come from descriptor 3, standard output goes nowhere.
AS_STARTED = ["sh", "-c", 'exec "$0" "$@" 3>&1 1>/dev/null', sys.executable, str(WORKER)]
HEAD = "from gpulift_worker import Arm, Skip\ndef make(arm, point, seed, gpu):\n"
QUESTION = {"arm": "loop", "point": {"size": 4}, "seed": 7, "plant": 0.0, "gpu": None}


class Worker:
    """A worker of a script with this body of make()."""

    def __init__(self, folder: Path, body: str, top: str = "") -> None:
        script = folder / "theme.name.py"
        script.write_text(top + HEAD + "".join(f"    {one}\n" for one in body.splitlines()))
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self._process = subprocess.Popen(
                [*AS_STARTED, str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, question: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def ask(self, **question: Any) -> Any:
        self.send(question)
        return self.answer()

    def window(self, lead_in_steps: int, steps: int, *, by_events: bool = False) -> Any:
        return self.ask(lead_in_steps=lead_in_steps, steps=steps, by_events=by_events)

    def hello(self, **more: Any) -> Any:
        return self.ask(**{**QUESTION, **more})

    def end(self) -> int:
        """Its exit code after the end of the questions."""
        rest, _ = self._process.communicate(timeout=30)
        assert rest == ""
        return self._process.returncode


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A file that scripts write to; its name is in LOG."""
    file = tmp_path / "log"
    os.environ["LOG"] = str(file)
    yield file
    del os.environ["LOG"]


ELAPSED = "    def elapsed_time(self, end):\n        return 5.0\n"
LOGGING = "import gc, os\ndef say(what):\n    open(os.environ['LOG'], 'a').write(what + ' ')\n"


def test_answers_once_the_arm_is_checked_and_then_windows_until_the_end(tmp_path: Path) -> None:
    with Worker(tmp_path, "return Arm(step=int, error=lambda: 0.25)") as worker:
        hello = worker.hello()
        assert hello["check_error"] == 0.25
        assert hello["peak_host_bytes"] >= 0
        before_s = time.monotonic()
        window = worker.window(lead_in_steps=2, steps=3)
        assert before_s <= window["start_s"] <= time.monotonic(), "one clock with the engine"
        assert 0 < window["enqueue_s"] <= window["host_s"]
        assert set(window) == {"start_s", "host_s", "enqueue_s"}
        assert worker.end() == 0


def test_gives_the_script_its_case(tmp_path: Path) -> None:
    body = "return Arm(int, float, notes={'case': f'{arm} {point} {seed} {gpu}'})"
    with Worker(tmp_path, body) as worker:
        notes = worker.hello(gpu=2)["notes"]
    assert notes["case"] == "loop {'size': 4} 7 2"


def test_notes_the_versions_of_what_the_script_imports(tmp_path: Path) -> None:
    (tmp_path / "made_up.py").write_text("__version__ = '1.2+x'\n")
    top = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport made_up\n"
    with Worker(tmp_path, "return Arm(int, float)", top) as worker:
        notes = worker.hello()["notes"]
    assert notes == {"python": platform.python_version(), "made_up": "1.2+x"}


def test_takes_one_step_before_the_check_and_waits_at_both_ends_of_a_window(
    tmp_path: Path, log: Path
) -> None:
    body = (
        "return Arm(lambda: say('step'), lambda: say('check') or 0.0,"
        " synchronize=lambda: say('wait'))"
    )
    with Worker(tmp_path, body, LOGGING) as worker:
        worker.hello()
        worker.window(lead_in_steps=1, steps=2)
    assert log.read_text().split() == [
        *("step", "wait", "check", "wait"),
        *("step", "wait", "step", "step", "wait"),
    ]


@pytest.mark.parametrize(
    ("top", "error"),
    [
        ("", "MemoryError('asked for too much')"),
        ("class OutOfMemoryError(RuntimeError): pass\n", "OutOfMemoryError('asked for too much')"),
        ("", "RuntimeError('RESOURCE_EXHAUSTED: asked for too much')"),
        ("", "RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED, asked for too much')"),
        ("", "RuntimeError('CUDA error: out of memory, asked for too much')"),
        ("", 'RuntimeError("DefaultCPUAllocator: can\'t allocate memory: asked for too much")'),
        ("", "MemoryError('asked for too much If reserved but unallocated memory is large try')"),
    ],
)
@pytest.mark.parametrize("when", ["made", "checked"])
def test_an_arm_for_which_there_is_no_memory_is_skipped(
    tmp_path: Path, top: str, error: str, when: str
) -> None:
    top += f"def fail():\n    raise {error}\n"
    body = "fail()" if when == "made" else "return Arm(fail, float)"
    with Worker(tmp_path, body, top) as worker:
        answer = worker.hello()
        assert answer["skipped"].startswith("out of memory: ")
        assert answer["skipped"].endswith("asked for too much")
        assert "larger GPU" in answer["remedy"]
        assert worker.end() == 0


def test_by_events_a_window_is_in_the_midst_of_steps(tmp_path: Path, log: Path) -> None:
    top = f"{LOGGING}class Mark:\n    def __init__(self):\n        say('mark')\n" + ELAPSED
    body = "return Arm(lambda: say('step'), float, synchronize=lambda: say('wait'), mark=Mark)"
    with Worker(tmp_path, body, top) as worker:
        assert worker.hello()["has_events"]
        log.write_text("")
        worker.window(lead_in_steps=1, steps=2, by_events=True)
    assert log.read_text().split() == ["step", "mark", "step", "step", "mark", "wait"]


def test_by_events_extra_work_begins_when_the_steps_are_done(tmp_path: Path, log: Path) -> None:
    top = f"{LOGGING}class Mark:\n    def __init__(self):\n        say('mark')\n" + ELAPSED
    body = "return Arm(lambda: say('step'), float, synchronize=lambda: say('wait'), mark=Mark)"
    with Worker(tmp_path, body, top) as worker:
        worker.hello(plant=1.0)
        worker.window(lead_in_steps=0, steps=1, by_events=True)
        log.write_text("")
        second = worker.window(lead_in_steps=0, steps=1, by_events=True)
    assert log.read_text().split() == ["mark", "step", "wait", "mark", "wait"]
    assert second["host_s"] >= 5e-3, "as long as the window before, by its events"


# In the place of the library that counts launches: every step has three. A null pointer is None.
COUNTING = f"""{LOGGING}
import ctypes
class Library:
    def __init__(self, name):
        if 'missing' in name:
            raise OSError(name)
        def start():
            say('start')
            return None if 'busy' in name else 1 << 40
        def stop(started):
            assert start.restype is ctypes.c_void_p and stop.argtypes == [ctypes.c_void_p]
            assert started == 1 << 40
            say('stop')
            return 3 * open(os.environ['LOG']).read().count('step')
        self.gpulift_launch_counter_start = start
        self.gpulift_launch_counter_stop = stop
ctypes.CDLL = Library
"""


def launches(folder: Path, log: Path, counter: str, step: str = "say('step')") -> Any:
    """What a worker answers that may count with a library of this name."""
    body = f"return Arm(lambda: {step}, float, synchronize=lambda: say('wait'))"
    with Worker(folder, body, COUNTING) as worker:
        worker.hello(launch_counter=counter)
        log.write_text("")
        return worker.ask(launches_per_step=True)


def test_counts_the_launches_of_two_steps(tmp_path: Path, log: Path) -> None:
    assert launches(tmp_path, log, "counter.so") == {"launches_per_step": 3}
    assert log.read_text().split() == ["start", "step", "step", "wait", "stop"]


@pytest.mark.parametrize(("counter", "said"), [("busy.so", ["start"]), ("missing.so", [])])
def test_takes_no_step_where_launches_cannot_be_counted(
    tmp_path: Path, log: Path, counter: str, said: list[str]
) -> None:
    assert launches(tmp_path, log, counter) == {}
    assert log.read_text().split() == said


def test_stops_counting_when_a_step_fails(tmp_path: Path, log: Path) -> None:
    step = "say('step') or (1 / 0 if 'start' in open(os.environ['LOG']).read() else 0)"
    assert launches(tmp_path, log, "counter.so", step) == {
        "error": "ZeroDivisionError: division by zero"
    }
    assert log.read_text().split() == ["start", "step", "stop"]


def test_says_the_metrics_of_an_arm_after_its_check(tmp_path: Path, log: Path) -> None:
    body = (
        "return Arm(int, lambda: say('check') or 0.0,"
        " metrics=lambda: say('metrics') or {'peak_allocated_bytes': 4096})"
    )
    with Worker(tmp_path, body, LOGGING) as worker:
        assert worker.hello()["metrics"] == {"peak_allocated_bytes": 4096}
    assert log.read_text().split() == ["check", "metrics"]


def test_a_metric_that_is_not_finite_is_an_error(tmp_path: Path) -> None:
    with Worker(
        tmp_path, "return Arm(int, float, metrics=lambda: {'speed': float('inf')})"
    ) as worker:
        assert worker.hello()["error"] == "ValueError: the metric speed is not finite"


def test_times_a_device_between_two_marks(tmp_path: Path) -> None:
    top = "class Mark:\n" + ELAPSED
    with Worker(tmp_path, "return Arm(int, float, mark=Mark)", top) as worker:
        worker.hello()
        assert worker.window(lead_in_steps=1, steps=1)["device_s"] == 0.005


def test_no_garbage_is_collected_in_windows(tmp_path: Path, log: Path) -> None:
    with Worker(tmp_path, "return Arm(lambda: say(str(gc.isenabled())), float)", LOGGING) as worker:
        worker.hello()
        worker.window(lead_in_steps=1, steps=1)
    assert log.read_text().split() == ["True", "False", "False"]


def test_plants_a_fraction_of_the_window_before_in_every_window_but_the_first(
    tmp_path: Path,
) -> None:
    top = "import time\n"
    with Worker(tmp_path, "return Arm(lambda: time.sleep(2e-3), float)", top) as worker:
        worker.hello(plant=3.0)
        first = worker.window(lead_in_steps=0, steps=2)
        assert "planted" not in first
        second = worker.window(lead_in_steps=0, steps=1)
    assert second["planted"] > 0
    # What was added is a known time: 3 x 2 ms at least, since a sleep is never shorter.
    assert second["host_s"] - second["enqueue_s"] >= 6e-3


def test_whatever_is_printed_cannot_break_the_protocol(tmp_path: Path) -> None:
    top = "import os, subprocess\nprint('at import')\nprint('errors too', file=os.sys.stderr)\n"
    body = (
        "os.write(1, b'below Python')\n"
        "subprocess.run(['cat'], check=True, timeout=30)\n"
        "assert subprocess.run(['sh', '-c', ': >&3'], stderr=subprocess.DEVNULL).returncode != 0\n"
        "return Arm(lambda: print('step'), float)"
    )
    with Worker(tmp_path, body, top) as worker:
        assert worker.hello()["check_error"] == 0
        assert "host_s" in worker.window(lead_in_steps=1, steps=1)
        assert worker.end() == 0


def test_a_missing_package_is_a_skip_with_a_remedy(tmp_path: Path) -> None:
    with Worker(tmp_path, "return Arm(int, float)", "import no_such_package\n") as worker:
        assert worker.hello() == {
            "skipped": "the Python package no_such_package is not installed",
            "remedy": "install no_such_package, or name another interpreter with --python",
        }
        assert worker.end() == 0


def test_a_script_can_skip(tmp_path: Path) -> None:
    with Worker(tmp_path, "raise Skip('not here', 'go there')") as worker:
        assert worker.hello() == {"skipped": "not here", "remedy": "go there"}


@pytest.mark.parametrize(
    ("body", "top"),
    [
        ("raise ValueError('on purpose')", ""),
        ("raise Skip(' ', 'go there')", ""),
        ("return Arm(lambda: int('x'), float)", ""),
        ("return Arm(int, lambda: 1 / 0)", ""),
        ("return Arm(int, float)", "raise ImportError('broken library')\n"),
        ("return Arm(int, float)", "this is no Python\n"),
    ],
)
def test_what_goes_wrong_is_an_error_with_its_text(tmp_path: Path, body: str, top: str) -> None:
    with Worker(tmp_path, body, top) as worker:
        hello = worker.hello()
        kind, _, text = hello["error"].partition(": ")
        assert kind.endswith("Error")
        assert text
        assert worker.end() == 1
        assert "Traceback" in worker.errors.read_text()


def test_an_error_in_a_window_is_told(tmp_path: Path) -> None:
    body = "steps = []\nreturn Arm(lambda: steps.append(1) or 1 / (2 - len(steps)), float)"
    with Worker(tmp_path, body) as worker:
        assert worker.hello()["check_error"] == 0
        answer = worker.window(lead_in_steps=0, steps=1)
        assert answer == {"error": "ZeroDivisionError: division by zero"}


def test_what_an_error_says_holds_no_path(tmp_path: Path) -> None:
    body = f"open('{tmp_path}/none') if arm == 'loop' else exec(\"raise OSError('1/2 /x and/or')\")"
    with Worker(tmp_path, body) as worker:
        said = worker.hello()["error"]
        assert said == "FileNotFoundError: [Errno 2] No such file or directory: 'none'"
        assert str(tmp_path) in worker.errors.read_text()
    with Worker(tmp_path, body) as worker:
        assert worker.hello(arm="other")["error"] == "OSError: 1/2 /x and/or"


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_an_error_that_is_no_number_is_said_to_be_none(tmp_path: Path, value: str) -> None:
    with Worker(tmp_path, f"return Arm(int, lambda: float('{value}'))") as worker:
        assert worker.hello()["check_error"] == "not a number"


def test_ends_well_when_it_is_asked_nothing(tmp_path: Path) -> None:
    with Worker(tmp_path, "return Arm(int, float)") as worker:
        assert worker.end() == 0


def test_dies_with_its_parent_in_the_middle_of_a_step(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(
        "import os, time\nfrom gpulift_worker import Arm\ndef make(arm, point, seed, gpu):\n"
        "    print(os.getpid(), file=open(os.environ['PID_FILE'], 'w'), flush=True)\n"
        "    time.sleep(3600)\n"
    )
    pid_file = tmp_path / "pid"
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:-1], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdin.write(sys.argv[-1].encode() + b'\\n')\n"
        "child.stdin.flush()\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, *AS_STARTED, str(script), json.dumps(QUESTION)],
        env={**os.environ, "PID_FILE": str(pid_file)},
    ) as started:
        _wait_until(lambda: pid_file.is_file() and pid_file.read_text().strip() != "")
        pid = int(pid_file.read_text())
        assert _lives(pid)
        started.send_signal(signal.SIGKILL)
    _wait_until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def _wait_until(reached: Any) -> None:
    until_s = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_describes_what_scripts_find_and_miss(tmp_path: Path) -> None:
    (tmp_path / "made_up.py").write_text("__version__ = '1.2+x'\n")
    path = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    (tmp_path / "a.good.py").write_text(f"{path}print('noise')\nimport made_up\n")
    (tmp_path / "a.bad.py").write_text("import no_such_package\n")
    (tmp_path / "a.worse.py").write_text("raise OSError('no driver')\n")
    scripts = [str(tmp_path / f"a.{name}.py") for name in ("good", "bad", "worse")]
    done = subprocess.run(
        [sys.executable, str(WORKER), "--describe", *scripts],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (
        found["versions"].items()
        >= {"python": platform.python_version(), "made_up": "1.2+x"}.items()
    )
    assert found["missing"] == {
        "a.bad": "the Python package no_such_package is not installed",
        "a.worse": "OSError: no driver",
    }


def test_describes_the_frameworks_that_scripts_import_late(tmp_path: Path) -> None:
    made = tmp_path / "site" / "jax-1.2.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 1.2\n")
    (tmp_path / "a.good.py").write_text("pass\n")
    done = subprocess.run(
        [sys.executable, str(WORKER), "--describe", str(tmp_path / "a.good.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(made.parent)},
    )
    assert json.loads(done.stdout)["versions"]["jax"] == "1.2"


def test_uses_the_cores_that_the_program_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        'return Arm(step=lambda: 0, error=lambda: 0.0, notes={"cores": str(len(usable_cores()))})'
    )
    top = "from gpulift_worker import usable_cores\n"
    for allowed, expected in (("1", 1), ("100000", len(os.sched_getaffinity(0)))):
        monkeypatch.setenv("GPULIFT_CORES", allowed)
        with Worker(tmp_path, body, top) as worker:
            worker.send(QUESTION)
            assert worker.answer()["notes"]["cores"] == str(expected)
