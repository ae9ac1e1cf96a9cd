"""The process of a Python arm, spoken to as gpulift-bench does."""

from __future__ import annotations

import json
import os
import platform
import py_compile
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from gpulift_manifest import hash_of_work

WORKER = Path(__file__).parents[1] / "gpulift_worker.py"
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
MARKING = f"{LOGGING}class Mark:\n    def __init__(self):\n        say('mark')\n{ELAPSED}"


def test_answers_once_the_arm_is_checked_and_then_windows_until_the_end(tmp_path: Path) -> None:
    with Worker(tmp_path, "return Arm(step=int, error=lambda: 0.25)") as worker:
        hello = worker.hello()
        assert hello["check_error"] == 0.25
        assert hello["peak_host_bytes"] >= 0
        before_s = time.monotonic()
        window = worker.window(lead_in_steps=2, steps=3)
        assert before_s <= window["start_s"] <= time.monotonic(), "one clock with the engine"
        assert 0 < window["enqueue_s"] <= window["host_s"]
        assert set(window) == {"start_s", "host_s", "enqueue_s", "cpu_s"}
        assert worker.end() == 0


def test_gives_the_script_its_case(tmp_path: Path) -> None:
    body = "return Arm(int, float, notes={'case': f'{arm} {point} {seed} {gpu}'})"
    with Worker(tmp_path, body) as worker:
        notes = worker.hello(gpu=2)["notes"]
    assert notes["case"] == "loop {'size': 4} 7 2"


def test_gives_the_script_what_the_engine_says_of_its_launch(tmp_path: Path) -> None:
    top = "import time\nfrom gpulift_worker import check_seed, earlier, launch, shared, spent\n"
    body = (
        "with spent('reference'):\n"
        "    time.sleep(0.01)\n"
        "told = f'{launch()} {check_seed()} {earlier()} {shared()}'\n"
        "return Arm(int, float, notes={'told': told})"
    )
    more = {"launch": 2, "check_seed": 5, "earlier": {"loss": 2.5}, "shared": str(tmp_path)}
    with Worker(tmp_path, body, top) as worker:
        hello = worker.hello(**more)
    assert hello["notes"]["told"] == f"2 5 {{'loss': 2.5}} {tmp_path}"
    assert hello["spent_s"]["reference"] >= 0.01


def test_says_the_versions_of_what_the_script_imports_and_of_what_its_arm_names(
    tmp_path: Path,
) -> None:
    package = tmp_path / "made_up"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '1.2+x'\n")
    (package / "part.py").write_text("")
    # Python's own modules have versions of their own, which say nothing more.
    top = "import json\nimport made_up.part as part\n"
    body = "return Arm(int, float, versions={'zlib': '1.3'}, notes={'threads': '2'})"
    with Worker(tmp_path, body, top) as worker:
        hello = worker.hello()
    expected = {"python": platform.python_version(), "made_up": "1.2+x", "zlib": "1.3"}
    assert hello["versions"] == expected
    assert hello["notes"] == {"threads": "2"}


def test_says_the_version_of_a_framework_that_is_loaded_while_an_arm_is_made(
    tmp_path: Path,
) -> None:
    (tmp_path / "jax.py").write_text("__version__ = '0.9'\n")
    top = "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parent))\n"
    with Worker(tmp_path, "import jax\nreturn Arm(int, float)", top) as worker:
        assert worker.hello()["versions"]["jax"] == "0.9"


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
        ("", "RuntimeError('a stage asked for too much') from MemoryError()"),
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
        assert "larger one" in answer["remedy"]
        assert worker.end() == 0


@pytest.mark.parametrize(
    "said",
    [
        "unable to allocate shared memory(shm) for file </torch_1>: Success (0)",
        "unable to write to file </torch_1>: No space left on device (28)",
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's"
        " workers are out of shared memory. Please try to raise your shared memory limit.",
    ],
)
def test_shared_memory_that_is_too_small_is_said_with_its_remedy(tmp_path: Path, said: str) -> None:
    with Worker(tmp_path, f"raise RuntimeError({'Caught in worker: ' + said!r})") as worker:
        assert worker.hello() == {
            "skipped": "out of shared memory: /dev/shm is full",
            "remedy": "make /dev/shm larger, as docker run --shm-size=8g does",
        }
        assert worker.end() == 0


STEP, WAIT = "lambda: say('step')", "synchronize=lambda: say('wait')"
RESTING = f"return Arm({STEP}, wake=lambda: say('wake'), rest=lambda: say('rest'))"


@pytest.mark.parametrize(
    ("arm", "by_events", "done"),
    [
        (f"return Arm({STEP}, {WAIT}, mark=Mark)", True, "step mark step mark wait"),
        (
            f"return Arm({STEP}, {WAIT}, mark=Mark, before=lambda: say('before'))",
            *(True, "step wait before mark step mark wait"),
        ),
        (RESTING, False, "wake step step rest"),
    ],
)
def test_what_is_done_around_the_steps_of_a_window(
    tmp_path: Path, log: Path, arm: str, by_events: bool, done: str
) -> None:
    with Worker(tmp_path, arm, MARKING) as worker:
        assert worker.hello()["has_events"] == by_events
        log.write_text("")
        worker.window(lead_in_steps=1, steps=1, by_events=by_events)
    assert log.read_text().strip() == done


def test_by_events_extra_work_begins_when_the_steps_are_done(tmp_path: Path, log: Path) -> None:
    with Worker(tmp_path, f"return Arm({STEP}, {WAIT}, mark=Mark)", MARKING) as worker:
        worker.hello(plant=1.0)
        worker.window(lead_in_steps=0, steps=1, by_events=True)
        log.write_text("")
        second = worker.window(lead_in_steps=0, steps=1, by_events=True)
    assert log.read_text().split() == ["mark", "step", "wait", "mark", "wait"]
    assert second["host_s"] >= 5e-3, "as long as the window before, by its events"


