"""The process of a Python arm: `python gpulift_worker.py SCRIPT`, started by gpulift-bench.

The script beside a technique defines one function, and never sees a clock or a loop count:

    def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm

Questions come as JSON lines on standard input, answers go to file descriptor 3: first the arm with
its case, answered once it is checked, then windows until the input closes. `--describe SCRIPT...`
instead prints as JSON which versions the scripts find, or what they miss; `--manifest ID SCRIPT`
the manifest of a technique in Python alone, see gpulift_manifest.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import math
import os
import platform
import random
import re
import signal
import statistics
import sys
import traceback
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic  # CLOCK_MONOTONIC, the clock of the C++ windows
from types import ModuleType
from typing import Any, Protocol, TextIO

# Python itself leaves this folder out where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpulift_case
from gpulift_case import check_seed as check_seed
from gpulift_case import earlier as earlier
from gpulift_case import launch as launch
from gpulift_case import shared as shared
from gpulift_case import spent as spent
from gpulift_cpu import CpuMeter
from gpulift_files import disk_facts
from gpulift_manifest import ManifestError, hash_of_work, manifest_of

USAGE = 2
REPLY_DESCRIPTOR = 3
COUNTED_STEPS = 2
WARM_UP_STEPS = 2  # ahead of one that a profiler looks at
FRAMEWORKS = ("torch", "jax")
INSTALLED_AS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
}  # packages whose distributions have other names
MORE_MEMORY = "free memory of the GPU or the machine, or use a larger one"
BUSY = "busy or unavailable"  # of what CUDA says where one process alone may use a GPU
FREE_THE_GPU = "end what uses it, which nvidia-smi shows, or name another: --gpus"
NAME_A_DISK = "name a folder on a disk: --scratch DIR"
EXHAUSTED = ("out of memory", "ALLOC_FAILED", "can't allocate memory", "RESOURCE_EXHAUSTED")
# What torch says where processes share tensors, as of a DataLoader's workers.
UNSHARED = ("allocate shared memory", "unable to write to file </torch_", "out of shared memory")
MORE_SHARED = "make /dev/shm larger, as docker run --shm-size=8g does"
LONGEST = 1000  # characters of a text that says why
LINES_OF_ENDS = 100  # of a traceback, at both
SPAWNED_MAIN = "__mp_main__"
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>

FOLDERS = re.compile(r"(?<![\w/])/(?:[^\s/:'\"]+/)+")  # of an absolute path

Json = dict[str, Any]
Point = Mapping[str, "int | str"]


class Mark(Protocol):
    """A place in the device's queue, such as a recorded torch.cuda.Event with timing."""

    def elapsed_time(self, end: Any) -> float:
        """Milliseconds until the later mark; both have been reached."""


def nothing() -> None:
    """What most arms need around their steps: one on the host is done when it returns."""


@dataclass(frozen=True)
class Precondition:
    """What must hold when a window begins: a cold arm that was not cold failed, it is not fast."""

    name: str  # with its unit: resident_share
    look: Callable[[], float | None]  # None: it cannot be told here, and the arm is skipped
    most: float = 0.0  # it holds up to this
    remedy: str = ""  # what helps where it cannot be told


