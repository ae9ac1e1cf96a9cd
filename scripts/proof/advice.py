"""How often `gpulift advise` is right, judged by what was planted in scripts that it advised.

A fault has to be named, by a row that helps or by a note, and its price has to agree with the
truth: the script with the fault against the script without it, in processes that take turns. An
arm that does nothing in a script must not be told to help.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpulift.advise.advice import (
    HELPS,
    HURTS,
    NO_CHANGE,
    OTHER_WORK,
    RESULT_DIFFERS,
    UNDECIDED,
    UPPER_BOUND,
)
from gpulift.advise.plan import NAMES
from gpulift.ground.whole import read_whole, write_whole
from gpulift.records.decode import decoded
from gpulift.records.values import NotNegative, Positive, Seconds, Text, Whole
from gpulift.verdicts import stats

SCHEMA = "1.0"
JUDGED = (HELPS, HURTS, NO_CHANGE, UNDECIDED)
NAMED, MISSED, NOT_MEASURED = "named", "missed", "not measured"
COSTS_NOTHING = "costs nothing here"
NOTE = "a note"


class Span(NamedTuple):
    """A ratio with its 95 % interval, which one launch does not have."""

    mid: Positive
    low: Positive | None
    high: Positive | None

    @property
    def above_1(self) -> bool:
        """Whether all of its interval is."""
        return self.low is not None and self.low > 1

    def meets(self, other: Span) -> bool:
        """Whether the intervals overlap."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Row:
    """What was advised of one change."""

    name: Text
    verdict: str
    gain: Span | None = None

    @property
    def promises(self) -> bool:
        """Whether a reader would make the change."""
        if self.verdict == HELPS:
            return True
        bounded = self.verdict in (UPPER_BOUND, OTHER_WORK)
        return bounded and self.gain is not None and self.gain.above_1