WITH_PRECONDITION = "from gpulift_worker import Precondition\n"
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


PROFILED = f"""{LOGGING}
import ctypes
class Driver:
    def __init__(self, name):
        assert name == 'libcuda.so.1'
    def cuProfilerStart(self):
        say('start')
        return int(os.environ.get('REFUSED', '0'))
    def cuProfilerStop(self):
        say('stop')
        return 0
"""
PROFILED_ARM = (
    "import sys; ctypes.CDLL = Driver; return Arm(lambda: say('step'), float,"
    " synchronize=lambda: say('wait'), before=lambda: say('before'), rest=lambda: say('rest'))"
)
WARM = ["before", "step", "wait", "rest"]


@pytest.mark.parametrize(
    ("gpu", "seen"), [(0, ["before", "start", "step", "wait", "stop", "rest"]), (None, WARM)]
)
def test_a_profiler_of_a_gpu_sees_one_whole_step_after_others(
    tmp_path: Path, log: Path, gpu: int | None, seen: list[str]
) -> None:
    with Worker(tmp_path, PROFILED_ARM, PROFILED) as worker:
        worker.hello(gpu=gpu)
        log.write_text("")
        assert worker.ask(profile_step=True) == {"profiled": True}
    assert log.read_text().split() == [*WARM, *WARM, *seen]


