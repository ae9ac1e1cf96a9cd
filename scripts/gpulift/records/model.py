"""The record as frozen dataclasses. Units are in the names, base SI; absent is None.

Their types say what a line may hold: records.parse makes them of its JSON, gpulift.schema the
schema.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import chain, repeat
from pathlib import Path
from sys import intern
from typing import Annotated, Any, Literal, get_args

from zstandard import decompress

from gpulift.records.decode import parse_again
from gpulift.records.values import (
    Count,
    Error,
    Integer,
    Maybe,
    NotNegative,
    Number,
    Result,
    Seconds,
    Whole,
    about,
)

Kind = Literal["technique", "duet", "import"]
Outcome = Literal["ok", "skipped", "failed", "error"]
Role = Literal["baseline", "technique"]
Clock = Literal["device", "host"]
HostIdOf = Literal["boot_id", "machine_id"]
Regime = Literal["burst", "sustained", "unknown"]  # unknown: what another tool measured
CacheState = Literal["", "none", "cold", "warm", "by_size", "by_case"]
KINDS: tuple[Kind, ...] = get_args(Kind)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)  # from good to bad
IMPORT = "import"  # measured by another tool: it has no build of ours, and no seed

UNKNOWN_COMMITS = ("", "unknown")  # without git, or where it refused the checkout
ID_DIGITS = 12
DOUBLES = ("device_s", "host_s", "enqueue_s", "sm_clock_hz", "start_s", "cpu_s")
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
EARLIER_CONTROLS: Mapping[str, tuple[str, ...]] = {  # that records below schema 1.10 do not name
    "allocator/caching": ("uncached",),
    "allocator/device_malloc": ("cuda_malloc",),
    "attention/sdpa": ("math", "explicit"),
    "batch/activation_checkpointing": ("fp32", "fp32_every_block"),
    "compile/torch_compile": ("cpp_eager",),
    "compile/xla": ("no_jit",),
    "convolution/autotune": ("new_size",),
    "distributed/overlap": ("one_at_the_end", "per_parameter", "one_bucket"),
    "framework/choice": ("pytorch_eager", "libtorch_eager"),
    "fusion/gradient_norm": ("launch_a_tensor", "read_each"),
    "fusion/layer_norm": ("op_by_op",),
    "host/numa_binding": ("remote",),
    "host/thread_affinity": ("one_core",),
    "input/cache": ("remote_each_epoch",),
    "input/decode": ("libjpeg_turbo_no_simd",),
    "input/sharding": ("scan_and_skip",),
    "kernel/matmul_ladder": ("naive", "tiled"),
    "launch/priorities": ("idle_device",),
    "loss/chunked_cross_entropy": ("compiled_chunked",),
    "optimizer/foreach": ("loop",),
    "optimizer/step_share": ("loop",),
    "precision/matmul": ("fp32",),
    "precision/mixed": ("fp32",),
    "sparsity/two_four": ("dense_half_zeros",),
}
# Minor schema version from which on records tell all controls, predictions, all files that an arm
# is made of, and joules of its own cards alone.
TELLS_ALL = 10
HASHES_MEANING = 14  # minor version from which on `source` hashes what is done, not files
TELLS_END = range(7, 13)  # minor versions whose `started_at` is when the case ended
MOMENT = "%Y-%m-%dT%H:%M:%SZ"
SLUG_CHARACTERS = 100  # a file of that name with any ending can be made everywhere


@dataclass(frozen=True)
class Cost:
    """Work of one step."""

    bytes: Number = 0.0
    flops: Number = 0.0
    items: Number = 0.0
    roof: Annotated[str, about("the ceiling that bounds the step, if one does")] = ""
    item: Annotated[str, about("one of the items; empty where their rate says nothing")] = ""


@dataclass(frozen=True)
class Windows:
    """One entry per window: totals of the window, not of one step."""

    device_s: Annotated[Sequence[Seconds], about("by device events")] = ()
    host_s: Annotated[Sequence[Seconds], about("by the wall clock")] = ()
    enqueue_s: Annotated[Sequence[NotNegative], about("host time spent issuing the window")] = ()
    sm_clock_hz: Annotated[Sequence[NotNegative], about("true SM clock in the window")] = ()
    start_s: Annotated[
        Sequence[Number],
        about("when it began (held: when it was released), on the machine's steady clock"),
    ] = ()
    energy_j: Annotated[
        tuple[NotNegative | None, ...],
        about(
            "energy of the card, by its own counter: mean power between the first and the last"
            " update of the counter inside the window, times the time of its counted steps on the"
            " device; null where the counter does not resolve the window, absent where that is so"
            " of all"
        ),
    ] = ()
    cpu_s: Annotated[
        Sequence[NotNegative],
        about(
            "CPU seconds, user and system, of the arm's processes and threads, children included;"
            " of all ranks together"
        ),
    ] = ()

    def __post_init__(self) -> None:
        # Arrays of doubles take a quarter of the memory of tuples.
        vars(self).update({name: array("d", getattr(self, name)) for name in DOUBLES})


@dataclass(frozen=True)
class Precondition:
    """What had to hold when a window began; where it did not, the arm failed."""

    name: Annotated[str, about("what was looked at ahead of each window, with its unit")]
    most: Annotated[Number, about("holds up to this")]
    worst: Annotated[
        Maybe[Number], about("the largest that was seen; absent where nothing was")
    ] = None


@dataclass(frozen=True)
class Arm:
    """One way of doing the work of a case, with its windows."""

    name: str
    role: Role
    outcome: Outcome
    reason: Annotated[str, about("why it was not measured, in one line")] = ""
    remedy: str = ""
    clock: Annotated[Clock, about("which windows judge the arm")] = "host"
    cost: Maybe[Cost] = None
    check_error: Maybe[Error] = None
    check_tolerance: Maybe[Error] = None
    steps_per_window: Count = 1
    lead_in_steps: Whole = 0
    held: Annotated[bool, about("windows were queued behind a blocking kernel")] = False
    peak_device_bytes: Maybe[Whole] = None
    peak_pinned_bytes: Maybe[Whole] = None
    peak_host_bytes: Maybe[Whole] = None
    windows: Windows = field(default_factory=Windows)
    metrics: Annotated[
        Mapping[str, Result],
        about("facts about the arm beyond its time, whose names end in their units"),
    ] = field(default_factory=dict)
    ranks: Annotated[
        Count,
        about(
            "processes that take each window together, which is that of the slowest: from the"
            " first start to the last end"
        ),
    ] = 1
    environment: Annotated[
        Mapping[str, str], about("variables that the arm's processes had beyond the others'")
    ] = field(default_factory=dict)
    checked: Annotated[
        bool, about("false where there was nothing to compare the arm's result with")
    ] = True
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
    def windows_in_time_s(self) -> Sequence[float]:
        """The same as they followed each other: those of visits are written block by block."""
        if len(self.windows.start_s) != len(self.window_s):
            return self.window_s
        return [one for _, one in sorted(zip(self.windows.start_s, self.window_s, strict=True))]

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

    blocks: Annotated[
        tuple[tuple[Whole, ...], ...],
        about("turn by turn; the i-th window of an arm is its i-th turn"),
    ]
    seed: Annotated[Maybe[int], about("of up to 64 bits; what another tool measured has none")] = (
        None
    )
    allocation: Annotated[tuple[Whole, ...], about("the order in which the arms allocated")] = ()
    visits: Annotated[
        tuple[Whole, ...],
        about(
            "arms in the order in which each was visited, twice, for all windows of a visit; block"
            " k then has an arm's k-th window of the first visit and the k-th from the end of the"
            " second. Absent where blocks followed each other"
        ),
    ] = ()

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
    asked_half_width: Maybe[NotNegative] = None
    reached_half_width: Maybe[NotNegative] = None
    planned_blocks: Annotated[Maybe[Count], about("the least number of the plan")] = None
    rest_s: Annotated[NotNegative, about("idle before each window: the boost clock is back")] = 0.0
    dropped_visits: Annotated[
        Whole,
        about(
            "blocks of visits that alternating ones replaced: an arm was within 2 % of the first"
        ),
    ] = 0


@dataclass(frozen=True)
class Range:
    """Summary of telemetry samples."""

    min: Number
    median: Number
    max: Number


@dataclass(frozen=True)
class Telemetry:
    """What the card reported while the case ran. Whatever is an object is a range: power_w, ..."""

    samples: Whole
    interval_s: Maybe[NotNegative] = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    temperature_slope_c_per_s: Annotated[
        Maybe[Number],
        about("least squares; absent for fewer than 10 readings or less than 1 s"),
    ] = None
    energy_j: Maybe[NotNegative] = None
    throttle: Annotated[
        Maybe[tuple[str, ...]],
        about(
            "what held the clock down in any sample; empty where nothing did, absent where no"
            " sample knows it"
        ),
    ] = None
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
    """The card. Further facts stand beside these: architecture (compute capability, as 90),
    multiprocessors, copy_engines, l2_bytes, default_power_limit_w, max_sm_clock_hz,
    max_memory_clock_hz, memory_bus_bits, pcie_max_generation, pcie_max_width, nvlink_links (that
    are active), nvlink_link_bytes_per_s, ecc, mig, vbios."""

    name: str
    card: Annotated[str, about("short hash of its UUID, so that cards of one model stay apart")] = (
        ""
    )
    memory_bytes: Maybe[Whole] = None
    power_limit_w: Maybe[NotNegative] = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # the whole object


@dataclass(frozen=True)
class Scratch:
    """The disk of the folder in which techniques kept their files."""

    filesystem: str = ""
    rotational: Maybe[bool] = None
    in_memory: Annotated[bool, about("no disk was measured")] = False


@dataclass(frozen=True)
class GivenRanks:
    """Ranks that a launcher started, maybe on several hosts."""

    launcher: Annotated[str, about("slurm, torchrun, mpirun, or environment: RANK was set")]
    ranks: Count
    nodes: Count
    hosts: Annotated[
        tuple[Mapping[str, Any], ...],
        about(
            "of each, in the order of nodes: host, gpu and driver as in the context, ranks, and"
            " fabric: link of the interface that reaches rank 0's host, virtual, rate_bits_per_s,"
            " rdma (active ports with their rates)"
        ),
    ] = ()


@dataclass(frozen=True)
class Host:
    """The machine around the card. Further facts stand beside these: cpu_id (of x86 family, model
    and stepping, of Arm implementer, variant, part and revision), vector_instructions (those that
    set the pace of products), memory_bytes, llc_bytes, os, kernel, virtual (absent where the
    processor does not tell)."""

    cpu: str
    cores: Annotated[Maybe[Count], about("that control groups allow")] = None
    id: Annotated[str, about("short hash that tells hosts apart and cannot be traced to one")] = ""
    id_of: Annotated[
        Maybe[HostIdOf],
        about("what was hashed; a host has a new boot_id after each boot"),
    ] = None
    facts: Mapping[str, Any] = field(default_factory=dict)  # the whole object

    @property
    def name(self) -> str:
        """The processor and how many of its cores there are."""
        return f"{self.cpu}, {self.cores} cores" if self.cores else self.cpu

    @property
    def known_as(self) -> str:
        """`host 1a2b3c4d`, or `boot 1a2b3c4d` where a boot is all that is told apart; may be
        empty."""
        return self.id and f"{'boot' if self.id_of == 'boot_id' else 'host'} {self.id}"


# What CMake gives a build of these types, which are what is measured with.
OWN_FLAGS = {"Release": "-O3 -DNDEBUG", "RelWithDebInfo": "-O2 -g -DNDEBUG"}
FLAG_VARIABLES = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CCC_OVERRIDE_OPTIONS")


@dataclass(frozen=True)
class Build:
    """What was built from which commit, and with what. Of paths in flags `#` is left, of
    libraries their names."""

    commit: Annotated[str, about("of gpulift's own checkout, or unknown")]
    dirty: Annotated[
        Maybe[bool], about("from uncommitted changes; absent where the commit is unknown")
    ] = None
    type: str = ""
    compiler: str = ""
    cuda_compiler: str = ""
    architectures: str = ""
    sanitizers: str = ""
    cuda_host_compiler: str = ""
    linker: str = ""
    flags: Annotated[Maybe[str], about("of C++, those of the build type included")] = None
    cuda_flags: Maybe[str] = None
    link_flags: Annotated[
        Maybe[str], about("of programs, modules and shared libraries, where these differ")
    ] = None
    environment: Annotated[
        Mapping[str, str], about("what compilers and linker found in theirs, as CPATH")
    ] = field(default_factory=dict)

    @property
    def foreign_flags(self) -> str:
        """Flags of an optimised build that neither gpulift nor its type gives; empty where there
        are none, or none are told (until schema 1.7)."""
        own = OWN_FLAGS.get(self.type)
        if own is None or self.flags is None:
            return ""
        found = {
            "C++": self.flags if self.flags != own else None,
            "CUDA": self.cuda_flags if self.cuda_compiler.strip() else own,
            "linker": self.link_flags or None,
            **{name: self.environment.get(name) for name in FLAG_VARIABLES},
        }
        if found["CUDA"] == own:
            del found["CUDA"]
        told = (f"{name}: {flags or 'none'}" for name, flags in found.items() if flags is not None)
        return "; ".join(told)

    @property
    def doubt(self) -> str:
        """Why the commit does not say which code was measured; empty where it does."""
        found = []
        if self.dirty:
            found.append("from uncommitted changes")
        elif self.commit in UNKNOWN_COMMITS:
            found.append("from an unknown commit")
        if self.foreign_flags:
            found.append(f"with foreign flags ({self.foreign_flags})")
        return f"built {' and '.join(found)}" if found else ""


NO_BUILD = Build(commit="")


@dataclass(frozen=True)
class Context:
    """Where and with what a record was measured; an allow-list, never the whole environment."""

    host: Host
    build: Annotated[Build, about("absent of what another tool measured")] = NO_BUILD
    gpu: Maybe[Gpu] = None
    gpu_missing: Annotated[str, about("why there is no GPU, in one line")] = ""
    gpu_remedy: str = ""
    driver: str = ""
    cuda_driver: str = ""
    cuda_runtime: str = ""
    gpus: Annotated[
        tuple[Gpu, ...], about("those of an arm of several ranks, of which `gpu` is the first")
    ] = ()
    versions: Annotated[Mapping[str, str], about("of the libraries that the arms ran through")] = (
        field(default_factory=dict)
    )
    ranks: Annotated[Maybe[GivenRanks], about("where a launcher started them")] = None
    scratch: Annotated[Maybe[Scratch], about("where an arm asked for a folder")] = None
    environment: Annotated[
        Mapping[str, str], about("an allow-list of variables that change results")
    ] = field(default_factory=dict)
    options: Annotated[
        Mapping[str, Any],
        about(
            "of the run: quick, launches, arm_time_s, precision, seed; plant: the fraction by which"
            " the head of a duet was slowed down on purpose"
        ),
    ] = field(default_factory=dict)

    # The whole object.
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def card(self) -> str:
        """Short hash of the card; empty where there is none."""
        return self.gpu.card if self.gpu else ""

    @cached_property
    def slug(self) -> str:
        """Folder name of the machine: its GPU model, or its CPU where there is no GPU, with the id
        that tells processors of one name apart (records below schema 1.6 lack it)."""
        if self.gpu:
            return slug(self.gpu.name)
        name, cpu_id = f"cpu-{slug(self.host.cpu)}", self.host.facts.get("cpu_id")
        return f"{name}-{cpu_id}" if cpu_id else name


@dataclass(frozen=True)
class Prediction:
    """What was expected of an arm before its first run: one of the two ranges."""

    arm: str
    on: Annotated[str, about("part of the name of the machine that it is for; absent: of any")] = ""
    speedup: Annotated[Maybe[tuple[Seconds, Seconds]], about("over the baseline")] = None
    step_time_s: Maybe[tuple[Seconds, Seconds]] = None

    def __post_init__(self) -> None:
        ranges = [one for one in (self.speedup, self.step_time_s) if one]
        if len(ranges) != 1 or ranges[0][0] > ranges[0][1]:
            raise ValueError("has one of speedup and step_time_s, from low to high")


@dataclass(frozen=True)
class Record:
    """One case of one technique in one launch."""

    schema: Annotated[str, about("major.minor")]
    method: Annotated[str, about("version of the way of measuring: windows, blocks, stop rule")]
    kind: Annotated[
        Kind,
        about(
            "duet: one record per arm of the technique, whose arms are base:<arm> (baseline) and"
            " head:<arm> (technique), from two builds; import: what another tool measured, which"
            " it says in `imported`"
        ),
    ]
    technique: Annotated[str, about("theme/name")]
    case: Mapping[str, Integer | Number | str]
    case_id: Annotated[str, about("axis:value pairs joined by a slash, in the order of the axes")]
    launch: Annotated[Whole, about("counted from 0")]
    launches: Count
    started_at: Annotated[
        str, about("UTC: 2026-11-21T04:00:00Z; from 1.7 to 1.12 when the case ended")
    ]
    outcome: Outcome
    context: Context
    quick: Annotated[bool, about("whether the case belongs to the quick ones")] = False
    off_sweep: Annotated[
        bool, about("the technique has no such case: `run --axis` asked for it")
    ] = False
    ceiling: Annotated[
        bool, about("the arms measure the machine's own roofs, not one against another")
    ] = False
    integrity: Annotated[
        bool, about("its check is the finding: where it fails, the machine is broken")
    ] = False
    launch_bound: Annotated[
        bool, about("launches set the pace of its steps, not the device's work")
    ] = False
    controls: Annotated[
        tuple[str, ...],
        about(
            "arms whose gain is not the technique's own: what nobody would run, or what another"
            " technique brings"
        ),
    ] = ()
    whole_steps: Annotated[
        bool, about("a step is a whole training step; older records do not tell it")
    ] = False
    predict: Annotated[tuple[Prediction, ...], about("what was expected of arms, in numbers")] = ()
    found: Annotated[
        str, about("why records miss a prediction by more than 1.3 times, or that it is not known")
    ] = ""
    l2: Annotated[CacheState, about("what of a step's data the device's L2 holds as it begins")] = (
        ""
    )
    page_cache: Annotated[CacheState, about("likewise, of files")] = ""
    regime: Regime = "burst"
    reason: Annotated[str, about("why it is not ok, in one line")] = ""
    remedy: str = ""
    question: str = ""
    expectation: str = ""
    claims: tuple[str, ...] = ()
    check_meaning: str = ""
    duet_arm: str = ""
    arms: tuple[Arm, ...] = ()
    order: Maybe[Order] = None
    stop: Maybe[Stop] = None
    discarded_blocks: Annotated[
        Whole,
        about(
            "blocks dropped because the hardware slowed itself down in them; in 1.0 also those of a"
            " restart"
        ),
    ] = 0
    restarts: Annotated[
        Whole,
        about("how often all blocks were begun anew, because the pace of an arm had changed"),
    ] = 0
    notes: Mapping[str, str] = field(default_factory=dict)
    telemetry: Maybe[Telemetry] = None
    telemetry_missing: Annotated[str, about("why there is none, in one line")] = ""
    telemetry_others: Annotated[
        tuple[Telemetry, ...], about("of further GPUs, in the order of context.gpus")
    ] = ()
    source: Annotated[
        Mapping[str, str],
        about(
            "SHA-256 of what the arms do: the technique's files by their names, kernels, workloads"
            " and Python modules by their paths. Since 1.14 of C++ and CUDA their tokens, of Python"
            " what the arms reach, both without comments; before of whole files, until 1.9 of the"
            " technique's own alone"
        ),
    ] = field(default_factory=dict)
    host_load: Maybe[HostLoad] = None
    time_s: Annotated[
        Mapping[str, NotNegative],
        about(
            "where the time of the case went: before_compare, start of workers, reference and"
            " compile as far as arms tell them, the rest of the checks, allocation, windows,"
            " lead_in with calibration and warm-up, wake of arms that rest, energy with counted"
            " launches, total; below 1.15 checks hold start, reference and compile, and lead_in"
            " holds wake"
        ),
    ] = field(default_factory=dict)
    written: bytes = field(default=b"", repr=False, compare=False)  # its line, compressed
    file: Path = field(default_factory=Path, compare=False)
    line: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        texts = {name: intern(one) for name, one in vars(self).items() if type(one) is str}
        vars(self).update(texts)  # equal ones are one object

    @property
    def raw(self) -> Mapping[str, Any]:
        """Its JSON object, read again: in memory it takes more than all the rest."""
        return _object(self.written)

    @cached_property
    def id(self) -> str:
        """Content address: the start of the SHA-256 of the record's canonical JSON."""
        return record_id(self.raw)

    @cached_property
    def minor(self) -> int:
        """The minor version of its schema: what an older record lacks was not known then."""
        return int(self.schema.partition(".")[2])

    @cached_property
    def began_at(self) -> str:
        """When its case began, as `started_at` is written."""
        lasted_s = self.time_s.get("total", 0.0)
        if self.minor not in TELLS_END or not lasted_s:
            return self.started_at
        try:
            ended = datetime.strptime(self.started_at, MOMENT)
            return (ended - timedelta(seconds=lasted_s)).strftime(MOMENT)
        except (ValueError, OverflowError):  # a record that `check` refuses
            return self.started_at

    @property
    def judges_integrity(self) -> bool:
        """Until 1.6 only the name of its technique said so."""
        return self.integrity or (self.minor < 7 and self.technique.startswith("integrity/"))

    @property
    def about_launches(self) -> bool:
        """Whether launches set the pace of its steps. Until 1.6 only the name of its technique
        said so."""
        return self.launch_bound or (self.minor < 7 and "launch" in self.technique.split("/"))

    def is_control(self, arm: str) -> bool:
        """Whether the arm's gain is not the technique's own. Until 1.9 its name may say it."""
        earlier = EARLIER_CONTROLS.get(self.technique, ()) if self.minor < TELLS_ALL else ()
        return arm in self.controls or arm in earlier

    @property
    def pace(self) -> str:
        """The regime, or `mixed` where bursts of operations on a GPU had no rest: their clock lies
        between boost and power cap, as that of whole steps does."""
        at_cap = self.whole_steps or any(
            arm.cost and arm.cost.roof.startswith("gemm/") for arm in self.arms
        )
        rested = self.ceiling or (self.stop is not None and self.stop.rest_s > 0)
        on_gpu = self.kind == "technique" and self.context.gpu is not None
        return (
            "mixed" if self.regime == "burst" and on_gpu and at_cap and not rested else self.regime
        )

    @property
    def caches(self) -> str:
        """`L2 by size, page cache warm`: what a step finds there; empty of records below 1.10."""
        named = {"L2": self.l2, "page cache": self.page_cache}
        passed = {name: state for name, state in named.items() if state not in ("", "none")}
        return ", ".join(f"{name} {state.replace('_', ' ')}" for name, state in passed.items())

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


@lru_cache(maxsize=1)  # who asks for one part of a record may ask for the next
def _object(written: bytes) -> Mapping[str, Any]:
    return parse_again(decompress(written))


def record_id(raw: Mapping[str, Any]) -> str:
    """First 12 hex digits of SHA-256 of the JSON with sorted keys, no spaces and ASCII escapes."""
    return hashlib.sha256(canonical(raw).encode("ascii")).hexdigest()[:ID_DIGITS]


def slug(name: str) -> str:
    """A device's name as a folder name: `NVIDIA H200` becomes `nvidia-h200`."""
    text = re.sub(r"\((?:r|tm|c)\)|@.*$|\b(?:cpu|processor)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:SLUG_CHARACTERS] or "unknown"
