"""The record as frozen dataclasses. Units are in the names, base SI; absent is None.

Their types say what a line may hold: records.parse makes them of its JSON, records.schema the
schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, repeat
from pathlib import Path
from sys import intern
from typing import Any, Literal, get_args

from gpulift.records.values import Count, Maybe, NotNegative, Number, Positive, Whole

Kind = Literal["technique", "duet", "import"]
Outcome = Literal["ok", "skipped", "failed", "error"]
Role = Literal["baseline", "technique"]
Clock = Literal["device", "host"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
IMPORT = "import"  # measured by another tool: it has no build of ours, and no seed

UNKNOWN_COMMITS = ("", "unknown")  # without git, or where it refused the checkout
ID_DIGITS = 12
DOUBLES = ("device_s", "host_s", "enqueue_s", "sm_clock_hz", "start_s", "cpu_s")
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
SLUG_CHARACTERS = 100  # a file of that name with any ending can be made everywhere


@dataclass(frozen=True)
class Cost:
    """Work of one step. `roof` names the ceiling that bounds it, if one does; `item` one item."""

    bytes: Number = 0.0
    flops: Number = 0.0
    items: Number = 0.0
    roof: str = ""
    item: str = ""


@dataclass(frozen=True)
class Windows:
    """One entry per window: totals of the window, not of one step.

    They are kept as arrays of doubles, which take a quarter of the memory of tuples.
    """

    device_s: Sequence[Positive] = ()
    host_s: Sequence[Positive] = ()
    enqueue_s: Sequence[Number] = ()
    sm_clock_hz: Sequence[Number] = ()
    start_s: Sequence[Number] = ()
    energy_j: tuple[NotNegative | None, ...] = ()  # None: the card's counter does not resolve it
    cpu_s: Sequence[NotNegative] = ()  # of the arm's processes and threads

    def __post_init__(self) -> None:
        vars(self).update({name: array("d", getattr(self, name)) for name in DOUBLES})


@dataclass(frozen=True)
class Precondition:
    """What had to hold ahead of each window, and the worst that was seen there."""

    name: str  # with its unit
    most: Number
    worst: Maybe[Number] = None


@dataclass(frozen=True)
class Arm:
    """One way of doing the work of a case, with its windows."""

    name: str
    role: Role
    outcome: Outcome
    reason: str = ""
    remedy: str = ""
    clock: Clock = "host"
    cost: Maybe[Cost] = None
    check_error: Maybe[Number] = None
    check_tolerance: Maybe[Number] = None
    steps_per_window: Count = 1
    lead_in_steps: Whole = 0
    held: bool = False
    peak_device_bytes: Maybe[Whole] = None
    peak_pinned_bytes: Maybe[Whole] = None
    peak_host_bytes: Maybe[Whole] = None
    windows: Windows = Windows()
    metrics: Mapping[str, Number] = field(default_factory=dict)  # units are in the names
    ranks: Count = 1  # processes that take each window together
    environment: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True  # False: there was nothing to compare its result with
    precondition: Maybe[Precondition] = None

    def __post_init__(self) -> None:
        vars(self).update(
            name=intern(self.name),
            role=intern(self.role),
            outcome=intern(self.outcome),
            clock=intern(self.clock),
        )

    @property
    def window_s(self) -> Sequence[float]:
        """Seconds of each window on the clock that judges this arm."""
        return self.windows.device_s if self.clock == "device" else self.windows.host_s

    @property
    def may_wait_for_host(self) -> bool:
        """Whether the host's pace may be in its times: only a hold keeps it out."""
        return not (self.clock == "device" and self.held)

    @cached_property
    def step_quartiles_s(self) -> tuple[float, float, float]:
        """Seconds of a step below which a quarter, half and three quarters of the windows are.

        Between two windows the value is interpolated; without a window there is none.
        """
        windows = sorted(self.window_s)
        last = len(windows) - 1

        def quarter(number: int) -> float:
            at, rest = divmod(last * number, 4)
            low = windows[at] / self.steps_per_window
            if rest == 0:
                return low
            high = windows[at + 1] / self.steps_per_window
            return (low * (4 - rest) + high * rest) / 4

        return quarter(1), quarter(2), quarter(3)


@dataclass(frozen=True)
class Order:
    """Which arm had each window: indices into the record's arms, block by block."""

    blocks: tuple[tuple[Whole, ...], ...]
    seed: Maybe[int] = None  # up to 64 bits; what other tools measured has none
    allocation: tuple[Whole, ...] = ()

    def __post_init__(self) -> None:
        vars(self).update(blocks=tuple(map(_one_row, self.blocks)))

    @cached_property
    def turns(self) -> Mapping[int, tuple[int, ...]]:
        """How many windows of each arm are in each block."""
        arms = set(chain.from_iterable(self.blocks))
        return {arm: tuple(map(tuple.count, self.blocks, repeat(arm))) for arm in arms}


@dataclass(frozen=True)
class Stop:
    """Why the measurement of a case ended."""

    reason: str
    blocks: Whole
    asked_half_width: Maybe[Number] = None
    reached_half_width: Maybe[Number] = None
    planned_blocks: Maybe[Whole] = None  # the least number of the plan


@dataclass(frozen=True)
class Range:
    """Summary of telemetry samples."""

    min: Number
    median: Number
    max: Number