def test_a_driver_that_refuses_the_profiler_is_an_error(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSED", "201")
    with Worker(tmp_path, PROFILED_ARM, PROFILED) as worker:
        worker.hello(gpu=0)
        assert "error 201" in worker.ask(profile_step=True)["error"]


FAILING = "say('step') or (1 / 0 if 'start' in open(os.environ['LOG']).read() else 0)"


@pytest.mark.parametrize(
    ("counter", "step", "told", "done"),
    [
        ("counter", "say('step')", {"launches_per_step": 3}, "start step step wait stop"),
        ("missing", "say('step')", {}, ""),
        ("busy", "say('step')", {}, "start step step wait"),  # since other ranks may count
        (
            *("counter", FAILING),
            *({"error": "ZeroDivisionError: division by zero"}, "start step stop"),
        ),
    ],
)
def test_counts_the_launches_of_two_steps(
    tmp_path: Path, log: Path, counter: str, step: str, told: Any, done: str
) -> None:
    body = f"return Arm(lambda: {step}, float, synchronize=lambda: say('wait'))"
    with Worker(tmp_path, body, COUNTING) as worker:
        worker.hello(launch_counter=f"{counter}.so")
        log.write_text("")
        assert worker.ask(launches_per_step=True) == told
    assert log.read_text().strip() == done


def test_says_the_metrics_of_an_arm_after_its_check(tmp_path: Path, log: Path) -> None:
    body = (
        "return Arm(int, lambda: say('check') or 0.0,"
        " metrics=lambda: say('metrics') or {'peak_allocated_bytes': 4096})"
    )
    with Worker(tmp_path, body, LOGGING) as worker:
        assert worker.hello()["metrics"] == {"peak_allocated_bytes": 4096}
    assert log.read_text().split() == ["check", "metrics"]


@pytest.mark.parametrize(
    ("said_of_arm", "error"),
    [
        ("error=lambda: -0.5", "ValueError: the result of error() is -0.5, and cannot be below 0"),
        ("tolerance=-1", "ValueError: the number tolerance is -1, and cannot be below 0"),
        ("tolerance=math.inf", "ValueError: the number tolerance is not finite"),
        ("items=-4", "ValueError: the number items is -4, and cannot be below 0"),
        ("bytes=math.nan", "ValueError: the number bytes is not finite"),
        ("items=4, item=None", "TypeError: the cost's item is NoneType, not text"),
        ("metrics=lambda: {'speed': math.inf}", "ValueError: the metric speed is not finite"),
        (
            "metrics=lambda: {'peak_allocated_bytes': -1}",
            "ValueError: the metric peak_allocated_bytes is -1, and cannot be below 0",
        ),
        (
            "precondition=Precondition('share', lambda: 0.0, math.inf)",
            "ValueError: the precondition's most is not finite",
        ),
        ("notes={'threads': 4}", "TypeError: the note threads is int, not text"),
        ("versions={'zlib': 1.3}", "TypeError: the version of zlib is float, not text"),
    ],
)
def test_what_no_record_can_hold_is_refused(tmp_path: Path, said_of_arm: str, error: str) -> None:
    top = f"import math\n{WITH_PRECONDITION}"
    with Worker(tmp_path, f"return Arm(int, {said_of_arm})", top) as worker:
        assert worker.hello() == {"error": error}
        assert worker.end() == 1


@pytest.mark.parametrize(
    ("elapsed_ms", "what"),
    [("float('nan')", "not finite"), ("-1.5", "-1.5, and cannot be below 0")],
)
def test_a_window_of_an_impossible_time_is_refused(
    tmp_path: Path, elapsed_ms: str, what: str
) -> None:
    top = f"class Mark:\n    def elapsed_time(self, end):\n        return {elapsed_ms}\n"
    with Worker(tmp_path, "return Arm(int, mark=Mark)", top) as worker:
        worker.hello()
        error = worker.window(lead_in_steps=0, steps=1)["error"]
    assert error == f"ValueError: the time between two marks is {what}"


def test_less_than_nothing_is_a_fact_like_others(tmp_path: Path) -> None:
    body = "return Arm(int, lambda: -0.0, metrics=lambda: {'gain': -2.0})"
    with Worker(tmp_path, body) as worker:
        hello = worker.hello()
    assert (hello["check_error"], hello["metrics"]) == (0, {"gain": -2.0})


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


def test_torch_does_not_tell_that_there_is_no_gpu(tmp_path: Path) -> None:
    top = (
        "import logging\n"
        "torch = logging.getLogger('torch.utils.cpp_extension')\n"
        "torch.warning(\"No CUDA runtime is found, using CUDA_HOME='%s'\", '/usr')\n"
        "torch.warning('something else')\n"
    )
    with Worker(tmp_path, "return Arm(int, float)", top) as worker:
        assert worker.hello()["check_error"] == 0
        assert worker.end() == 0
        assert worker.errors.read_text() == "something else\n"


def lacking(package: str, distribution: str) -> dict[str, str]:
    """What is said of an arm that imports what is not there."""
    return {
        "skipped": f"the Python package {package} is not installed",
        "remedy": f"install {distribution}, or name another interpreter with --python",
    }


@pytest.mark.parametrize(
    ("body", "top", "told"),
    [
        ("return Arm(int, float)", "import no_such_package\n", lacking(*2 * ["no_such_package"])),
        ("import no_such_package\nreturn Arm(int)", "", lacking(*2 * ["no_such_package"])),
        ("raise ModuleNotFoundError(name='PIL')", "", lacking("PIL", "pillow")),
        (
            "raise Skip('not\\nhere', 'go\\n\\nthere')",
            "",
            {"skipped": "not here", "remedy": "go there"},
        ),
        (  # in a spawned process, in which Skip is the same class
            "multiprocessing.get_context('spawn').Pool(1).map(refuse, [1])",
            "import multiprocessing\ndef refuse(_):\n    raise Skip('not there')\n",
            {"skipped": "not there", "remedy": ""},
        ),
        (
            "raise RuntimeError('CUDA error: CUDA-capable device(s) is/are busy or unavailable"
            "\\nCompile with DSA.')",
            "",
            {
                "skipped": "the GPU is busy or unavailable",
                "remedy": "end what uses it, which nvidia-smi shows, or name another: --gpus",
            },
        ),
        (
            "raise RuntimeError('NCCL error\\n\\n  Last error:\\nnone')",
            "",
            {"error": "RuntimeError: NCCL error Last error: none"},
        ),
        (  # standard error is gone
            "reader, writer = os.pipe()\nos.close(reader)\nos.dup2(writer, 2)\n1 / 0",
            "import os\n",
            {"error": "ZeroDivisionError: division by zero"},
        ),
        ("pass", "", {"error": "TypeError: make() returned NoneType, not an Arm"}),
        ("return int", "", {"error": "TypeError: make() returned type, not an Arm"}),
        ("return Arm(4)", "", {"error": "TypeError: make() returned an Arm whose step is int"}),
    ],
)
def test_why_there_is_no_arm_is_told_in_a_line(
    tmp_path: Path, body: str, top: str, told: dict[str, str]
) -> None:
    with Worker(tmp_path, body, top) as worker:
        assert worker.hello() == told
        assert worker.end() == ("error" in told)


@pytest.mark.parametrize(
    ("body", "top"),
    [
        ("raise ValueError('on purpose')", ""),
        ("raise Skip(' ', 'go there')", ""),
        ("return Arm(lambda: int('x'), float)", ""),
        ("return Arm(int, lambda: 1 / 0)", ""),
        ("return Arm(int, float)", "raise ImportError('broken library')\n"),
        ("return Arm(int, float)", "this is no Python\n"),
        ("return Arm(int, float, rest=lambda: 1 / 0)", ""),
    ],
)
def test_what_goes_wrong_is_an_error_with_its_text(tmp_path: Path, body: str, top: str) -> None:
    with Worker(tmp_path, body, top) as worker:
        hello = worker.hello()
        kind, _, text = hello["error"].partition(": ")
        assert kind.endswith("Error")
        assert text
        assert worker.end() == 1
        assert kind in worker.errors.read_text()


@pytest.mark.parametrize("when", ["loaded", "made", "checked"])
def test_a_traceback_begins_in_the_script(tmp_path: Path, when: str) -> None:
    top = "import json\ndef fail():\n    json.loads('{')\n"
    top += "fail()\n" if when == "loaded" else ""
    with Worker(tmp_path, "fail()" if when == "made" else "return Arm(fail)", top) as worker:
        worker.hello()
        worker.end()
    said = worker.errors.read_text()
    head, first, *_ = said.splitlines()
    assert head == "Traceback (most recent call last):"
    assert first.startswith(f'  File "{tmp_path}/theme.name.py", line ')
    assert "/json/decoder.py" in said, "and goes on to where it was raised"
    assert said.splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ("", "TypeError: make() returned NoneType, not an Arm"),
        ("def broken(:\n", "SyntaxError: "),
    ],
)
def test_an_error_outside_of_the_script_has_no_traceback(
    tmp_path: Path, top: str, said: str
) -> None:
    with Worker(tmp_path, "pass", top) as worker:
        worker.hello()
        worker.end()
    lines = worker.errors.read_text().splitlines()
    assert lines[-1].startswith(said)
    assert "Traceback" not in lines[0]


