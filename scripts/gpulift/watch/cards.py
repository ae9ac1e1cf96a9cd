"""NVIDIA GPUs through NVML (the package nvidia-ml-py). No setting of a card is changed.

Activities come from the driver's performance monitoring (GPM, from Hopper on): differences of
counters between two readings. Older cards tell a utilisation alone: the share of time in which any
kernel ran.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

from gpulift.engine import machine, packages
from gpulift.ground.entry import say
from gpulift.ground.errors import GpuliftError
from gpulift.watch.samples import THROTTLE

LIBRARY = "pynvml"
PERCENT = 0.01
MILLI = 1e-3
MEBI = float(1 << 20)
MEGA = 1e6
# As in nvml.h; a reading is in this unit, where the library has it.
ACTIVITIES = (
    ("graphics_activity", "NVML_GPM_METRIC_GRAPHICS_UTIL", PERCENT),
    ("sm_activity", "NVML_GPM_METRIC_SM_UTIL", PERCENT),
    ("tensor_activity", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", PERCENT),
    ("dram_activity", "NVML_GPM_METRIC_DRAM_BW_UTIL", PERCENT),
    ("pcie_received_bytes_per_s", "NVML_GPM_METRIC_PCIE_RX_PER_SEC", MEBI),
    ("pcie_sent_bytes_per_s", "NVML_GPM_METRIC_PCIE_TX_PER_SEC", MEBI),
    ("nvlink_received_bytes_per_s", "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", MEBI),
    ("nvlink_sent_bytes_per_s", "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", MEBI),
)
# Bits of nvml.h, named as in records; an idle card (bit 0) is not throttled.
THROTTLE_REASONS = (
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)


class Card:
    """One GPU and the counters of the reading before."""

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)
        self.index = index
        self.name = str(library.nvmlDeviceGetName(self._handle))
        self._counters = self._allocated() if self._has_activities() else None
        self._has_before = False

    @property
    def label(self) -> str:
        """`GPU 0 NVIDIA H100`."""
        return f"GPU {self.index} {self.name}"

    @property
    def has_activities(self) -> bool:
        """Whether the card tells more than its utilisation."""
        return self._counters is not None

    def reading(self) -> dict[str, float]:
        """What is known now; activities are those since the reading before."""
        nvml, ask = self._library, self._ask
        found: dict[str, float] = {}
        if rates := ask(nvml.nvmlDeviceGetUtilizationRates):
            found["utilisation"] = rates.gpu * PERCENT
            found["memory_utilisation"] = rates.memory * PERCENT
        if memory := ask(nvml.nvmlDeviceGetMemoryInfo):
            found["memory_used_bytes"] = float(memory.used)
            found["memory_bytes"] = float(memory.total)
        numbers = (
            ("power_w", MILLI, ask(nvml.nvmlDeviceGetPowerUsage)),
            ("sm_clock_hz", MEGA, ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)),
            ("temperature_c", 1.0, ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)),
        )
        found |= {name: unit * value for name, unit, value in numbers if value is not None}
        return found | self._throttle() | self._activities()

    def energy_j(self) -> float | None:
        """The card's counter since its driver was loaded."""
        counted = self._ask(self._library.nvmlDeviceGetTotalEnergyConsumption)
        return None if counted is None else counted * MILLI

    def _throttle(self) -> dict[str, float]:
        bits = self._ask(self._library.nvmlDeviceGetCurrentClocksThrottleReasons)
        if bits is None:
            return {}
        return {f"{THROTTLE}{name}": float(bool(bits & bit)) for bit, name in THROTTLE_REASONS}

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer; None of what the card or its driver does not know."""
        try:
            return function(self._handle, *arguments)
        except self._library.NVMLError:
            return None

    def _has_activities(self) -> bool:
        support = self._ask(self._library.nvmlGpmQueryDeviceSupport)
        return support is not None and bool(support.isSupportedDevice)

    def _allocated(self) -> list[Any] | None:
        try:
            return [self._library.nvmlGpmSampleAlloc() for _ in range(2)]
        except self._library.NVMLError:
            return None

    def _activities(self) -> dict[str, float]:
        if self._counters is None:
            return {}
        before, now = self._counters
        had_before = self._has_before
        self._has_before = self._ask(self._library.nvmlGpmSampleGet, now) is not None
        if not self._has_before:
            return {}
        self._counters = [now, before]
        return self._differences(before, now) if had_before else {}

    def _differences(self, before: Any, now: Any) -> dict[str, float]:
        nvml = self._library
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.sample1, asked.sample2 = before, now
        asked.numMetrics = len(ACTIVITIES)
        for metric, (_, constant, _) in zip(asked.metrics, ACTIVITIES, strict=False):
            metric.metricId = getattr(nvml, constant)
        try:
            nvml.nvmlGpmMetricsGet(asked)
        except nvml.NVMLError:
            return {}
        return {
            name: metric.value * unit
            for metric, (name, _, unit) in zip(asked.metrics, ACTIVITIES, strict=False)
            if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value)
        }


def load() -> tuple[Any, str]:
    """NVML, ready to be asked, or why there is none."""
    try:
        library: Any = import_module(LIBRARY)
    except ModuleNotFoundError:
        missing = packages.missing("nvidia-ml-py")
        return None, f"{missing}; ./gpulift setup installs it"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, f"NVML: {error}"
    return library, ""


def open_cards(library: Any, wanted: str | None) -> list[Card]:
    """The GPUs of these indices, as nvidia-smi counts them, or UUIDs; raises GpuliftError for one
    that is not there. Without a wish all that answer."""
    count = library.nvmlDeviceGetCount()
    indices = list(range(count))
    if wanted is not None:
        indices = [_index(library, one, count) for one in machine.gpu_names("--gpus", wanted)]
        machine.require_each_once("--gpus", wanted, indices)
    cards = []
    for index in indices:
        try:
            cards.append(Card(library, index))
        except library.NVMLError as error:
            if wanted is not None:
                raise GpuliftError(f"--gpus {index}: NVML: {error}") from None
            say(f"warning: GPU {index} is not watched: NVML: {error}")
    return cards


def _index(library: Any, name: str, count: int) -> int:
    there = f"this machine has {count}, numbered from 0" if count else "there is none"
    if name.isdecimal():
        if int(name) >= count:
            raise GpuliftError(f"--gpus {name}: there is no such GPU; {there}")
        return int(name)
    if name.startswith("MIG-"):
        raise GpuliftError(f"--gpus {name}: a MIG instance is not watched; name its GPU")
    uuids = [_uuid(library, index).lower() for index in range(count)]
    found = [index for index, uuid in enumerate(uuids) if uuid.startswith(name.lower())]
    if not found:
        raise GpuliftError(f"--gpus {name}: no GPU has this UUID; nvidia-smi -L lists them")
    if len(found) > 1:
        raise GpuliftError(f"--gpus {name}: several GPUs begin so; give more of the UUID")
    return found[0]


def _uuid(library: Any, index: int) -> str:
    try:
        return str(library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(index)))
    except library.NVMLError:
        return ""