@dataclass(frozen=True)
class Arm:
    """What a script makes. `error` is called once, after one step: 0 for the same result.

    `value` is called once, after one step, too: a number such as the loss, which the engine holds
    against that of the first arm. An arm with neither is not checked.
    `synchronize` waits for the work of all steps; `mark` makes a mark in the device's queue. With
    marks, and where all arms of the case have such, the time between two of them is the window's.
    `metrics` is called once, after `error`, and may take steps: facts whose names end in their
    units, such as peak_allocated_bytes.
    `before` is called ahead of each window, which is then one step with no lead-in, and `rest`
    after each: it returns when nothing of the arm works on any more. `wake` is called ahead of each
    window and its lead-in: it brings back what `rest` gave up, such as memory that the arms of a
    case cannot all hold at once. None is timed.
    """

    step: Callable[[], object]
    error: Callable[[], float] | None = None
    synchronize: Callable[[], object] = nothing
    mark: Callable[[], Mark] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    metrics: Callable[[], Mapping[str, float]] = dict
    value: Callable[[], float] | None = None
    before: Callable[[], object] = nothing
    rest: Callable[[], object] = nothing
    wake: Callable[[], object] = nothing
    precondition: Precondition | None = None
    tolerance: float | None = None  # where it differs from the technique's
    bytes: float = 0.0  # of a step, through the memory or the link that `roof` names
    flops: float = 0.0  # of a step; integer operations too
    items: float = 0.0  # of a step: whatever the technique counts
    item: str = ""  # what one of them is, in the singular: "image"; without it there is no rate
    roof: str = ""  # the ceiling that bounds it: device_memory, host_memory, ...
    versions: Mapping[str, str] = field(default_factory=dict)  # of what else the arm runs through

    @property
    def has_before(self) -> bool:
        """Whether each window is one step."""
        return self.before is not nothing


def usable_cores() -> list[int]:
    """Those that this process may keep busy: fewer than it may run on where a container says so,
    which the program that starts it knows."""
    found = sorted(os.sched_getaffinity(0))
    return found[: int(os.environ.get("GPULIFT_CORES", len(found)))]


def cores() -> int:
    """How many there are of them: as many threads keep all of them busy."""
    return len(usable_cores())


class Skip(Exception):
    """The arm cannot run here, for this reason; the remedy says what would help.

    Raises ValueError without a reason: a record of a skip that does not say why cannot be read.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        if not reason.strip():
            raise ValueError("a skip says why")
        super().__init__(reason)
        self.remedy = remedy


@functools.cache
def scratch() -> Path:
    """A folder for files of this case alone, which all its arms share; removed with all that is in
    it. Records hold the facts of its disk, never its path. Throws Skip where there is none."""
    named = os.environ.get("GPULIFT_SCRATCH")
    if not named:
        raise Skip(os.environ.get("GPULIFT_SCRATCH_MISSING", "no scratch folder"), NAME_A_DISK)
    folder = Path(named)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise Skip(f"the scratch folder cannot be made: {error.strerror}", NAME_A_DISK) from error
    return folder


class Turn:
    """That of this process to make and check its arm: the engine starts all arms of a case at once,
    and lets them go on one by one."""

    def __init__(self) -> None:
        self._line: tuple[TextIO, TextIO] | None = None

    def expect(self, questions: TextIO, replies: TextIO) -> None:
        """From now on there is somebody to wait for."""
        self._line = questions, replies

    def wait(self) -> None:
        """Says that all is loaded, and returns when it is this arm's turn: at once where it came
        before, or nobody asks to wait. Ranks wait where they have found each other."""
        if self._line is None:
            return
        questions, replies = self._line
        self._line = None
        _reply(replies, {"ready": True})
        if not questions.readline():
            raise Unheard


TURN = Turn()


class OffSweep(Exception):
    """A case that the technique's sweep does not have, and that cannot be made."""


class Unheard(Exception):
    """Nobody asks or listens any more."""


class Changed(Exception):
    """The script is no longer what the run began with."""


