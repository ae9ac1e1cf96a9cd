"""What watches a training from outside: processes that ask the driver at a rate, and programs."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any

from gpulift_worker import Skip

from gpulift_work.loaders import end_with_parent

START_S, STOP_S = 20.0, 5.0  # that a program may take to watch, and to end
GPM_METRICS = ("SM_UTIL", "SM_OCCUPANCY", "ANY_TENSOR_UTIL", "DRAM_BW_UTIL", "PCIE_RX_PER_SEC")

Read = Callable[[], object]
Source = Callable[[str], Read]  # of a GPU by its UUID


class Poller:
    """A process that reads at a rate from start to stop, and looks first when half a period has
    gone: a window of so many periods has as many looks."""

    def __init__(self, source: Source, rate_hz: float) -> None:
        # Before this process has threads or a GPU, which do not live through a fork.
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        arguments = (other, end_with_parent(os.getpid()), source, 1 / rate_hz)
        self._process = context.Process(target=poll, args=arguments, daemon=True)
        self._process.start()
        other.close()
        self._start_s: float | None = None
        self._watched_s = 0.0
        self._costs_s: list[float] = []

    def open(self, gpu: str) -> None:
        """Once the GPU is there. Raises Skip where it cannot be read."""
        self._pipe.send(gpu)
        said = self._pipe.recv()
        if isinstance(said, Skip):
            raise said

    def start(self) -> None:
        """In each period from now on."""
        self._pipe.send("start")
        self._start_s = monotonic()

    def stop(self) -> None:
        """Says how long each look took."""
        if self._start_s is None:
            return
        self._pipe.send("stop")
        self._costs_s = self._pipe.recv()
        self._watched_s = monotonic() - self._start_s
        self._start_s = None

    def metrics(self) -> dict[str, float]:
        """How often it read, and how much of the time that took: what watching can cost at most
        where each look holds the training up from its begin to its end."""
        looked = {"look_s": statistics.median(self._costs_s)} if self._costs_s else {}
        return {
            "looks_count": float(len(self._costs_s)),
            "looking_share": sum(self._costs_s) / self._watched_s,
            **looked,
        }


def poll(
    pipe: Connection, end_with_parent: Callable[[int], None], source: Source, period_s: float
) -> None:
    """What the process of a poller does until nobody listens."""
    end_with_parent(0)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            read = source(pipe.recv())
        except Skip as skip:
            pipe.send(skip)
            return
        pipe.send("ready")
        while True:
            pipe.recv()
            pipe.send(costs_until_told(pipe, read, period_s))


def costs_until_told(pipe: Connection, read: Read, period_s: float) -> list[float]:
    """Reads in the midst of each period until something is said; how long each time took."""
    costs_s: list[float] = []
    due_s = monotonic() + period_s / 2
    while not pipe.poll(max(0.0, due_s - monotonic())):
        start_s = monotonic()
        read()
        costs_s.append(monotonic() - start_s)
        due_s += period_s
    pipe.recv()
    return costs_s


def nvml(gpu: str) -> Read:
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


def gpm(gpu: str) -> Read:
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


def interruptible(parent: int) -> Callable[[], None]:
    """What a program does first: it ends with this process, and by SIGINT, which an arm's process
    ignores and its children would, too."""
    end = end_with_parent(parent)

    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        end(0)

    return begin


class Program:
    """A program that watches until it is interrupted, and says a line when it looks."""

    def __init__(
        self, command: Sequence[str], says: str, *, package: str, remedy: str, period_s: float = 0
    ) -> None:
        """`says`: a pattern of what it says as soon as it watches. `remedy`: where it ends instead.
        Raises Skip where there is no such program."""
        name, *arguments = command
        # Programs of a Python environment lie beside its interpreter.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        program = shutil.which(name, path=path)
        if program is None:
            raise Skip(f"{name} is not installed", f"install {package}")
        self._name, self._command = name, [program, *arguments]
        self._says, self._remedy, self._period_s = re.compile(says), remedy, period_s
        self._process: subprocess.Popen[str] | None = None
        self.said = ""

    def start(self) -> None:
        """Waits until it watches, and half a period."""
        process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=interruptible(os.getpid()),
        )
        assert process.stdout is not None
        lines = []
        too_late = threading.Timer(START_S, process.kill)
        too_late.start()
        for line in process.stdout:
            if self._says.search(line):
                too_late.cancel()
                self._process = process
                time.sleep(self._period_s / 2)
                return
            lines.append(line.strip())
        too_late.cancel()
        process.communicate()  # which closes the pipe, too
        reason = next(filter(None, reversed(lines)), "it said nothing")
        raise Skip(f"{self._name} cannot watch: {reason}", self._remedy)

    def stop(self) -> None:
        """What it says until it ends is in `said`."""
        if self._process is None:
            return
        process, too_late = self._process, threading.Timer(STOP_S, self._process.kill)
        assert process.stdout is not None
        too_late.start()
        with process:
            process.send_signal(signal.SIGINT)
            # communicate() with a limit would lose what start() read ahead.
            self.said = process.stdout.read()
        too_late.cancel()
        self._process = None

    def metrics(self) -> dict[str, float]:
        """How many of its lines came after the first."""
        lines = filter(self._says.search, self.said.splitlines())
        return {"looks_count": float(len(list(lines)))}