@pytest.mark.parametrize("text", ["'z' * 3_000_000", "'z\\n' * 1_000_000", "'\\x1b' * 3_000_000"])
def test_a_traceback_of_a_huge_text_is_no_huge_one(tmp_path: Path, text: str) -> None:
    with Worker(tmp_path, f"raise ValueError({text})") as worker:
        worker.hello()
        worker.end()
    said = worker.errors.read_text()
    assert "theme.name.py" in said
    assert len(said) < 10_000
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "raise ValueError('y' * 1_500_000 + 'z' * 1_500_000)",
            f"ValueError: {'y' * 488}... (2999012 more characters) ...{'z' * 500}",
        ),
        ("raise ValueError('bad \\udcff bytes')", r"ValueError: bad \udcff bytes"),
        ("raise ValueError('\\x1b[31mred\\x00\\u202e')", r"ValueError: \x1b[31mred\x00\u202e"),
        ("raise ValueError(b'\\xff\\n')", r"ValueError: b'\xff\n'"),
        ("raise BrokenPipeError('of a child')", "BrokenPipeError: of a child"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise Untold", "Untold: its text cannot be told (ZeroDivisionError)"),
        ("sys.exit()", "the script ended itself by sys.exit(None)"),
        ("sys.exit(0)", "the script ended itself by sys.exit(0)"),
        ("sys.exit('no data')", "the script ended itself by sys.exit('no data')"),
    ],
)
@pytest.mark.parametrize("when", ["made", "checked", "timed"])
def test_whatever_ends_a_script_is_one_line_that_is_not_lost(
    tmp_path: Path, body: str, said: str, when: str
) -> None:
    top = (
        "import sys\nclass Untold(Exception):\n    def __str__(self): return 1 / 0\n"
        f"def end():\n    {body}\n"
    )
    make = {
        "made": "end()",
        "checked": "return Arm(end)",
        "timed": "steps = []\nreturn Arm(lambda: end() if steps else steps.append(1))",
    }
    with Worker(tmp_path, make[when], top) as worker:
        answer = worker.hello()
        if when == "timed":
            answer = worker.window(lead_in_steps=0, steps=1)
        assert answer == {"error": said}
        assert worker.end() == 1


def test_an_import_that_ends_the_script_is_one_line(tmp_path: Path) -> None:
    top = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('data')\nparser.parse_args()\n"
    )
    with Worker(tmp_path, "return Arm(int)", top) as worker:
        assert worker.hello() == {"error": "the script ended itself by sys.exit(2)"}
        assert worker.end() == 1
        assert "required: data" in worker.errors.read_text()


def test_names_and_notes_that_no_terminal_shows_are_escaped(tmp_path: Path) -> None:
    body = (
        "odd = '\\x1b[2J\\udcff\\n'\n"
        "return Arm(int, notes={odd: odd}, versions={odd: odd}, metrics=lambda: {odd: 1.0},"
        " items=1, item=odd)"
    )
    with Worker(tmp_path, body) as worker:
        hello = worker.hello()
    odd = r"\x1b[2J\udcff\n"
    assert hello["notes"] == {odd: odd}
    assert hello["versions"][odd] == odd
    assert hello["metrics"] == {odd: 1.0}
    assert hello["cost"]["item"] == odd


def test_an_error_in_the_tenth_step_is_told_in_one_answer(tmp_path: Path) -> None:
    body = "steps = []\nreturn Arm(lambda: steps.append(1) or 1 / (10 - len(steps)), float)"
    with Worker(tmp_path, body) as worker:
        assert worker.hello()["check_error"] == 0
        assert "host_s" in worker.window(lead_in_steps=1, steps=6)
        answer = worker.window(lead_in_steps=1, steps=6)
        assert answer == {"error": "ZeroDivisionError: division by zero"}
        assert worker.end() == 1
        assert "Traceback" in worker.errors.read_text()


def test_what_an_error_says_holds_no_path(tmp_path: Path) -> None:
    body = f"open('{tmp_path}/none') if arm == 'loop' else exec(\"raise OSError('1/2 /x and/or')\")"
    with Worker(tmp_path, body) as worker:
        said = worker.hello()["error"]
        assert said == "FileNotFoundError: [Errno 2] No such file or directory: 'none'"
        assert str(tmp_path) in worker.errors.read_text()
    with Worker(tmp_path, body) as worker:
        assert worker.hello(arm="other")["error"] == "OSError: 1/2 /x and/or"


@pytest.mark.parametrize(
    "result",
    [
        *("lambda: float('nan')", "lambda: float('inf')"),
        *("None, value=lambda: float('nan')", "float, value=lambda: float('nan')"),
    ],
)
def test_a_result_that_is_no_number_is_said_to_be_none(tmp_path: Path, result: str) -> None:
    with Worker(tmp_path, f"return Arm(int, {result})") as worker:
        hello = worker.hello()
    assert hello["check_error"] == "not a number"
    assert "value" not in hello


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


def described(*scripts: Path) -> Any:
    """What is told of scripts before any arm of theirs is made."""
    command = [sys.executable, str(WORKER), "--describe", *map(str, scripts)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def test_describes_what_scripts_find_and_miss(tmp_path: Path) -> None:
    (tmp_path / "made_up.py").write_text("__version__ = '1.2+x'\n")
    path = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
    (tmp_path / "a.good.py").write_text(f"{path}print('noise')\nimport made_up\n")
    (tmp_path / "a.bad.py").write_text("import no_such_package\n")
    (tmp_path / "a.worse.py").write_text("raise OSError('no driver')\n")
    (tmp_path / "a.ends.py").write_text("raise SystemExit(2)\n")
    found = described(*(tmp_path / f"a.{name}.py" for name in ("ends", "good", "bad", "worse")))
    expected = {"python": platform.python_version(), "made_up": "1.2+x"}
    assert found["versions"].items() >= expected.items()
    assert found["missing"] == {
        "a.bad": "the Python package no_such_package is not installed",
        "a.worse": "OSError: no driver",
        "a.ends": "the script ended itself by sys.exit(2)",
    }


def test_describes_the_frameworks_that_scripts_import_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "site" / "jax-1.2.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 1.2\n")
    (tmp_path / "a.good.py").write_text("pass\n")
    monkeypatch.setenv("PYTHONPATH", str(made.parent))
    assert described(tmp_path / "a.good.py")["versions"]["jax"] == "1.2"


