"""monitor/overhead: training steps while something watches them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from gpulift_work.loaders import end_with_parent
from gpulift_work.training import TWINS, Training, device_of, set_up
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "What does it cost a training step to be watched?",
    "expectation": (
        "A monitor is a process of its own. Six files of /proc take it 0.3 ms, ten times a second "
        "0.3 % of a core that the step does not need; the kernel's locks are held for less: 1.0. "
        "NVML's counters take 0.2 ms and GPM's 0.5 ms of the driver, at 100 Hz 2 to 5 % of one "
        "core, during which a launch may wait for the same lock: 1.0, and 0.98 to 1.0 at 100 Hz "
        "where launches set the pace. torch's profiler writes 1 us an operation down: some 800 in "
        "a toy GPT's step of 5 ms, 0.85; with stacks each call of Python, too: 0.5. Where the GPU "
        "sets the pace the same hides behind it, 1.0, but for each kernel's record: 0.97. py-spy "
        "stops the process for 0.3 ms at 100 Hz: 0.97."
    ),
    "predict": [
        {
            "speedup": {
                "proc_10hz": [0.9, 1.1],
                "nvml_10hz": [0.9, 1.1],
                "gpm_10hz": [0.9, 1.1],
                "py_spy_100hz": [0.873, 1.067],
            }
        },
        {
            "case": {"bound": "launches"},
            "speedup": {
                "nvml_100hz": [0.98, 1],
                "torch_profiler": [0.765, 0.935],
                "torch_profiler_stacks": [0.45, 0.55],
            },
        },
        {
            "case": {"bound": "gpu"},
            "speedup": {
                "nvml_100hz": [0.9, 1.1],
                "torch_profiler": [0.873, 1.067],
                "torch_profiler_stacks": [0.873, 1.067],
            },
        },
    ],
    "found": (
        "On a processor stacks have 0.79 and 0.85 in two launches. What the profiler puts off "
        "until its stop lies outside of the window: 0.35 and 0.60 s of 40 steps, with which the "
        "ratios are 0.49 and 0.37. NVML, GPM and py-spy are in no record."
    ),
    "arms": [
        "none",
        "proc_10hz",
        "nvml_10hz",
        "nvml_100hz",
        "gpm_10hz",
        "torch_profiler",
        "torch_profiler_stacks",
        "py_spy_100hz",
    ],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"bound": ["launches", "gpu"]},
    "check": {
        "meaning": "loss after the steps of a window, relative to the one that nothing watches; "
        "exact on a processor",
        "tolerance": 0.0,
    },
}
MODELS = {"launches": "gpt_toy", "gpu": "resnet50"}
STEPS = {"launches": 40, "gpu": 8}  # of a window: a fifth of a second, so that 10 Hz looks twice
GPU_TOLERANCE = 1e-2  # kernels that add in no order
ANY_TRACER = (0x59616D61, ctypes.c_ulong(-1))  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
GPM_METRICS = ("SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "DRAM_BW_UTIL", "PCIE_RX_PER_SEC")
COUNTED = re.compile(r"Samples: (\d+) Errors: (\d+)")
SAMPLING = "Sampling process"  # py-spy says so when it begins

Read = Callable[[], object]


class Watcher:
    """Watches nothing."""

    def open(self, gpu: int | None) -> None:
        """Once the GPU is there. Raises Skip where it cannot watch."""

    def start(self) -> None:
        """It watches from now on."""

    def stop(self) -> None:
        """And no longer. Nothing happens where it does not watch."""

    def metrics(self) -> dict[str, float]:
        """Of the last time that it watched."""
        return {}


class Poller(Watcher):
    """A process that reads at a rate. The first time is at once: a window has one at least."""

    def __init__(self, source: Callable[[str, int], Read], rate_hz: float) -> None:
        # Before this process has threads or a GPU, which do not live through a fork.
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        arguments = (other, source, os.getpid(), 1 / rate_hz)
        self._process = context.Process(target=poll, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self._watches = False
        self._costs_s: list[float] = []

    def open(self, gpu: int | None) -> None:
        """Tells which GPU it is by what NVML calls it, too."""
        properties: Any = None if gpu is None else torch.cuda.get_device_properties(gpu)
        self._pipe.send("" if properties is None else f"GPU-{properties.uuid}")
        said = self._pipe.recv()
        if isinstance(said, Skip):
            raise said

    def start(self) -> None:
        self._pipe.send("start")
        self._watches = True

    def stop(self) -> None:
        if not self._watches:
            return
        self._pipe.send("stop")
        self._costs_s = self._pipe.recv()
        self._watches = False

    def metrics(self) -> dict[str, float]:
        """How often it read, and how long that took."""
        return {
            "samples_count": float(len(self._costs_s)),
            "sample_s": statistics.median(self._costs_s),
        }


def poll(
    pipe: Connection, source: Callable[[str, int], Read], parent: int, period_s: float
) -> None:
    """What the process of a poller does until nobody listens."""
    end_with_parent(parent)(0)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            read = source(pipe.recv(), parent)
        except Skip as skip:
            pipe.send(skip)
            return
        pipe.send("ready")
        while True:
            pipe.recv()
            pipe.send(costs_until_told(pipe, read, period_s))


def costs_until_told(pipe: Connection, read: Read, period_s: float) -> list[float]:
    """Reads in each period until something is said; how long each time took."""
    costs_s = []
    due_s = monotonic()
    while True:
        start_s = monotonic()
        read()
        costs_s.append(monotonic() - start_s)
        due_s += period_s
        if pipe.poll(max(0.0, due_s - monotonic())):
            pipe.recv()
            return costs_s


def proc(_: str, pid: int) -> Read:
    """What the system says of the machine and of a process."""
    files = [Path("/proc", name) for name in ("stat", "meminfo", "diskstats", "net/dev")]
    files += [Path("/proc", str(pid), name) for name in ("stat", "io")]
    files = [one for one in files if os.access(one, os.R_OK)]
    return lambda: [one.read_bytes() for one in files]


def nvml(gpu: str, _: int) -> Read:
    """A GPU's counters."""
    library, handle = opened_nvml(gpu)

    def read() -> None:
        library.nvmlDeviceGetUtilizationRates(handle)
        library.nvmlDeviceGetMemoryInfo(handle)
        library.nvmlDeviceGetPowerUsage(handle)
        library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)
        library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)
        library.nvmlDeviceGetCurrentClocksThrottleReasons(handle)

    return tried(library, read)


