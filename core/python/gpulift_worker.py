"""The process of a Python arm: `python gpulift_worker.py SCRIPT`, started by gpulift-bench.

The script beside a technique defines one function, and never sees a clock or a loop count:

    def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm

Questions come as JSON lines on standard input, answers go to file descriptor 3: first the arm with
its case, answered once it is checked, then windows until the input closes. `--describe SCRIPT...`
instead prints as JSON which versions the scripts find, or what they miss.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import signal
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic  # CLOCK_MONOTONIC, the clock of the C++ windows
from types import ModuleType
from typing import Any, Protocol, TextIO

REPLY_DESCRIPTOR = 3
COUNTED_STEPS = 2
FRAMEWORKS = ("torch", "jax")
MORE_MEMORY = "free the GPU's memory, or use a larger GPU"
EXHAUSTED = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "RESOURCE_EXHAUSTED")
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>

FOLDERS = re.compile(r"(?<![\w/])/(?:[^\s/:'\"]+/)+")  # of an absolute path

Json = dict[str, Any]
Point = Mapping[str, "int | str"]


class Mark(Protocol):
    """A place in the device's queue, such as a recorded torch.cuda.Event with timing."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds until the later mark; both have been reached."""


def nothing() -> None:
    """Waits for nothing: a step on the host is done when it returns."""


@dataclass(frozen=True)
class Arm:
    """What a script makes. `error` is called once, after one step: 0 for the same result.

    `synchronize` waits for the work of all steps; `mark` makes a mark in the device's queue. With
    marks, and where all arms of the case have such, the time between two of them is the window's.
    `metrics` is called once, after `error`, and may take steps: facts whose names end in their
    units, such as peak_allocated_bytes.
    """

    step: Callable[[], object]
    error: Callable[[], float]
    synchronize: Callable[[], object] = nothing
    mark: Callable[[], Mark] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    metrics: Callable[[], Mapping[str, float]] = dict


def usable_cores() -> list[int]:
    """Those that this process may keep busy: fewer than it may run on where a container says so,
    which the program that starts it knows."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[: int(os.environ.get("GPULIFT_CORES", len(cores)))]


class Skip(Exception):
    """The arm cannot run here, for this reason; the remedy says what would help.

    Raises ValueError without a reason: a record of a skip that does not say why cannot be read.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        if not reason.strip():
            raise ValueError("a skip says why")
        super().__init__(reason)
        self.remedy = remedy


class Windows:
    """Runs windows of an arm, each with extra work of `plant` times its length behind its steps.

    The first window gets none, since it tells how much a fraction of a window is.
    """

    def __init__(self, arm: Arm, plant: float) -> None:
        self._arm = arm
        self._plant = plant
        self._step_s: float | None = None
        self._planted: list[float] = []

    def run(self, lead_in_steps: int, steps: int, *, by_events: bool) -> Json:
        """One window: its start on the steady clock and its times, all in seconds.

        By events, steps follow those of the lead-in as in a training loop. By the wall clock, the
        lead-in's work is waited for before the window begins.
        """
        arm, step = self._arm, self._arm.step
        gc.collect()  # the collector is off inside windows
        for _ in range(lead_in_steps):
            step()
        if not by_events:
            arm.synchronize()
        begin = arm.mark() if arm.mark else None
        start_s = monotonic()
        for _ in range(steps):
            step()
        enqueued_s = monotonic()
        added_s = self._add_work(steps)
        end = arm.mark() if arm.mark else None
        arm.synchronize()
        host_s = monotonic() - start_s
        answer = {"start_s": start_s, "host_s": host_s, "enqueue_s": enqueued_s - start_s}
        if begin is not None:
            answer["device_s"] = begin.elapsed_time(end) / 1e3
        self._learn(answer["device_s"] if by_events else host_s, added_s, steps)
        if self._planted:
            answer["planted"] = statistics.median(self._planted)
        return answer

    def _add_work(self, steps: int) -> float:
        """Keeps this thread busy for the planted time once all steps are done; the time it took."""
        work_s = self._plant * (self._step_s or 0.0) * steps
        if work_s == 0:
            return 0.0
        self._arm.synchronize()
        start_s = monotonic()
        while monotonic() - start_s < work_s:
            pass
        return monotonic() - start_s

    def _learn(self, window_s: float, added_s: float, steps: int) -> None:
        plain_s = window_s - added_s
        if added_s > 0:
            self._planted.append(added_s / plain_s)
        self._step_s = plain_s / steps


def load(script: Path) -> ModuleType:
    """The script as a module. Throws Skip when it imports a package that is not installed."""
    spec = importlib.util.spec_from_file_location("technique", script)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script.name} is no Python script")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        reason = f"the Python package {error.name} is not installed"
        remedy = f"install {error.name}, or name another interpreter with --python"
        raise Skip(reason, remedy) from error
    return module


def versions(module: ModuleType) -> dict[str, str]:
    """Of Python and of every package that the script imported by name."""
    imported = (value for value in vars(module).values() if isinstance(value, ModuleType))
    packages = {
        one.__name__: str(one.__version__) for one in imported if hasattr(one, "__version__")
    }
    return {"python": platform.python_version(), **packages}