def test_uses_the_cores_that_the_program_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = 'return Arm(step=lambda: 0, error=lambda: 0.0, notes={"cores": str(cores())})'
    top = "from gpulift_worker import cores\n"
    for allowed, expected in (("1", 1), ("100000", len(os.sched_getaffinity(0)))):
        monkeypatch.setenv("GPULIFT_CORES", allowed)
        with Worker(tmp_path, body, top) as worker:
            worker.send(QUESTION)
            assert worker.answer()["notes"]["cores"] == str(expected)


def test_an_arm_without_an_error_and_a_value_is_not_checked(tmp_path: Path) -> None:
    with Worker(tmp_path, "return Arm(int)") as worker:
        hello = worker.hello()
    assert hello.keys().isdisjoint(
        {"check_error", "value", "tolerance", "cost", "precondition", "scratch"}
    )
    assert hello["has_before"] is False


def test_says_the_value_after_one_step_whatever_steps_the_error_takes(tmp_path: Path) -> None:
    body = (
        "steps = []\n"
        "step = lambda: steps.append(1)\n"
        "error = lambda: step() or 0.5\n"
        "return Arm(step, error, value=lambda: len(steps), tolerance=1)"
    )
    with Worker(tmp_path, body) as worker:
        hello = worker.hello()
    assert (hello["value"], hello["check_error"], hello["tolerance"]) == (1.0, 0.5, 1.0)


def test_says_the_work_of_a_step(tmp_path: Path) -> None:
    body = "return Arm(int, float, items=64, item='image', bytes=3.5, roof='host_memory')"
    with Worker(tmp_path, body) as worker:
        cost = worker.hello()["cost"]
    assert cost == {
        **{"bytes": 3.5, "flops": 0.0, "items": 64.0},
        **{"item": "image", "roof": "host_memory"},
    }


AROUND = (
    "return Arm(lambda: say('step'), lambda: say('check') or 0.0,"
    " synchronize=lambda: say('wait'), before=lambda: say('before'), rest=lambda: say('rest'),"
    " wake=lambda: say('wake'), metrics=lambda: say('metrics') or {},"
    " precondition=Precondition('share', lambda: say('look') or 0.25, most=0.5))"
)


def test_goes_round_each_step_untimed_and_looks_whether_its_precondition_holds(
    tmp_path: Path, log: Path
) -> None:
    with Worker(tmp_path, AROUND, LOGGING + WITH_PRECONDITION) as worker:
        hello = worker.hello()
        assert hello["precondition"] == {"name": "share", "most": 0.5, "seen": 0.25}
        assert hello["has_before"] is True
        assert log.read_text().split() == [
            *("wake", "before", "look", "step", "wait", "rest", "check", "metrics", "wait", "rest")
        ]
        log.write_text("")
        assert worker.window(lead_in_steps=0, steps=1)["precondition"] == 0.25
    assert log.read_text().split() == ["wake", "wait", "before", "look", "step", "wait", "rest"]


def test_windows_of_a_visit_are_taken_in_one_waking(tmp_path: Path, log: Path) -> None:
    with Worker(tmp_path, RESTING, LOGGING) as worker:
        assert worker.hello()["rests"]
        log.write_text("")
        assert worker.ask(wake=True) == {"awake": True}
        worker.window(0, 1)
        worker.window(1, 1)
        assert worker.ask(rest=True) == {"awake": False}
        worker.window(0, 1)
    assert log.read_text().split() == [
        *("wake", "step", "step", "step", "rest"),
        *("wake", "step", "rest"),
    ]


def test_launches_are_counted_within_a_visit(tmp_path: Path, log: Path) -> None:
    with Worker(tmp_path, RESTING, COUNTING) as worker:
        worker.hello(launch_counter="counter.so")
        log.write_text("")
        worker.ask(wake=True)
        worker.window(0, 1)
        worker.ask(launches_per_step=True)
        worker.ask(rest=True)
    assert log.read_text().split() == ["wake", "step", "start", "step", "step", "stop", "rest"]


@pytest.mark.parametrize(
    ("arm", "rests"),
    [
        ("wake=lambda: 0, rest=lambda: 0", True),
        ("rest=lambda: 0", False),
        ("wake=lambda: 0", False),  # which renews what windows wear out
        ("wake=lambda: 0, rest=lambda: 0, before=lambda: 0", False),  # each window begins afresh
    ],
)
def test_an_arm_rests_where_it_both_gives_up_and_brings_back(
    tmp_path: Path, arm: str, *, rests: bool
) -> None:
    with Worker(tmp_path, f"return Arm(int, {arm})") as worker:
        assert worker.hello()["rests"] is rests


def test_neither_end_of_a_window_is_timed(tmp_path: Path) -> None:
    top = "import time\n"
    slow = "lambda: time.sleep(0.2)"
    body = f"return Arm(int, float, wake={slow}, before={slow}, rest={slow})"
    with Worker(tmp_path, body, top) as worker:
        worker.hello()
        began_s = time.monotonic()
        window = worker.window(lead_in_steps=0, steps=1)
        assert time.monotonic() - began_s >= 0.6
    assert window["host_s"] < 0.2
    assert window["start_s"] >= began_s + 0.4


def test_a_counted_step_has_its_ends_too(tmp_path: Path, log: Path) -> None:
    with Worker(tmp_path, AROUND, COUNTING + WITH_PRECONDITION) as worker:
        worker.hello(launch_counter="counter.so")
        log.write_text("")
        assert worker.ask(launches_per_step=True) == {"launches_per_step": 3}
    assert log.read_text().split() == ["wake", "before", "start", "step", "wait", "stop", "rest"]