@dataclass(frozen=True)
class Telemetry:
    """What the card reported while the case ran."""

    samples: Whole
    interval_s: Maybe[Number] = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    temperature_slope_c_per_s: Maybe[Number] = None
    energy_j: Maybe[Number] = None
    throttle: Maybe[tuple[str, ...]] = None  # empty: the driver said that nothing throttles
    pcie_generation: Maybe[Whole] = None
    pcie_width: Maybe[Whole] = None


@dataclass(frozen=True)
class HostLoad:
    """Processors that were busy on average while the windows of a case were taken: with the case,
    with other processes, and with other machines to which a hypervisor gave them."""

    own_cores: NotNegative
    other_cores: NotNegative
    stolen_cores: NotNegative


@dataclass(frozen=True)
class Gpu:
    """The card. `card` is a short hash of its UUID, so that cards of one model stay apart."""

    name: str
    card: str = ""
    memory_bytes: Maybe[Whole] = None
    power_limit_w: Maybe[Number] = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scratch:
    """The disk of the folder in which techniques kept their files."""

    filesystem: str = ""
    rotational: Maybe[bool] = None
    in_memory: bool = False  # no disk was measured


@dataclass(frozen=True)
class Host:
    """The machine around the card."""

    cpu: str
    cores: Maybe[Whole] = None
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

    @property
    def doubt(self) -> str:
        """Why the commit does not say which code was measured; empty where it does."""
        if self.dirty:
            return "built from uncommitted changes"
        return "built from an unknown commit" if self.commit in UNKNOWN_COMMITS else ""


NO_BUILD = Build(commit="", dirty=False)


@dataclass(frozen=True)
class Context:
    """Where and with what a record was measured; an allow-list, never the whole environment."""

    host: Host
    build: Build = NO_BUILD  # of ours: what other tools measured has none
    gpu: Maybe[Gpu] = None
    gpu_missing: str = ""
    gpu_remedy: str = ""
    driver: str = ""
    cuda_driver: str = ""
    cuda_runtime: str = ""
    gpus: tuple[Gpu, ...] = ()  # where an arm had several; `gpu` is the first
    versions: Mapping[str, str] = field(default_factory=dict)  # of the arms' libraries
    scratch: Maybe[Scratch] = None  # where an arm asked for it
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def slug(self) -> str:
        """Folder name of the machine: its GPU model, or its CPU where there is no GPU, with the id
        that tells processors of one name apart (records below schema 1.6 lack it)."""
        if self.gpu:
            return slug(self.gpu.name)
        name, cpu_id = f"cpu-{slug(self.host.cpu)}", self.host.facts.get("cpu_id")
        return f"{name}-{cpu_id}" if cpu_id else name


@dataclass(frozen=True)
class Record:
    """One case of one technique in one launch."""

    schema: str
    method: str
    kind: Kind
    technique: str
    case: Mapping[str, Whole | Number | str]
    case_id: str
    launch: Whole
    launches: Whole
    started_at: str
    outcome: Outcome
    context: Context
    quick: bool = False
    ceiling: bool = False
    integrity: bool = False  # its check is the finding: where it fails, the machine is broken
    launch_bound: bool = False
    regime: str = "burst"
    reason: str = ""
    remedy: str = ""
    question: str = ""
    expectation: str = ""
    claims: tuple[str, ...] = ()
    check_meaning: str = ""
    duet_arm: str = ""
    arms: tuple[Arm, ...] = ()
    order: Maybe[Order] = None
    stop: Maybe[Stop] = None
    discarded_blocks: Whole = 0
    restarts: Whole = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    telemetry: Maybe[Telemetry] = None
    telemetry_missing: str = ""
    telemetry_others: tuple[Telemetry, ...] = ()  # of further GPUs
    source: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the technique's files
    host_load: Maybe[HostLoad] = None
    time_s: Mapping[str, Number] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    file: Path = field(default=Path(), compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        texts = {name: intern(one) for name, one in vars(self).items() if type(one) is str}
        vars(self).update(texts)  # equal ones are one object

    @cached_property
    def id(self) -> str:
        """Content address: the start of the SHA-256 of the record's canonical JSON."""
        return record_id(self.raw)

    @cached_property
    def minor(self) -> int:
        """The minor version of its schema: what an older record lacks was not known then."""
        return int(self.schema.partition(".")[2])

    @property
    def judges_integrity(self) -> bool:
        """Until 1.6 only the name of its technique said so."""
        return self.integrity or (self.minor < 7 and self.technique.startswith("integrity/"))

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


@lru_cache(maxsize=4096)
def _one_row(row: tuple[int, ...]) -> tuple[int, ...]:
    """The same object for equal rows, of which there are few."""
    return row


def record_id(raw: Mapping[str, Any]) -> str:
    """First 12 hex digits of SHA-256 of the JSON with sorted keys, no spaces and ASCII escapes."""
    return hashlib.sha256(canonical(raw).encode("ascii")).hexdigest()[:ID_DIGITS]


def slug(name: str) -> str:
    """A device's name as a folder name: `NVIDIA H200` becomes `nvidia-h200`."""
    text = re.sub(r"\((?:r|tm|c)\)|@.*$|\b(?:cpu|processor)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:SLUG_CHARACTERS] or "unknown"