class Failed(Exception):
    """A state that was asked for does not hold: the arm failed, and is not timed."""


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
        lead-in's work is waited for before the window begins. Behind the lead-in the device must
        not run dry: other processes are looked for ahead of it, or behind `before`, which may start
        some.
        """
        arm, step = self._arm, self._arm.step
        gc.collect()  # the collector is off inside windows
        arm.wake()
        cpu = CpuMeter()
        for _ in range(lead_in_steps):
            step()
        if arm.has_before or not by_events:
            arm.synchronize()
        arm.before()
        seen = None if arm.precondition is None else look_again(arm.precondition)
        if arm.has_before:
            cpu = CpuMeter()
        cpu.restart()
        begin = arm.mark() if arm.mark else None
        start_s = monotonic()
        for _ in range(steps):
            step()
        enqueued_s = monotonic()
        added_s = self._add_work(steps)
        end = arm.mark() if arm.mark else None
        arm.synchronize()
        host_s = monotonic() - start_s
        cpu_s = cpu.used_s()
        arm.rest()
        answer = {
            "start_s": start_s,
            "host_s": host_s,
            "enqueue_s": enqueued_s - start_s,
            "cpu_s": cpu_s,
        }
        if begin is not None:
            elapsed = {"between two marks": begin.elapsed_time(end)}
            (elapsed_ms,) = _finite("time", elapsed, 0).values()
            answer["device_s"] = elapsed_ms / 1e3
        if seen is not None:
            answer["precondition"] = seen
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
        if plain_s <= 0:
            # By its own count the extra work took it all: the next window tells anew, without any.
            self._step_s = None
            return
        if added_s > 0:
            self._planted.append(added_s / plain_s)
        self._step_s = plain_s / steps


def load(script: Path) -> ModuleType:
    """The script as a module, which finds its siblings after all else, and sees what it would as
    `python script.py`. Throws Skip when it imports a package that is not installed.

    Its name is the one that multiprocessing gives a program's script in the processes it spawns,
    which load this file in turn: what it defines can be sent to them, and what stands below
    `if __name__ == "__main__"` runs in neither.
    """
    file = script.resolve()
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location(SPAWNED_MAIN, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script.name} is no Python script")
    module = importlib.util.module_from_spec(spec)
    module.__spec__ = None  # as that of a program's script: it is spawned by its path
    sys.modules["__main__"] = sys.modules[SPAWNED_MAIN] = module
    sys.argv = [str(file)]
    with skipping_what_is_not_installed():
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def skipping_what_is_not_installed() -> Iterator[None]:
    """Throws Skip in place of the error of an import that finds no package."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name)
        reason = f"the Python package {package} is not installed"
        distribution = INSTALLED_AS.get(package, package)
        remedy = f"install {distribution}, or name another interpreter with --python"
        raise Skip(reason, remedy) from error


def versions(module: ModuleType) -> dict[str, str]:
    """Of Python, of every package that the script imported by name, and of the frameworks that it
    loaded in any way."""
    imported = {
        value.__name__.partition(".")[0]
        for value in vars(module).values()
        if isinstance(value, ModuleType)
    }
    packages = {
        name: str(sys.modules[name].__version__)
        for name in sorted(imported.union(FRAMEWORKS) - sys.stdlib_module_names)
        if hasattr(sys.modules.get(name), "__version__")
    }
    return {"python": platform.python_version(), **packages}


def make_arm(script: Path, module: ModuleType, question: Json) -> Arm:
    """The arm that the script makes of the question."""
    if not callable(getattr(module, "make", None)):
        raise AttributeError(f"{script.name} has no function make(arm, point, seed, gpu)")
    gpulift_case.begin(question)
    seed_generators(question["seed"])
    with skipping_what_is_not_installed():
        arm = module.make(question["arm"], question["point"], question["seed"], question["gpu"])
    if not isinstance(arm, Arm):
        raise TypeError(f"make() returned {type(arm).__name__}, not an Arm")
    if not callable(arm.step):
        raise TypeError(f"make() returned an Arm whose step is {type(arm.step).__name__}")
    TURN.wait()  # of ranks that have not met in join()
    return arm