@dataclass(frozen=True)
class Advice:
    """What was advised of one script."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    torch: str = ""


@dataclass(frozen=True)
class Case:
    """A script with a fault, or as it is where that is empty: seconds of a step in each pass, or
    why it was not measured."""

    script: Text
    fault: str
    step_s: tuple[Seconds, ...] = ()
    advice: Advice | None = None
    reason: str = ""


@dataclass(frozen=True)
class Fault:
    """How it is told: by these rows, of which the first is what its absence is, or by a note.

    `work` is the batches of the fault that are one of the script without it.
    """

    rows: tuple[str, ...] = ()
    note: str = ""
    on_gpu: bool = False  # it costs nothing elsewhere
    large: bool = False  # nor in small models
    work: float = 1.0


FAULTS = {
    "slow_decoding": Fault(("input", "workers_*")),
    "one_worker": Fault(("workers_*", "input")),
    "pageable": Fault(("pinned",), on_gpu=True),
    "item": Fault(("reads",), on_gpu=True),
    "attention_by_hand": Fault(note="attention by hand"),
    "fp32": Fault(("bf16", "tf32"), on_gpu=True, large=True),
    "small_batch": Fault(("batch_2x",), work=2.0),
    "optimizer_loop": Fault(("foreach", "fused")),
    "synchronize": Fault(("synchronize",), on_gpu=True),
}
PLAIN_FP32 = Fault(("tf32", "bf16"), on_gpu=True, large=True)  # its script has no autocast

SCRIPTS = ("plain", "no_loader", "hf_trainer", "lightning_fit", "timm_like")
PLAIN, NO_LOADER, HF, _, TIMM = SCRIPTS
IDLE = {  # rows, and the scripts in which they do nothing
    "vary_*": SCRIPTS,  # an option once more, as it is
    "synchronize": SCRIPTS,
    "expandable_segments": SCRIPTS,
    "channels_last": (NO_LOADER, HF),  # there is no convolution
    "attention_*": (PLAIN, TIMM),  # there is no attention
}
IDLE_SWITCHES = ("synchronize", "attention_*")
IDLE_WITHOUT_GPU = {"tf32", "pinned"}


@dataclass(frozen=True)
class Planted:
    """A fault with its size, which is its ratio of time, and what became of it."""

    script: str
    fault: str
    outcome: str
    size: Span | None = None
    row: str = ""  # that named it, else that should have
    verdict: str = ""
    price: Span | None = None
    agrees: bool | None = None  # None without both
    reason: str = ""


@dataclass(frozen=True)
class Idle:
    """Judged rows of changes that do nothing, and those of them that were told to help."""

    rows: Whole
    false_helps: tuple[str, ...]
    upper: NotNegative  # the share told to help is below this


@dataclass(frozen=True)
class Facts:
    """Where, when and with what it was measured."""

    machine: Text
    size: Text
    driver: str
    commit: str
    dirty: bool
    on_gpu: bool
    date: Text


@dataclass(frozen=True)
class AdviceCertificate:
    """What was measured, and the tables that it gives."""

    schema: str
    facts: Facts
    torch: tuple[str, ...]
    planted: tuple[Planted, ...]
    idle: Idle
    cases: tuple[Case, ...]


def fault_of(script: str, name: str) -> Fault:
    """How that fault of that script is told."""
    return PLAIN_FP32 if (script, name) == (PLAIN, "fp32") else FAULTS[name]


def names_to_try(script: str, fault: str) -> list[str]:
    """For `advise --only`: of a fault what may name it, and switches that do nothing, as settings
    take processes. None for a script as it is: all is tried."""
    if not fault:
        return []
    patterns = [
        *fault_of(script, fault).rows,
        *(one for one in IDLE_SWITCHES if script in IDLE[one]),
    ]
    return [
        name
        for name in NAMES
        if any(name == one.removesuffix("_*") or fnmatch(name, one) for one in patterns)
    ]


def issue(facts: Facts, cases: Sequence[Case]) -> AdviceCertificate:
    """The certificate of these cases."""
    clean = {case.script: case for case in cases if not case.fault}
    planted = [_planted(case, clean.get(case.script)) for case in cases if case.fault]
    versions = {case.advice.torch for case in cases if case.advice and case.advice.torch}
    idle = list(_idle_rows(cases, facts.on_gpu))
    helping = tuple(name for name, row in idle if row.verdict == HELPS)
    upper = stats.upper_bound(len(helping), len(idle))
    return AdviceCertificate(
        SCHEMA,
        facts,
        tuple(sorted(versions)),
        tuple(planted),
        Idle(len(idle), helping, upper),
        tuple(cases),
    )


def told_to_differ(certificate: AdviceCertificate) -> list[str]:
    """Names of changes that do nothing, whose result was said to be another."""
    rows = _idle_rows(certificate.cases, certificate.facts.on_gpu, (RESULT_DIFFERS,))
    return [name for name, _ in rows]


def _planted(case: Case, clean: Case | None) -> Planted:
    fault = fault_of(case.script, case.fault)
    size = _size(case, clean, fault) if clean else None
    if case.reason or case.advice is None or size is None:
        reason = case.reason or (clean.reason if clean else "") or "its trial did not end"
        return Planted(case.script, case.fault, NOT_MEASURED, size, reason=reason)
    told = _telling(case.advice.rows, fault.rows) or Row("none", "")
    noted = [note for note in case.advice.notes if fault.note and note.startswith(fault.note)]
    unnamed = MISSED if size.above_1 else COSTS_NOTHING
    return Planted(
        case.script,
        case.fault,
        NAMED if noted or told.promises else unnamed,
        size,
        NOTE if noted else told.name,
        told.verdict,
        told.gain,
        _agrees(told, size),
    )


def _size(case: Case, clean: Case, fault: Fault) -> Span | None:
    """Over pairs of processes, of which each pass has one."""
    pairs = zip(case.step_s, clean.step_s, strict=False)
    logs = [math.log(fault.work * slow / fast) for slow, fast in pairs]
    if not logs:
        return None
    ratio = stats.over_launches(logs, np.empty(0))
    return Span(ratio.value, ratio.low, ratio.high)


def _telling(rows: Sequence[Row], patterns: Iterable[str]) -> Row | None:
    """The row that names it; where none does, the first with a price, or the first at all."""
    fitting = [row for pattern in patterns for row in _best_first(rows, pattern)]
    for wanted in (lambda row: row.promises, lambda row: row.gain is not None, lambda row: True):
        if chosen := next(filter(wanted, fitting), None):
            return chosen
    return None


def _best_first(rows: Sequence[Row], pattern: str) -> list[Row]:
    fitting = [row for row in rows if fnmatch(row.name, pattern)]
    return sorted(fitting, key=lambda row: -row.gain.mid if row.gain else 0.0)


def _agrees(row: Row, size: Span) -> bool | None:
    if row.gain is None or row.gain.high is None or size.low is None:
        return None
    above = row.verdict == UPPER_BOUND and row.gain.high >= size.low
    return above or row.gain.meets(size)


def _idle_rows(
    cases: Sequence[Case], on_gpu: bool, verdicts: Collection[str] = JUDGED
) -> Iterator[tuple[str, Row]]:
    """Of each case the rows with such a verdict that do nothing, with their names; a fault's own
    rows are none of them."""
    for case in cases:
        patterns = {name for name, scripts in IDLE.items() if case.script in scripts}
        patterns |= set() if on_gpu else IDLE_WITHOUT_GPU
        own = fault_of(case.script, case.fault).rows if case.fault else ()
        for row in case.advice.rows if case.advice else ():
            fits = any(fnmatch(row.name, pattern) for pattern in patterns - set(own))
            if fits and row.verdict in verdicts:
                yield " ".join(filter(None, (case.script, case.fault, row.name))), row


def read_certificate(file: Path) -> AdviceCertificate:
    """Reads one. Raises RecordError for what is none."""
    return decoded(read_whole(file), AdviceCertificate, str(file), closed=True)


def write_certificate(certificate: AdviceCertificate, file: Path) -> None:
    """Writes it whole or not at all; makes the folder."""
    write_whole(json.dumps(asdict(certificate), indent=1, allow_nan=False) + "\n", file)