@pytest.mark.parametrize(
    ("looks", "answer"),
    [
        ("[None]", {"skipped": "share cannot be told here", "remedy": "use Linux 6.5"}),
        ("[0.75]", {"failed": "share is 0.75, and may be 0.5 at most"}),
        ("[float('nan')]", {"failed": "share is nan, and may be 0.5 at most"}),
    ],
)
def test_an_arm_whose_precondition_does_not_hold_at_first_takes_no_step(
    tmp_path: Path, looks: str, answer: Any
) -> None:
    body = (
        f"looks = iter({looks})\n"
        "required = Precondition('share', lambda: next(looks), 0.5, 'use Linux 6.5')\n"
        "return Arm(lambda: 1 / 0, precondition=required)"
    )
    with Worker(tmp_path, body, WITH_PRECONDITION) as worker:
        assert worker.hello() == answer


@pytest.mark.parametrize("look", ["None", "float('nan')"])
def test_a_precondition_that_is_no_longer_told_is_an_error_and_one_that_no_longer_holds_is_said(
    tmp_path: Path, look: str
) -> None:
    body = (
        f"looks = iter([0.0, 0.75, {look}])\n"
        "return Arm(int, precondition=Precondition('share', lambda: next(looks)))"
    )
    with Worker(tmp_path, body, WITH_PRECONDITION) as worker:
        assert worker.hello()["precondition"]["seen"] == 0
        assert worker.window(lead_in_steps=0, steps=1)["precondition"] == 0.75
        answer = worker.window(lead_in_steps=0, steps=1)
    assert answer == {"error": "RuntimeError: share can no longer be told"}


BUSY = """import os, threading, time
def keep_busy(cpu_s):
    start_s = time.thread_time()
    while time.thread_time() - start_s < cpu_s:
        pass
def in_child(cpu_s):
    child = os.fork()
    if child == 0:
        keep_busy(cpu_s)
        os._exit(0)
    os.waitpid(child, 0)
def in_grandchild(cpu_s):
    child = os.fork()
    if child == 0:
        in_child(cpu_s)
        os._exit(0)
    os.waitpid(child, 0)
def in_thread(cpu_s):
    thread = threading.Thread(target=keep_busy, args=(cpu_s,))
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("where", ["keep_busy", "in_thread", "in_child", "in_grandchild"])
def test_counts_the_processor_time_of_threads_and_children(tmp_path: Path, where: str) -> None:
    with Worker(tmp_path, f"return Arm(lambda: {where}(0.1), rest=lambda: {where}(0.2))", BUSY) as (
        worker
    ):
        worker.hello()
        window = worker.window(lead_in_steps=1, steps=1)
    assert 0.09 <= window["cpu_s"] < 0.25, "that of the step alone"


def test_counts_what_a_child_that_lives_on_did_in_the_window(tmp_path: Path) -> None:
    body = (
        "import subprocess\n"
        "code = 'import sys, time\\n' + keep_busy_source + "
        "'for _ in sys.stdin:\\n    keep_busy(0.1)\\n    print(flush=True)\\n'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], stdin=-1, stdout=-1)\n"
        "def step():\n"
        "    child.stdin.write(b'go\\n')\n"
        "    child.stdin.flush()\n"
        "    child.stdout.readline()\n"
        "return Arm(step)"
    )
    source = BUSY[BUSY.index("def keep_busy") : BUSY.index("def in_child")]
    top = f"import sys\nkeep_busy_source = {source!r}\n"
    with Worker(tmp_path, body, top) as worker:
        worker.hello()
        for _ in range(2):
            assert 0.09 <= worker.window(lead_in_steps=1, steps=1)["cpu_s"] < 0.25


def test_the_past_of_a_child_that_nobody_waits_for_does_not_count_against_a_window(
    tmp_path: Path,
) -> None:
    top = BUSY + "import signal\n"
    body = (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    keep_busy(0.2)\n"
        "    time.sleep(60)\n"
        "time.sleep(0.5)\n"
        "steps = []\n"
        "def step():\n"
        "    steps.append(1)\n"
        "    if len(steps) == 2:\n"
        "        os.kill(child, signal.SIGKILL)\n"
        "        while os.path.exists(f'/proc/{child}'):\n"
        "            time.sleep(0.01)\n"
        "return Arm(step)"
    )
    with Worker(tmp_path, body, top) as worker:
        worker.hello()
        assert worker.window(lead_in_steps=0, steps=1)["cpu_s"] >= 0


METER = """class Meter:
    def __init__(self):
        say('look')
    def restart(self):
        say('restart')
    def used_s(self):
        say('used')
        return 0.25
class Mark:
    def __init__(self):
        say('mark')
