"""monitor/overhead: what is watched trains as what is not, and monitors look at their rate."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

overhead = load(__file__)
MANIFEST = manifest(__file__)
UUID = "GPU-1"


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps in place of forty."""
    monkeypatch.setattr(overhead, "STEPS", {"launches": 3, "gpu": 3})


def make(arm: str) -> Any:
    """An arm on the processor."""
    return overhead.make(arm, {"bound": "launches"}, 7, None)


def loss_of(arm: Any) -> float:
    """As the worker checks it: `rest` comes twice."""
    arm.before()
    arm.step()
    arm.rest()
    value: float = arm.value()
    arm.rest()
    return value


@pytest.mark.parametrize("name", ["proc_10hz", "torch_profiler", "torch_profiler_stacks"])
def test_what_is_watched_has_exactly_the_loss_of_what_is_not(name: str) -> None:
    watched = make(name)
    assert loss_of(watched) == loss_of(make("none"))
    loss_of(watched)  # a second window
    assert all(number > 0 for number in watched.metrics().values())
    assert watched.tolerance == 0
    assert watched.items == 3 * 8


def test_every_arm_has_its_watcher() -> None:
    assert list(overhead.WATCHERS) == MANIFEST["arms"]


@pytest.mark.parametrize("name", ["nvml_10hz", "nvml_100hz", "gpm_10hz"])
def test_without_a_gpu_nvml_is_a_reason_from_the_pollers_process(name: str) -> None:
    with pytest.raises(Skip, match="NVML watches GPUs") as skipped:
        make(name)
    assert skipped.value.remedy == "use a machine with a GPU"


def test_resnet50_needs_a_gpu() -> None:
    with pytest.raises(Skip, match="takes seconds on a processor"):
        overhead.make("none", {"bound": "gpu"}, 7, None)


def test_the_profiler_sees_the_operations_of_the_steps_and_none_after() -> None:
    profiler = overhead.Profiler(stacks=False)
    profiler.start()
    running = profiler._running
    torch.ones(3) * 2
    profiler.stop()
    torch.ones(3) / 2
    profiler.stop()
    names = {one.name for one in running.events()}
    assert "aten::mul" in names
    assert "aten::div" not in names


# --- Pollers ---


def polled(read: Callable[[], object], period_s: float, told: Callable[[Any], None]) -> list[float]:
    """What a poller in a thread of this process found until it was told to stop."""
    pipe, other = multiprocessing.Pipe()
    found: list[list[float]] = []
    thread = threading.Thread(
        target=lambda: found.append(overhead.costs_until_told(other, read, period_s))
    )
    thread.start()
    told(pipe)
    thread.join()
    return found[0]


def test_a_window_shorter_than_a_period_has_one_look() -> None:
    looks: list[int] = []
    costs = polled(lambda: looks.append(1), 1000.0, lambda pipe: pipe.send("stop"))
    assert len(looks) == len(costs) == 1


def test_looks_again_in_each_period_until_told() -> None:
    third = threading.Event()
    looks: list[int] = []

    def read() -> None:
        looks.append(1)
        if len(looks) == 3:
            third.set()

    def stop(pipe: Any) -> None:
        third.wait()
        pipe.send("stop")

    assert len(polled(read, 1e-3, stop)) >= 3


def test_proc_is_read_whole() -> None:
    contents = overhead.proc("", os.getpid())()
    assert len(contents) >= 4
    assert contents[0].startswith(b"cpu ")


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
    found = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)
    return found


def test_a_look_of_nvml_asks_six_counters_of_this_gpu(library: FakeNvml) -> None:
    read = overhead.nvml(UUID, 0)
    assert library.asked[:2] == [("nvmlInit",), ("nvmlDeviceGetHandleByUUID", UUID)]
    library.asked.clear()
    read()
    assert len(set(library.names())) == 6
    assert {one[1] for one in library.asked} == {"nvmlDeviceGetHandleByUUID 2"}


def test_gpm_compares_each_sample_with_the_one_before(library: FakeNvml) -> None:
    read = overhead.gpm(UUID, 0)  # which looks once
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
    monkeypatch: pytest.MonkeyPatch, source: str, refuses: str, reason: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(refuses))
    with pytest.raises(Skip, match=reason):
        getattr(overhead, source)(UUID, 0)


def test_a_gpu_without_gpm_and_a_missing_package_are_reasons(
    library: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.supported = 0
    with pytest.raises(Skip, match="this GPU has no GPM"):
        overhead.gpm(UUID, 0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Skip, match="pynvml is not installed") as skipped:
        overhead.nvml(UUID, 0)
    assert skipped.value.remedy == "install nvidia-ml-py"


# --- py-spy ---

# No shell, which cannot trap what its parent ignores, as one behind & in a script does.
SAYS = f"""#!{sys.executable}
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("py-spy> Sampling process 100 times a second. Press Control-C to exit.", flush=True)
signal.sigwait([signal.SIGINT])
print("py-spy> Wrote raw flamegraph data. Samples: 12 Errors: 1")
"""
REFUSES = """#!/bin/sh
echo "Error: Permission Denied"
echo
exit 1
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of this name, found before any other."""
    program = folder / "py-spy"
    program.write_text(script, encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_py_spy_watches_from_start_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, SAYS)
    watcher = overhead.PySpy(100)
    watcher.start()
    process = watcher._process
    assert process.poll() is None
    watcher.stop()
    assert process.poll() == 0
    watcher.stop()
    assert watcher.metrics() == {"samples_count": 12, "errors_count": 1}


def test_py_spy_that_may_not_watch_or_is_not_there_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, REFUSES)
    with pytest.raises(Skip, match="cannot watch this process: Error: Permission Denied"):
        overhead.PySpy(100).start()
    (tmp_path / "py-spy").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Skip, match="py-spy is not installed"):
        overhead.PySpy(100)