def seed_generators(seed: int) -> None:
    """Those that scripts draw from without saying so: all arms of a case draw the same."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def check(make: Callable[[], Arm]) -> tuple[Arm, Json]:
    """Makes the arm and takes one step; the answer has what was found, and its peak memory in
    bytes."""
    before_bytes = _status_bytes("VmRSS:")
    _reset_peak()
    arm = make()
    done("wake", arm.wake)
    done("before", arm.before)
    seen = None if arm.precondition is None else look_first(arm.precondition)
    done("step", arm.step)
    done("synchronize", arm.synchronize)
    done("rest", arm.rest)
    peak_bytes = max(0, _status_bytes("VmHWM:") - before_bytes)
    answer = {
        **_result(arm),
        "peak_host_bytes": peak_bytes,
        "has_events": arm.mark is not None,
        "has_before": arm.has_before,
        "metrics": _metrics(done("metrics", arm.metrics)),
        "spent_s": gpulift_case.spent_s(),
        **_cost(arm),
    }
    arm.synchronize()
    arm.rest()  # of the steps that `error` and `metrics` took
    if arm.tolerance is not None:
        answer.update(_finite("number", {"tolerance": arm.tolerance}, 0))
    if arm.precondition is not None and seen is not None:
        limits = _finite("precondition's", {"most": arm.precondition.most, "seen": seen})
        answer["precondition"] = {"name": arm.precondition.name, **limits}
    return arm, answer


def done(name: str, call: Callable[[], Any]) -> Any:
    """What the call returns. Throws TypeError where that is work which has only been promised: of a
    coroutine or a generator nothing has run, and its time would be that of nothing."""
    result = call()
    if isinstance(result, Awaitable | AsyncIterator | Iterator):
        if isinstance(result, Coroutine):
            result.close()  # or Python warns that it was never awaited, in a line of this file
        raise TypeError(
            f"{name}() returned {type(result).__name__}, whose work nobody has waited for: do all"
            " of it before returning, and return something else"
        )
    return result


def look_first(required: Precondition) -> float:
    """What the first look says. Throws Skip where it cannot be told, Failed where it does
    not hold."""
    seen = required.look()
    if seen is None:
        raise Skip(f"{required.name} cannot be told here", required.remedy)
    if not seen <= required.most:  # not a number does not hold
        raise Failed(f"{required.name} is {seen:g}, and may be {required.most:g} at most")
    return float(seen)


def look_again(required: Precondition) -> float:
    """What a later look says; the engine judges it. Throws RuntimeError where it says nothing."""
    seen = required.look()
    if seen is None or not math.isfinite(seen):
        raise RuntimeError(f"{required.name} can no longer be told")
    return float(seen)


def _result(arm: Arm) -> Json:
    """The value and the error after one step, as far as the arm tells them."""
    # The value first: the error may take steps.
    value = None if arm.value is None else float(done("value", arm.value))
    error = None if arm.error is None else float(done("error", arm.error))
    result: Json = {}
    if value is not None:
        result["value"] = value
    if error is not None:
        result["check_error"] = error
    if not all(map(math.isfinite, result.values())):
        return {"check_error": "not a number"}
    if error is not None:
        _finite("result", {"of error()": error}, 0)
    return result


def _cost(arm: Arm) -> Json:
    """The work of a step, where the arm says any."""
    counted = {"bytes": arm.bytes, "flops": arm.flops, "items": arm.items}
    if not any(counted.values()):
        return {}
    named = _texts("cost's", {"item": arm.item, "roof": arm.roof})
    return {"cost": {**_finite("number", counted, 0), **named}}


def _metrics(numbers: Mapping[str, float]) -> dict[str, float]:
    """The arm's own facts; a peak is a size to the engine."""
    _finite("metric", {name: numbers[name] for name in numbers if name.startswith("peak_")}, 0)
    return _finite("metric", numbers)


def _finite(kind: str, numbers: Mapping[str, float], least: float = -math.inf) -> dict[str, float]:
    """The numbers, or ValueError: a record cannot hold one that is not finite or below the
    least."""
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise ValueError(f"the {kind} {name} is not finite")
        if number < least:
            raise ValueError(f"the {kind} {name} is {number:g}, and cannot be below {least:g}")
    return {name: float(number) for name, number in numbers.items()}