"""


@pytest.mark.parametrize(
    ("by_events", "before", "lead_in_steps", "expected"),
    [
        (True, "nothing", 2, "look step step restart mark step mark wait used"),
        (False, "nothing", 1, "look step wait restart mark step mark wait used"),
        (True, "lambda: say('evict')", 0, "look wait evict look restart mark step mark wait used"),
    ],
)
def test_processes_are_looked_for_where_the_pause_does_no_harm(
    tmp_path: Path, log: Path, by_events: bool, before: str, lead_in_steps: int, expected: str
) -> None:
    top = LOGGING + METER + ELAPSED + "import gpulift_worker\nfrom gpulift_worker import nothing\n"
    body = (
        "gpulift_worker.CpuMeter = Meter\n"
        f"return Arm(lambda: say('step'), mark=Mark, synchronize=lambda: say('wait'),"
        f" before={before})"
    )
    with Worker(tmp_path, body, top) as worker:
        worker.hello()
        log.write_text("")
        window = worker.window(lead_in_steps, steps=1, by_events=by_events)
    assert log.read_text().strip() == expected
    assert window["cpu_s"] == 0.25


def test_a_case_of_no_sweep_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    for body in ("return {}[point['size']]", "return Arm(lambda: {}[point['size']])"):
        with Worker(tmp_path, body) as worker:
            assert re.fullmatch(
                r"KeyError: 4 \([\w.]+\.py, line \d+\)", worker.hello(off_sweep=True)["error"]
            )
        assert worker.errors.read_text() == ""
        with Worker(tmp_path, body) as worker:
            assert worker.hello() == {"error": "KeyError: 4"}
        assert "Traceback" in worker.errors.read_text(), "which the script's author wants"


def test_a_case_of_no_sweep_may_be_too_large_or_wrong(tmp_path: Path) -> None:
    bodies = {
        "raise MemoryError": "skipped",
        "raise OSError(12, 'Cannot allocate memory')": "skipped",
        "raise Skip('no')": "skipped",
        "raise RuntimeError('unable to write to file </torch_1>')": "skipped",
        "raise gpulift_worker.Failed('no')": "failed",
    }
    for body, outcome in bodies.items():
        with Worker(tmp_path, body, "import gpulift_worker\n") as worker:
            assert outcome in worker.hello(off_sweep=True), body


def test_extra_work_that_took_a_whole_window_plants_none_in_the_next(tmp_path: Path) -> None:
    top = (
        "class Mark:\n    times_ms = [50.0, 50.0, 50.0]\n"
        "    def elapsed_time(self, end):\n        return Mark.times_ms.pop(0)\n"
    )
    with Worker(tmp_path, "return Arm(int, mark=Mark)", top) as worker:
        worker.hello(plant=2.0)
        windows = [worker.window(0, 1, by_events=True) for _ in range(3)]
    # 100 ms of work in a window that took 50 by its events: then the third gets none.
    assert windows[1]["host_s"] >= 0.1 > windows[2]["host_s"]
    assert all("planted" not in window for window in windows)


SCRATCH = (
    "folder = scratch()\n"
    "return Arm(int, notes={'same': str(scratch() == folder), 'is': str(folder.is_dir())})"
)
WITH_SCRATCH = "from gpulift_worker import scratch\n"


def test_makes_the_scratch_folder_and_says_the_facts_of_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    for _ in ("first arm", "second arm"):
        with Worker(tmp_path, SCRATCH, WITH_SCRATCH) as worker:
            hello = worker.hello()
        assert hello["notes"] == {"same": "True", "is": "True"}
        assert hello["scratch"]["filesystem"]
        assert hello["scratch"]["in_memory"] in (True, False)
        assert str(tmp_path) not in json.dumps(hello)


def test_the_scratch_folder_is_not_made_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    with Worker(tmp_path, "return Arm(int)", WITH_SCRATCH) as worker:
        assert "scratch" not in worker.hello()
    assert not (tmp_path / "case").exists()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"GPULIFT_SCRATCH_MISSING": "the disk is full"}, "the disk is full"),
        ({}, "no scratch folder"),
        (
            {"GPULIFT_SCRATCH": "/nowhere/case"},
            "the scratch folder cannot be made: No such file or directory",
        ),
    ],
)
def test_without_a_scratch_folder_an_arm_that_asks_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], reason: str
) -> None:
    for name in ("GPULIFT_SCRATCH", "GPULIFT_SCRATCH_MISSING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Worker(tmp_path, SCRATCH, WITH_SCRATCH) as worker:
        assert worker.hello() == {
            "skipped": reason,
            "remedy": "name a folder on a disk: --scratch DIR",
        }


PROMISES = """
async def coroutine(): raise SystemError
async def async_generator(): yield 1
def generator(): yield 1
def list_iterator(): return iter([1])
"""


@pytest.mark.parametrize(
    "name", ["step", "synchronize", "before", "rest", "wake", "value", "metrics"]
)
@pytest.mark.parametrize("kind", ["coroutine", "async_generator", "generator", "list_iterator"])
def test_what_was_promised_and_not_done_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    body = f"return Arm(**{{'step': int, 'error': float, '{name}': {kind}}})"
    with Worker(tmp_path, body, PROMISES) as worker:
        said = f"TypeError: {name}() returned {kind}, whose work nobody has waited for"
        assert worker.hello()["error"].startswith(said)
        assert worker.end() == 1
        (line,) = worker.errors.read_text().splitlines()
    assert line.startswith(said)


def test_a_script_without_make_is_said(tmp_path: Path) -> None:
    with Worker(tmp_path, "pass", "") as worker:
        (tmp_path / "theme.name.py").write_text("ARMS = ['a']\n")
        error = worker.hello()["error"]
    said = "AttributeError: theme.name.py has no function make(arm, point, seed, gpu)"
    assert error == said


def test_generators_that_a_script_draws_from_start_from_the_seed(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import random\nrandom = random.Random()\n")
    (tmp_path / "torch.py").write_text("seeds = []\nmanual_seed = seeds.append\n")
    top = (
        "import random, sys\nfrom pathlib import Path\n"
        "sys.path.insert(0, str(Path(__file__).parent))\nimport numpy, torch\n"
    )
    body = (
        "drawn = (random.random(), numpy.random.random(), torch.seeds)\n"
        "return Arm(int, notes={'drawn': str(drawn)})"
    )
    drawn = []
    for seed in (2**64 - 1, 2**64 - 1, 1):
        with Worker(tmp_path, body, top) as worker:
            drawn.append(worker.hello(seed=seed)["notes"]["drawn"])
    assert drawn[0] == drawn[1] != drawn[2]
    assert "[18446744073709551615]" in drawn[0]


def test_a_script_finds_its_siblings_after_all_else_and_nothing_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = tmp_path / "current"
    current.mkdir()
    (current / "elsewhere.py").write_text("")
    for name in ("sibling", "wave", "gpulift_files"):
        (tmp_path / f"{name}.py").write_text("here = True\n")
    monkeypatch.chdir(current)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/no/such/folder")
    top = "import sibling, wave, gpulift_files, importlib.util\n"
    body = (
        "found = [hasattr(one, 'here') for one in (sibling, wave, gpulift_files)]\n"
        "elsewhere = importlib.util.find_spec('elsewhere')\n"
        "return Arm(int, notes={'found': str(found), 'elsewhere': str(elsewhere)})"
    )
    with Worker(tmp_path, body, top) as worker:
        notes = worker.hello()["notes"]
    assert notes == {"found": "[True, False, False]", "elsewhere": "None"}


@pytest.mark.parametrize("against", ["", "nothing forbids it", "compiled", "own prefix", "no room"])
def test_keeps_the_bytecode_of_a_torch_that_is_bare_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, against: str
) -> None:
    torch, cache = tmp_path / "torch" / "__init__.py", tmp_path / "cache"
    torch.parent.mkdir()
    torch.write_text("def manual_seed(seed): pass\n")
    (tmp_path / "torch-1.dist-info").mkdir()
    (tmp_path / "torch-1.dist-info" / "METADATA").write_text("Name: torch\nVersion: 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "" if against == "nothing forbids it" else "1")
    if against == "compiled":
        py_compile.compile(str(torch))
    if against == "own prefix":
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "own"))
    if against == "no room":
        cache.touch()
    body = (
        "child = [sys.executable, '-c', 'import sys; print(sys.pycache_prefix)']\n"
        "said = subprocess.run(child, capture_output=True, text=True, check=True).stdout\n"
        "return Arm(int, notes={'own': str(sys.pycache_prefix), 'child': said.strip()})"
    )
    with Worker(tmp_path, body, "import subprocess, sys, torch\n") as worker:
        notes = worker.hello()["notes"]
    (kept,) = [str(one) for one in cache.glob("gpulift/bytecode/*")] or ["None"]
    assert (kept == "None") == bool(against)
    folder = str(tmp_path / "own") if against == "own prefix" else kept
    assert notes == {"own": folder, "child": folder}
    assert bool(list(cache.glob("**/torch/__init__*.pyc"))) != bool(against)


def test_runs_where_python_leaves_out_the_folder_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    top = "import gpulift_files\n"
    with Worker(tmp_path, "return Arm(int, notes={'in': 'order'})", top) as worker:
        assert worker.hello()["notes"] == {"in": "order"}


def test_a_script_sees_what_it_would_as_a_program_but_for_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = tmp_path / "current"
    current.mkdir()
    monkeypatch.chdir(current)
    top = (
        "import argparse, os, sys\noptions = argparse.ArgumentParser().parse_args()\n"
        "if __name__ == '__main__':\n    raise SystemError\n"
    )
    body = (
        "main = sys.modules['__main__']\n"
        "return Arm(int, notes={'argv': ' '.join(sys.argv), 'cwd': os.getcwd(),"
        " 'main': str(main.make is make), 'file': main.__file__})"
    )
    with Worker(tmp_path, body, top) as worker:
        notes = worker.hello()["notes"]
    script = str(tmp_path / "theme.name.py")
    assert notes == {"argv": script, "cwd": str(current), "main": "True", "file": script}


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_processes_that_a_script_spawns_find_what_it_defines(tmp_path: Path, how: str) -> None:
    (tmp_path / "technique.py").write_text("raise SystemError('another file')\n")
    (tmp_path / "elsewhere").mkdir()
    top = (
        "import multiprocessing\n"
        "class Refused(Exception): pass\n"
        "def double(number):\n"
        "    if number is None:\n        raise Refused\n"
        "    return 2 * number\n"
    )
    body = (
        f"with multiprocessing.get_context('{how}').Pool(1) as pool:\n"
        "    doubled = pool.map(double, [1, 2])\n"
        "    try:\n        pool.map(double, [None])\n"
        "    except Refused as refused:\n        doubled.append(type(refused).__name__)\n"
        "return Arm(int, notes={'doubled': str(doubled)})"
    )
    with Worker(tmp_path, body, top) as worker:
        script = tmp_path / "theme.name.py"
        linked = tmp_path / "elsewhere" / "my_name.py"  # `bench` links to the file of a user
        script.rename(linked)
        script.symlink_to(linked)
        assert worker.hello()["notes"] == {"doubled": "[2, 4, 'Refused']"}
        assert worker.end() == 0


def test_a_script_may_define_dataclasses(tmp_path: Path) -> None:
    top = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Size:\n    width: int = 8\n"
    )
    with Worker(tmp_path, "return Arm(int, notes={'width': str(Size().width)})", top) as worker:
        assert worker.hello()["notes"] == {"width": "8"}


def write_manifest(folder: Path, **source: str) -> None:
    """That of the worker's script, with these hashes of files; `name` is the script's."""
    hashes = {f"{stem}.py": digest for stem, digest in source.items()}
    (folder / "theme.name.json").write_text(json.dumps({"source": hashes}))


def test_a_script_that_changed_since_the_run_began_does_not_run(tmp_path: Path) -> None:
    write_manifest(tmp_path, name="0" * 64)
    with Worker(tmp_path, "return Arm(int)", "open(__file__ + '.ran', 'w')\n") as worker:
        assert worker.hello() == {"error": "name.py changed since the run began: run it again"}
        assert worker.end() == 1
    assert not (tmp_path / "theme.name.py.ran").exists()


@pytest.mark.parametrize("known", [True, False])
def test_a_script_that_is_what_its_manifest_says_or_not_named_in_it_runs(
    tmp_path: Path, known: bool
) -> None:
    with Worker(tmp_path, "return Arm(int)") as worker:
        script = tmp_path / "theme.name.py"
        elsewhere = tmp_path / "elsewhere" / "my_name.py"  # where a link to it leads
        elsewhere.parent.mkdir()
        script.rename(elsewhere)
        script.symlink_to(elsewhere)
        digest = hash_of_work("name.py", b"# as it was\n" + elsewhere.read_bytes())
        write_manifest(tmp_path, **({"name": digest} if known else {"other": "0" * 64}))
        assert "error" not in worker.hello()