def gpm(gpu: str, _: int) -> Read:
    """A GPU's activity between two samples."""
    library, handle = opened_nvml(gpu)
    try:
        supported = library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice
    except library.NVMLError:
        supported = False
    if not supported:
        raise Skip("this GPU has no GPM", "use one of Hopper's architecture or later")
    samples = [library.nvmlGpmSampleAlloc(), library.nvmlGpmSampleAlloc()]
    library.nvmlGpmSampleGet(handle, samples[0])
    wanted = library.c_nvmlGpmMetricsGet_t()
    wanted.version = library.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(GPM_METRICS)
    for place, name in enumerate(GPM_METRICS):
        wanted.metrics[place].metricId = getattr(library, f"NVML_GPM_METRIC_{name}")

    def read() -> None:
        library.nvmlGpmSampleGet(handle, samples[1])
        wanted.sample1, wanted.sample2 = samples
        library.nvmlGpmMetricsGet(wanted)
        samples.reverse()

    return tried(library, read)


def tried(library: Any, read: Read) -> Read:
    """The same. Raises Skip where the GPU does not say one of what is read."""
    try:
        read()
    except library.NVMLError as error:
        raise Skip(f"NVML does not say all that is read: {error}", "use another GPU") from error
    return read


def opened_nvml(gpu: str) -> tuple[Any, Any]:
    """The library, and what it calls the GPU. Raises Skip where there is no GPU or no package."""
    if not gpu:
        raise Skip("NVML watches GPUs", "use a machine with a GPU")
    try:
        library: Any = importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        raise Skip("the Python package pynvml is not installed", "install nvidia-ml-py") from error
    try:
        library.nvmlInit()
        return library, library.nvmlDeviceGetHandleByUUID(gpu)
    except library.NVMLError as error:
        raise Skip(f"NVML does not open the GPU: {error}", "update the driver") from error