def check(make: Callable[..., Arm], question: Json) -> tuple[Arm, Json]:
    """Makes the arm and takes one step; the answer has its error and its peak memory in bytes."""
    before_bytes = _status_bytes("VmRSS:")
    _reset_peak()
    arm = make(question["arm"], question["point"], question["seed"], question["gpu"])
    arm.step()
    arm.synchronize()
    peak_bytes = max(0, _status_bytes("VmHWM:") - before_bytes)
    error = float(arm.error())
    shown = error if math.isfinite(error) else "not a number"
    metrics = _finite(arm.metrics())
    arm.synchronize()
    return arm, {
        "check_error": shown,
        "peak_host_bytes": peak_bytes,
        "has_events": arm.mark is not None,
        "metrics": metrics,
    }


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics, or ValueError: a record cannot hold a number that is not finite."""
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise ValueError(f"the metric {name} is not finite")
    return dict(metrics)


def serve(script: Path, questions: TextIO, replies: TextIO) -> int:
    """Answers until the questions end; the exit code."""
    try:
        line = questions.readline()
        if not line:
            return 0
        question = json.loads(line)
        module = load(script)
        try:
            arm, hello = check(module.make, question)
        except Exception as error:
            if not ran_out_of_memory(error):
                raise
            said = said_by(error).partition(" If reserved but ")[0]  # torch advises on its settings
            raise Skip(f"out of memory: {said}", MORE_MEMORY) from error
        _reply(replies, {**hello, "notes": {**versions(module), **arm.notes}})
        windows = Windows(arm, question["plant"])
        gc.collect()
        gc.freeze()  # what is alive now stays: looking through it before each window would be slow
        gc.disable()
        for line in questions:
            asked = json.loads(line)
            if "launches_per_step" in asked:
                _reply(replies, launches_per_step(arm, question["launch_counter"]))
            else:
                _reply(replies, windows.run(**asked))
    except BrokenPipeError:
        return 1  # nobody listens any more
    except Skip as skip:
        _reply(replies, {"skipped": str(skip), "remedy": skip.remedy})
    except Exception as error:
        traceback.print_exc()
        _reply(replies, {"error": said_by(error)})
        return 1
    return 0


def launches_per_step(arm: Arm, counter: str | None) -> Json:
    """Kernels, copies, fills and graphs that a step hands to the device, each as one.

    The library of that file counts them; the answer is empty where there is none, or it cannot.
    """
    if counter is None:
        return {}
    try:
        library = ctypes.CDLL(counter)
    except OSError:  # the build found no CUPTI, or there is none here
        return {}
    start, stop = library.gpulift_launch_counter_start, library.gpulift_launch_counter_stop
    start.restype, stop.argtypes, stop.restype = ctypes.c_void_p, [ctypes.c_void_p], ctypes.c_int64
    started = start()
    if started is None:
        return {}
    try:
        for _ in range(COUNTED_STEPS):
            arm.step()
        arm.synchronize()
    finally:
        launches = stop(started)
    return {"launches_per_step": launches / COUNTED_STEPS}


def ran_out_of_memory(error: Exception) -> bool:
    """Whether Python, torch, XLA or a library of CUDA's had no memory left, by name or by what it
    says: this imports none of them."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(words in str(error) for words in EXHAUSTED)


def said_by(error: Exception) -> str:
    """What an error says, of files only their names: it goes into records, which hold no path."""
    return f"{type(error).__name__}: {FOLDERS.sub('', str(error))}"


def describe(scripts: Sequence[Path]) -> Json:
    """The versions that the scripts find, and by a script's name what it misses; of frameworks also
    what is installed, which a script may import only when it makes an arm."""
    found: Json = {"versions": {"python": platform.python_version()}, "missing": {}}
    for script in scripts:
        try:
            found["versions"].update(versions(load(script)))
        except Skip as skip:
            found["missing"][script.stem] = str(skip)
        except Exception as error:
            found["missing"][script.stem] = said_by(error)
    for name in FRAMEWORKS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found["versions"].setdefault(name, importlib.metadata.version(name))
    return found


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    describing = arguments[:1] == ["--describe"]
    replies = os.fdopen(os.dup(1 if describing else REPLY_DESCRIPTOR), "w")  # dup: not inherited
    questions = os.fdopen(os.dup(0))
    # What libraries print or read, and the processes that they start, cannot reach the protocol.
    if not describing:
        os.close(REPLY_DESCRIPTOR)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if describing:
        _reply(replies, describe([Path(name) for name in arguments[1:]]))
        return 0
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and closes the line
    return serve(Path(arguments[0]), questions, replies)


def _reply(replies: TextIO, answer: Json) -> None:
    replies.write(json.dumps(answer, allow_nan=False) + "\n")
    replies.flush()


def _reset_peak() -> None:
    """Sets the kernel's high-water mark of resident memory back, which "5" does."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # then the mark is of the whole process: too high, never too low


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    sys.modules["gpulift_worker"] = sys.modules["__main__"]  # scripts import this very module
    sys.exit(main(sys.argv[1:]))
