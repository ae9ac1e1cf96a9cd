"""A made-up NVML: the part of the package pynvml that a watch uses. Card 0 has activities, card 1
only what older cards tell."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

GIBI = 1 << 30
ACTIVITY_PERCENT = {1: 98.0, 2: 95.0, 5: 92.0, 10: 24.0}
MEBI_PER_S = {20: 3.0, 21: 15.0, 60: 7.0}  # NVLink is not counted the other way


class NVMLError(Exception):
    """As the package's."""


class Metric(ctypes.Structure):
    """c_nvmlGpmMetric_t, without its texts."""

    _fields_ = (
        ("metricId", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", ctypes.c_double),
    )


class Metrics:
    """c_nvmlGpmMetricsGet_t."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1: Any = None
        self.sample2: Any = None
        self.metrics = (Metric * 98)()


class FakeNvml:
    """The functions of the package, by their names; readings are counted for each sample."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_GRAPHICS_UTIL = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
    NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60
    NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
    c_nvmlGpmMetricsGet_t = Metrics

    def __init__(self, driver: bool = True) -> None:
        self.driver = driver
        self.readings = 0
        self.failing: set[int] = set()  # readings that fail
        self.lost: set[int] = set()  # cards
        self.millijoules = 1_000_000

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetUUID(self, card: int) -> str:
        return ("GPU-3a2b1c4d-0000", "GPU-3a2c1c4d-0000")[card]

    def nvmlDeviceGetName(self, card: int) -> str:
        return ("NVIDIA H100 80GB HBM3", "Tesla V100")[card]

    def nvmlDeviceGetUtilizationRates(self, card: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=100 if card == 0 else 25, memory=24)

    def nvmlDeviceGetMemoryInfo(self, card: int) -> SimpleNamespace:
        return SimpleNamespace(used=12 * GIBI, total=80 * GIBI)

    def nvmlDeviceGetPowerUsage(self, card: int) -> int:
        return 612_000

    def nvmlDeviceGetTotalEnergyConsumption(self, card: int) -> int:
        if card == 1:
            raise NVMLError("Not Supported")
        self.millijoules += 500_000
        return self.millijoules

    def nvmlDeviceGetClockInfo(self, card: int, kind: int) -> int:
        return 1755

    def nvmlDeviceGetTemperature(self, card: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: int) -> int:
        if card == 1:
            raise NVMLError("Not Supported")
        return 0x1 | 0x4

    def nvmlGpmQueryDeviceSupport(self, card: int) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(card == 0))

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:
        return SimpleNamespace(reading=0)

    def nvmlGpmSampleGet(self, card: int, sample: SimpleNamespace) -> SimpleNamespace:
        self.readings += 1
        if self.readings in self.failing:
            raise NVMLError("Unknown Error")
        sample.reading = self.readings
        return sample

    def nvmlGpmMetricsGet(self, asked: Metrics) -> Metrics:
        if not 0 < asked.sample1.reading < asked.sample2.reading:
            raise NVMLError("Invalid Argument")
        values = ACTIVITY_PERCENT | MEBI_PER_S
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in values else 3
            metric.value = values.get(metric.metricId, 1e9)
        return asked