def _texts(kind: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts, or TypeError: a record cannot hold anything else in their place."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"the {kind} {name} is {type(text).__name__}, not text")
    return dict(texts)


def serve(script: Path, questions: TextIO, replies: TextIO) -> int:
    """Answers until the questions end; the exit code."""
    try:
        answer_all(script, questions, replies)
        return 0
    except Unheard:
        return 1
    except BaseException as error:  # sys.exit() too: the script ended its arm, and not the worker
        answer, code = last_answer(error)
    with contextlib.suppress(Unheard):
        _reply(replies, answer)
    return code


def answer_all(script: Path, questions: TextIO, replies: TextIO) -> None:
    """First the arm's case, then windows."""
    line = questions.readline()
    if not line:
        return
    question = json.loads(line)
    require_unchanged(script)
    module = load(script)
    if question.get("waits"):
        TURN.expect(questions, replies)
        if question["ranks"] == 1:
            TURN.wait()
    try:
        arm, hello = check_in_memory(lambda: make_arm(script, module, question))
    except (Skip, Failed, Unheard):
        raise
    except Exception as error:
        if question.get("off_sweep"):
            raise OffSweep(f"{said_by(error)}{place_of(error, script)}") from error
        raise
    hello["notes"] = _texts("note", arm.notes)
    hello["versions"] = {**versions(module), **_texts("version of", arm.versions)}
    if scratch.cache_info().currsize:  # the script asked
        hello["scratch"] = disk_facts(scratch())
    _reply(replies, hello)
    answer_windows(arm, question, questions, replies)


def last_answer(error: BaseException) -> tuple[Json, int]:
    """What is said of that which ended the arm, and the exit code."""
    if isinstance(error, Skip):
        return {"skipped": line_of(str(error)), "remedy": line_of(error.remedy)}, 0
    if isinstance(error, Failed):
        return {"failed": line_of(str(error))}, 0
    if isinstance(error, Changed):
        return {"error": str(error)}, 1
    if any(words in text_of(error) for words in UNSHARED):
        return {"skipped": "out of shared memory: /dev/shm is full", "remedy": MORE_SHARED}, 0
    if isinstance(error, OffSweep):  # a traceback would blame the script for what it was asked
        return {"error": str(error)}, 1
    with contextlib.suppress(OSError):  # of standard error, which may be gone
        print("\n".join(traceback_lines(error)), file=sys.stderr, flush=True)
    return {"error": said_by(error)}, 1


def traceback_lines(error: BaseException) -> list[str]:
    """Those of the script's own frames and of what they called, and the error's; of very many the
    first and the last."""
    place = error.__traceback__
    while place is not None and is_ours(place.tb_frame.f_code.co_filename):
        place = place.tb_next
    told = traceback.TracebackException(type(error), error, place)
    parts = told.format() if place is not None else told.format_exception_only()
    lines = [_printable(line[:LONGEST]) for line in "".join(parts).splitlines()]
    if len(lines) > 2 * LINES_OF_ENDS:
        lines[LINES_OF_ENDS:-LINES_OF_ENDS] = ["  ..."]
    return lines


def is_ours(file: str) -> bool:
    """Whether its frames lie between a script and the interpreter's start."""
    return file in (__file__, contextlib.__file__) or file.startswith("<frozen importlib")


def require_unchanged(script: Path) -> None:
    """Throws Changed where the manifest beside the script has another hash of it: the records would
    name a source that was not measured."""
    manifest = script.with_suffix(".json")
    if not manifest.exists():
        return
    name = script.name.partition(".")[2]  # theme.name.py, whatever it may be a link to
    known = json.loads(manifest.read_bytes()).get("source", {}).get(name)
    if known is not None and known != hash_of_work(script.read_bytes()):
        raise Changed(f"{name} changed since the run began: run it again")


def check_in_memory(make: Callable[[], Arm]) -> tuple[Arm, Json]:
    """The same as check(); throws Skip where memory is too small, or the GPU is another's."""
    try:
        return check(make)
    except Exception as error:
        if BUSY in text_of(error):
            raise Skip("the GPU is busy or unavailable", FREE_THE_GPU) from error
        if not ran_out_of_memory(error):
            raise
        said = said_by(error).partition(" If reserved but ")[0]  # torch advises on its settings
        raise Skip(f"out of memory: {said}", MORE_MEMORY) from error


def answer_windows(arm: Arm, question: Json, questions: TextIO, replies: TextIO) -> None:
    """Takes windows of a checked arm until the questions end."""
    windows = Windows(arm, question["plant"])
    gc.collect()
    gc.freeze()  # what is alive now stays: looking through it before each window would be slow
    gc.disable()
    for line in questions:
        asked = json.loads(line)
        if "profile_step" in asked:
            _reply(replies, profile_step(arm, question["gpu"]))
        elif "launches_per_step" in asked:
            _reply(replies, launches_per_step(arm, question["launch_counter"]))
        else:
            _reply(replies, windows.run(**asked))


def profile_step(arm: Arm, gpu: int | None) -> Json:
    """Takes a step for a profiler to look at: after others, alone between its start and stop. On
    the host there is nothing to look at."""
    for step in range(WARM_UP_STEPS + 1):
        seen = gpu is not None and step == WARM_UP_STEPS
        arm.wake()
        arm.before()
        if seen:
            tell_profiler("cuProfilerStart")
        arm.step()
        arm.synchronize()
        if seen:
            tell_profiler("cuProfilerStop")
        arm.rest()
    return {"profiled": True}


def tell_profiler(call: str) -> None:
    """By the driver, which each framework has loaded, wherever its runtime is."""
    status = getattr(ctypes.CDLL("libcuda.so.1"), call)()
    if status != 0:
        raise RuntimeError(f"{call} of the driver ended with error {status}")


def launches_per_step(arm: Arm, counter: str | None) -> Json:
    """Kernels, copies, fills and graphs that a step hands to the device, each as one.

    The library of that file counts them; the answer is empty where there is none, or it cannot, as
    while another profiler is attached.
    """
    if counter is None:
        return {}
    try:
        library = ctypes.CDLL(counter)
    except OSError:  # the build found no CUPTI, or there is none here
        return {}
    start, stop = library.gpulift_launch_counter_start, library.gpulift_launch_counter_stop
    start.restype, stop.argtypes, stop.restype = ctypes.c_void_p, [ctypes.c_void_p], ctypes.c_int64
    steps = 1 if arm.has_before else COUNTED_STEPS
    arm.wake()
    arm.before()
    started = start()
    launches = None
    try:
        for _ in range(steps):  # uncounted, too: other ranks, which may count, exchange with these
            arm.step()
        arm.synchronize()
    finally:
        if started is not None:
            launches = stop(started)
    arm.rest()
    return {} if launches is None else {"launches_per_step": launches / steps}


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch, XLA or a library of CUDA's had no memory left, by name or by what it
    says, or what it came of: this imports none of them."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if named or refused or any(words in text_of(error) for words in EXHAUSTED):
        return True
    return error.__cause__ is not None and ran_out_of_memory(error.__cause__)


def said_by(error: BaseException) -> str:
    """What an error says, in one line, of files only their names: records hold no path."""
    if isinstance(error, SystemExit):
        return line_of(f"the script ended itself by sys.exit({error.code!r})")
    text = FOLDERS.sub("", text_of(error))
    return line_of(f"{type(error).__name__}: {text}" if text.strip() else type(error).__name__)


def place_of(error: BaseException, script: Path) -> str:
    """Where the script raised it, or called what did; empty where it did not."""
    file = script.resolve()  # as it was loaded
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" ({file.name}, line {lines[-1]})" if lines else ""


def text_of(error: BaseException) -> str:
    """The error's own text."""
    try:
        return str(error)
    except Exception as other:
        return f"its text cannot be told ({type(other).__name__})"


def line_of(text: str) -> str:
    """The text in one line; of a long one both ends, since that of another process' error has its
    traceback before the reason."""
    line = " ".join(filter(None, map(str.strip, text.splitlines())))
    more, half = len(line) - LONGEST, LONGEST // 2
    return f"{line[:half]}... ({more} more characters) ...{line[-half:]}" if more > 0 else line


def describe(scripts: Sequence[Path]) -> Json:
    """The versions that the scripts find, and by a script's name what it misses; of frameworks also
    what is installed, which a script may import only when it makes an arm."""
    found: Json = {"versions": {"python": platform.python_version()}, "missing": {}}
    for script in scripts:
        try:
            found["versions"].update(versions(load(script)))
        except Skip as skip:
            found["missing"][script.stem] = str(skip)
        except BaseException as error:
            found["missing"][script.stem] = said_by(error)
    for name in FRAMEWORKS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found["versions"].setdefault(name, importlib.metadata.version(name))
    return found


def keep_bytecode() -> None:
    """Below the user's cache, where PYTHONDONTWRITEBYTECODE is set and torch is bare sources, as in
    some containers: each process would compile them for 3 to 10 s. A folder of its own for each
    torch, as several containers may share a cache."""
    torch = importlib.util.find_spec("torch") if sys.dont_write_bytecode else None
    if torch is None or torch.origin is None or sys.pycache_prefix is not None:
        return
    if os.path.exists(importlib.util.cache_from_source(torch.origin)):
        return
    named = os.environ.get("XDG_CACHE_HOME", "")
    above = named if os.path.isabs(named) else os.path.expanduser("~/.cache")
    if not os.path.isabs(above):  # nobody's home
        return
    with contextlib.suppress(OSError, importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.distribution("torch").read_text("RECORD")
        which = hashlib.sha256(f"{sys.prefix}\n{files}".encode()).hexdigest()[:8]
        cache = Path(above, "gpulift", "bytecode", which)
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            sys.dont_write_bytecode = False
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(cache)


def leave_current_folder() -> None:
    """Out of where modules are found: an empty entry of PYTHONPATH means it, mostly unasked."""
    named = os.environ.get("PYTHONPATH")
    if named and "" in named.split(os.pathsep):
        own_folder, *others = sys.path
        sys.path[:] = [own_folder, *(one for one in others if one != os.getcwd())]


def keep_torch_quiet() -> None:
    """Where there is no GPU, compiling tells that there is none, in the midst of the progress."""
    logging.getLogger("torch.utils.cpp_extension").addFilter(
        lambda said: not said.getMessage().startswith("No CUDA runtime is found")
    )


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    keep_bytecode()
    leave_current_folder()
    keep_torch_quiet()
    if arguments[:1] == ["--manifest"]:
        return print_manifest(*arguments[1:])
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


def print_manifest(identity: str, script: str) -> int:
    """On standard output; the exit code. What is wrong with the script is one line of errors."""
    try:
        manifest = manifest_of(identity, Path(script))
    except ManifestError as error:
        print(error, file=sys.stderr)
        return USAGE
    print(json.dumps(manifest, indent=2))
    return 0


def _reply(replies: TextIO, answer: Json) -> None:
    try:
        replies.write(json.dumps(_printable(answer), allow_nan=False) + "\n")
        replies.flush()
    except BrokenPipeError:
        raise Unheard from None


def _printable(answer: Any) -> Any:
    """The same with escapes for what a terminal would obey, and for halves of characters, which are
    no JSON."""
    if isinstance(answer, dict):
        return {_printable(key): _printable(value) for key, value in answer.items()}
    if not isinstance(answer, str) or answer.isprintable():
        return answer
    letters = (one if one.isprintable() else repr(one)[1:-1] for one in answer)
    return "".join(letters)


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
    import gpulift_worker  # this very file by the name that scripts import: `__main__` is theirs

    sys.exit(gpulift_worker.main(sys.argv[1:]))