class Profiler(Watcher):
    """torch's own, in the process that trains."""

    def __init__(self, *, stacks: bool) -> None:
        self._stacks = stacks
        self._activities = [torch.profiler.ProfilerActivity.CPU]
        self._running: Any = None
        self._start_s, self._stop_s = 0.0, 0.0

    def open(self, gpu: int | None) -> None:
        """Kernels are written down where there are some."""
        if gpu is not None:
            self._activities.append(torch.profiler.ProfilerActivity.CUDA)

    def start(self) -> None:
        start_s = monotonic()
        self._running = torch.profiler.profile(activities=self._activities, with_stack=self._stacks)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Warning: Profiler clears"
            )  # one cycle is all
            self._running.start()
        self._start_s = monotonic() - start_s

    def stop(self) -> None:
        if self._running is None:
            return
        start_s = monotonic()
        self._running.stop()
        self._running = None
        self._stop_s = monotonic() - start_s

    def metrics(self) -> dict[str, float]:
        """What lies before and behind the steps."""
        return {"start_s": self._start_s, "stop_s": self._stop_s}


class PySpy(Watcher):
    """A process that looks at the stack of this one from outside, which it stops meanwhile."""

    def __init__(self, rate_hz: int) -> None:
        found = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if found is None:
            raise Skip("py-spy is not installed", "install py-spy")
        self._command = [found, "record", "--pid", str(os.getpid()), "--rate", str(rate_hz)]
        self._command += ["--format", "raw", "--output", "/dev/null"]
        self._process: subprocess.Popen[str] | None = None
        self._samples, self._errors = 0, 0
        # Linux may let a process be looked at by its parents alone.
        ctypes.CDLL(None).prctl(*ANY_TRACER)

    def start(self) -> None:
        """Raises Skip where it ends instead."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        said = [""]
        for line in self._process.stdout:
            if SAMPLING in line:
                return
            said.append(line.strip())
        self._process.wait()
        reason = next(filter(None, reversed(said)), "it said nothing")
        raise Skip(f"py-spy cannot watch this process: {reason}", "allow it SYS_PTRACE")

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        said, _ = self._process.communicate()
        self._process = None
        counted = COUNTED.search(said)
        if counted is not None:
            self._samples, self._errors = map(int, counted.groups())

    def metrics(self) -> dict[str, float]:
        """How often it looked, and how often in vain."""
        return {"samples_count": float(self._samples), "errors_count": float(self._errors)}


WATCHERS: dict[str, Callable[[], Watcher]] = {
    "none": Watcher,
    "proc_10hz": lambda: Poller(proc, 10),
    "nvml_10hz": lambda: Poller(nvml, 10),
    "nvml_100hz": lambda: Poller(nvml, 100),
    "gpm_10hz": lambda: Poller(gpm, 10),
    "torch_profiler": lambda: Profiler(stacks=False),
    "torch_profiler_stacks": lambda: Profiler(stacks=True),
    "py_spy_100hz": lambda: PySpy(100),
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is as many training steps as last a fifth of a second, watched from end to end."""
    bound = str(point["bound"])
    if bound == "gpu" and gpu is None:
        raise Skip("a training step of ResNet-50 takes seconds on a processor", "use a GPU")
    watcher = WATCHERS[arm]()
    device = device_of(gpu)
    threads = set_up(device)
    watcher.open(gpu)
    training = Training(MODELS[bound], device, seed)

    def step() -> None:
        for _ in range(STEPS[bound]):
            training.step()

    def loss() -> float:
        training.record()
        return training.losses[-1]

    return Arm(
        step=step,
        value=loss,
        synchronize=training.synchronize,
        before=watcher.start,
        rest=watcher.stop,
        metrics=watcher.metrics,
        tolerance=0.0 if gpu is None else GPU_TOLERANCE,
        items=STEPS[bound] * TWINS[MODELS[bound]].batch,
        item="sample",
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
    )
