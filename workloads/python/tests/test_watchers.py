"""Watchers look at their rate while they are told to, and say why they cannot."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

UUID = "GPU-1"


@pytest.fixture(name="watchers")
def watchers_module() -> Any:
    """The module that arms import."""
    return importlib.import_module("gpulift_work.watchers")


@pytest.fixture(name="worker")
def worker_module() -> Any:
    """The module whose Skip the other raises."""
    return importlib.import_module("gpulift_worker")


# --- Pollers ---


def polled(
    watchers: Any, read: Callable[[], object], period_s: float, told: Callable[[Any], None]
) -> list[float]:
    """What a poller in a thread of this process found until it was told to stop."""
    pipe, other = multiprocessing.Pipe()
    costs_s: list[list[float]] = []
    thread = threading.Thread(
        target=lambda: costs_s.append(watchers.costs_until_told(other, read, period_s))
    )
    thread.start()
    told(pipe)
    thread.join()
    return costs_s[0]


def test_half_a_period_has_no_look(watchers: Any) -> None:
    assert polled(watchers, lambda: None, 1000.0, lambda pipe: pipe.send("stop")) == []


def test_looks_again_in_each_period_until_told(watchers: Any) -> None:
    third = threading.Event()
    looks_s: list[float] = []

    def read() -> None:
        looks_s.append(time.monotonic())
        if len(looks_s) == 3:
            third.set()

    def stop(pipe: Any) -> None:
        third.wait()
        pipe.send("stop")

    start_s = time.monotonic()
    assert len(polled(watchers, read, 0.02, stop)) >= 3
    assert [looks_s[0] >= start_s + 0.01, looks_s[2] >= start_s + 0.05] == [True, True]


def reading(_: str) -> Callable[[], object]:
    """A source that is always there."""
    return lambda: time.sleep(1e-3)


def test_a_poller_says_how_often_and_how_long_it_looked(watchers: Any) -> None:
    poller = watchers.Poller(reading, 50)
    poller.open(UUID)
    poller.stop()  # it does not watch yet
    for _ in range(2):
        poller.start()
        time.sleep(0.2)
        poller.stop()
    metrics = poller.metrics()
    assert metrics["looks_count"] >= 1
    assert metrics["look_s"] >= 1e-3
    assert 0 < metrics["looking_share"] < 1


def test_without_a_gpu_nvml_is_a_reason_from_the_pollers_process(
    watchers: Any, worker: Any
) -> None:
    for source in (watchers.nvml, watchers.gpm):
        with pytest.raises(worker.Skip, match="NVML watches GPUs") as skipped:
            watchers.Poller(source, 10).open("")
        assert skipped.value.remedy == "use a machine with a GPU"


class NvmlError(Exception):
    """As pynvml raises them."""


class FakeNvml:
    """A library that notes what is asked of it; everything but what a test refuses is answered."""

    NVMLError = NvmlError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_GPM_METRICS_GET_VERSION = 0, 1, 7

    def __init__(self, refuses: str = "") -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._refuses = refuses
        self.supported = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_GPM_METRIC_"):
            return name

        def ask(*arguments: Any) -> Any:
            if name == self._refuses:
                raise NvmlError("Not Supported")
            self.asked.append((name, *arguments))
            if name == "nvmlGpmQueryDeviceSupport":
                return SimpleNamespace(isSupportedDevice=self.supported)
            if name == "c_nvmlGpmMetricsGet_t":
                return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(8)])
            return f"{name} {len(self.asked)}"

        return ask

    def names(self) -> list[str]:
        """Of what was asked."""
        return [str(one[0]) for one in self.asked]


@pytest.fixture(name="library")
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """In place of pynvml."""
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


def test_a_look_of_nvml_asks_six_counters_of_this_gpu(watchers: Any, library: FakeNvml) -> None:
    read = watchers.nvml(UUID)
    assert library.asked[:2] == [("nvmlInit",), ("nvmlDeviceGetHandleByUUID", UUID)]
    library.asked.clear()
    read()
    assert len(set(library.names())) == 6
    assert {one[1] for one in library.asked} == {"nvmlDeviceGetHandleByUUID 2"}


def test_gpm_compares_each_sample_with_the_one_before(watchers: Any, library: FakeNvml) -> None:
    read = watchers.gpm(UUID)  # which looks once
    pairs = []
    library.asked.clear()
    for _ in range(2):
        read()
        wanted = next(one[1] for one in library.asked if one[0] == "nvmlGpmMetricsGet")
        pairs.append((wanted.sample1, wanted.sample2))
    assert pairs[0] == pairs[1][::-1]
    assert pairs[0][0] != pairs[0][1]
    assert [wanted.metrics[0].metricId, wanted.numMetrics] == ["NVML_GPM_METRIC_SM_UTIL", 5]


@pytest.mark.parametrize(
    ("source", "refuses", "reason"),
    [
        ("nvml", "nvmlInit", "NVML does not open the GPU: Not Supported"),
        ("nvml", "nvmlDeviceGetPowerUsage", "NVML does not say all that is read: Not Supported"),
        ("gpm", "nvmlGpmQueryDeviceSupport", "this GPU has no GPM"),
    ],
)
def test_what_the_gpu_does_not_say_is_a_reason(
    watchers: Any,
    worker: Any,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    refuses: str,
    reason: str,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(refuses))
    with pytest.raises(worker.Skip, match=reason):
        getattr(watchers, source)(UUID)


def test_a_gpu_without_gpm_and_a_missing_package_are_reasons(
    watchers: Any, worker: Any, library: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.supported = 0
    with pytest.raises(worker.Skip, match="this GPU has no GPM"):
        watchers.gpm(UUID)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(worker.Skip, match="pynvml is not installed") as skipped:
        watchers.nvml(UUID)
    assert skipped.value.remedy == "install nvidia-ml-py"


# --- Programs ---

# No shell, which cannot trap what its parent ignores, as one behind & in a script does.
LOOKS = f"""#!{sys.executable}
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("# of which", flush=True)
print("7 %, 1 MiB", flush=True)
signal.sigwait([signal.SIGINT])
print("8 %, 2 MiB")
print("9 %, 3 MiB")
print("the end")
"""
REFUSES = """#!/bin/sh
echo "Error: Permission Denied"
echo
exit 1
"""


def made(
    watchers: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str = "looks"
) -> Any:
    """A program that is found before any other."""
    program = folder / name
    program.write_text(script, encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return watchers.Program([name], r"^\d+ %", package="them", remedy="be allowed")


def test_a_program_watches_from_its_first_line_on(
    watchers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = made(watchers, tmp_path, monkeypatch, LOOKS)
    program.stop()  # it does not watch yet
    for _ in range(2):
        program.start()
        process = program._process
        assert process.poll() is None
        program.stop()
        assert process.poll() == 0
        assert program.metrics() == {"looks_count": 2}


DEAF = f"""#!{sys.executable}
import signal, sys, time
assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
signal.signal(signal.SIGINT, signal.SIG_IGN)
if "silent" not in sys.argv[0]:
    print("7 %, 1 MiB", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["looks", "silent"])
def test_a_program_that_neither_speaks_nor_ends_is_killed(
    watchers: Any, worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(watchers, "START_S", 1.0 if name == "silent" else 20.0)
    monkeypatch.setattr(watchers, "STOP_S", 0.1)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in an arm's process
    try:
        program = made(watchers, tmp_path, monkeypatch, DEAF, name)
        if name == "silent":
            with pytest.raises(worker.Skip, match="silent cannot watch: it said nothing"):
                program.start()
            return
        program.start()
        program.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert program.metrics() == {"looks_count": 0}


def test_a_program_that_may_not_watch_or_is_not_there_is_a_reason(
    watchers: Any, worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(worker.Skip, match="looks cannot watch: Error: Permission Denied") as skip:
        made(watchers, tmp_path, monkeypatch, REFUSES).start()
    assert skip.value.remedy == "be allowed"
    (tmp_path / "looks").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(worker.Skip, match="looks is not installed") as skip:
        watchers.Program(["looks"], "", package="them", remedy="")
    assert skip.value.remedy == "install them"
