"""The record as frozen dataclasses. Units are in the names, base SI; absent is None."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import quantiles
from typing import Any

from gpulift.records.quick import canonical

ID_DIGITS = 12
SLUG_CHARACTERS = 100  # a file of that name with any ending can be made everywhere


@dataclass(frozen=True)
class Cost:
    """Work of one step. `roof` names the ceiling that bounds it, if one does; `item` one item."""

    bytes: float = 0.0
    flops: float = 0.0
    items: float = 0.0
    roof: str = ""
    item: str = ""


@dataclass(frozen=True)
class Windows:
    """One entry per window: totals of the window, not of one step.

    Those that were read are arrays of doubles, which take a quarter of the memory of tuples.
    """

    device_s: Sequence[float] = ()
    host_s: Sequence[float] = ()
    enqueue_s: Sequence[float] = ()
    sm_clock_hz: Sequence[float] = ()
    start_s: Sequence[float] = ()
    energy_j: Sequence[float | None] = ()  # None: the card's counter does not resolve that window


@dataclass(frozen=True)
class Arm:
    """One way of doing the work of a case, with its windows."""

    name: str
    role: str
    outcome: str
    reason: str = ""
    remedy: str = ""
    clock: str = "host"
    cost: Cost | None = None
    check_error: float | None = None
    check_tolerance: float | None = None
    steps_per_window: int = 1
    lead_in_steps: int = 0
    held: bool = False
    peak_device_bytes: int | None = None
    peak_pinned_bytes: int | None = None
    peak_host_bytes: int | None = None
    windows: Windows = Windows()
    metrics: Mapping[str, float] = field(default_factory=dict)  # units are in the names

    @property
    def window_s(self) -> Sequence[float]:
        """Seconds of each window on the clock that judges this arm."""
        return self.windows.device_s if self.clock == "device" else self.windows.host_s

    @cached_property
    def step_quartiles_s(self) -> tuple[float, float, float]:
        """Seconds of a step below which a quarter, half and three quarters of the windows are.

        Between two windows the value is interpolated; without a window there is none.
        """
        steps_s = [one / self.steps_per_window for one in sorted(self.window_s)]
        if len(steps_s) == 1:
            return steps_s[0], steps_s[0], steps_s[0]
        low, middle, high = quantiles(steps_s, n=4, method="inclusive")
        return low, middle, high


@dataclass(frozen=True)
class Order:
    """Which arm had each window: indices into the record's arms, block by block."""

    seed: int
    blocks: tuple[tuple[int, ...], ...]
    allocation: tuple[int, ...] = ()

    @cached_property
    def turns(self) -> Mapping[int, tuple[int, ...]]:
        """How many windows of each arm are in each block."""
        arms = set(chain.from_iterable(self.blocks))
        return {arm: tuple([block.count(arm) for block in self.blocks]) for arm in arms}


@dataclass(frozen=True)
class Stop:
    """Why the measurement of a case ended."""

    reason: str
    blocks: int
    asked_half_width: float | None = None
    reached_half_width: float | None = None


@dataclass(frozen=True)
class Range:
    """Summary of telemetry samples."""

    min: float
    median: float
    max: float


@dataclass(frozen=True)
class Telemetry:
    """What the card reported while the case ran."""

    samples: int
    interval_s: float | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    temperature_slope_c_per_s: float | None = None
    energy_j: float | None = None
    throttle: tuple[str, ...] = ()
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True)
class HostLoad:
    """Processors that were busy on average while the windows of a case were taken: with the case,
    with other processes, and with other machines to which a hypervisor gave them."""

    own_cores: float
    other_cores: float
    stolen_cores: float


@dataclass(frozen=True)
class Gpu:
    """The card. `card` is a short hash of its UUID, so that cards of one model stay apart."""

    name: str
    card: str = ""
    memory_bytes: int | None = None
    power_limit_w: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Host:
    """The machine around the card."""

    cpu: str
    cores: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The processor and how many of its cores there are."""
        return f"{self.cpu}, {self.cores} cores" if self.cores else self.cpu


@dataclass(frozen=True)
class Build:
    """What was built from which commit."""

    commit: str
    dirty: bool
    type: str = ""
    compiler: str = ""
    cuda_compiler: str = ""
    architectures: str = ""
    sanitizers: str = ""


@dataclass(frozen=True)
class Context:
    """Where and with what a record was measured; an allow-list, never the whole environment."""

    host: Host
    build: Build
    gpu: Gpu | None = None
    gpu_missing: str = ""
    gpu_remedy: str = ""
    driver: str = ""
    cuda_driver: str = ""
    cuda_runtime: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def slug(self) -> str:
        """Folder name of the machine: its GPU model, or its CPU where there is no GPU."""
        return slug(self.gpu.name) if self.gpu else f"cpu-{slug(self.host.cpu)}"


@dataclass(frozen=True)
class Record:
    """One case of one technique in one launch."""

    schema: str
    method: str
    kind: str
    technique: str
    case: Mapping[str, int | float | str]
    case_id: str
    quick: bool
    ceiling: bool
    regime: str
    launch: int
    launches: int
    started_at: str
    outcome: str
    context: Context
    reason: str = ""
    remedy: str = ""
    question: str = ""
    expectation: str = ""
    claims: tuple[str, ...] = ()
    check_meaning: str = ""
    duet_arm: str = ""
    arms: tuple[Arm, ...] = ()
    order: Order | None = None
    stop: Stop | None = None
    discarded_blocks: int = 0
    restarts: int = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    telemetry: Telemetry | None = None
    telemetry_missing: str = ""
    host_load: HostLoad | None = None
    time_s: Mapping[str, float] = field(default_factory=dict)
    parsed: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    file: Path = field(default=Path(), compare=False)
    line: int = field(default=0, compare=False)
    start: int = field(default=0, compare=False)  # bytes of the file before the line

    @cached_property
    def id(self) -> str:
        """Content address: the start of the SHA-256 of the record's canonical JSON."""
        return record_id(self.raw)

    @property
    def raw(self) -> Mapping[str, Any]:
        """The JSON object, read again from the file where it was not kept."""
        if self.parsed is not None:
            return self.parsed
        from gpulift.records.read import read_again

        return read_again(self)

    def settle(self) -> None:
        """Finds what is asked of every record and takes long where there are many, and keeps it."""
        if self.order is not None:
            self.order.turns  # noqa: B018
        for arm in self.arms:
            if arm.window_s:
                arm.step_quartiles_s  # noqa: B018

    @property
    def synthetic(self) -> bool:
        """Whether this is made-up test data, which says nothing about any machine."""
        return bool(self.context.options.get("synthetic"))

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """What was measured: the same for all launches of it."""
        return (self.kind, self.technique, self.case_id, self.duet_arm)

    @property
    def citation(self) -> str:
        """How a text refers to this record."""
        return f"gpulift:{self.context.slug}/{self.id}"

    def arm(self, name: str) -> Arm | None:
        """The arm of that name, or None."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        return None


def record_id(raw: Mapping[str, Any]) -> str:
    """First 12 hex digits of SHA-256 of the JSON with sorted keys, no spaces and ASCII escapes."""
    return hashlib.sha256(canonical(raw).encode("ascii")).hexdigest()[:ID_DIGITS]


def slug(name: str) -> str:
    """A device's name as a folder name: `NVIDIA H200` becomes `nvidia-h200`."""
    text = re.sub(r"\((?:r|tm|c)\)|@.*$|\b(?:cpu|processor)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:SLUG_CHARACTERS] or "unknown"
