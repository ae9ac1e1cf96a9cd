"""The certificate of a GPU model: how often the gate alarms without cause, and what it finds.

`results/certificates/<slug>.json`, made by `gpulift certify` from the trials beside it, in
`results/certificates/<slug>/`. Shares come with exact one-sided 95 % bounds (Clopper and Pearson).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpulift.decision import INCONCLUSIVE, percent
from gpulift.errors import GpuliftError, RecordError
from gpulift.records import strict
from gpulift.records.fields import Fields
from gpulift.records.read import parse_line
from gpulift.runs import write_error

SCHEMA = "1.2"
READABLE = ("1.1", SCHEMA)
SINCE_1_2 = ("suites_by_gate", "detection_by_gate", "detection_by_row")
FOLDER = "certificates"
TRIALS_SUFFIX = ".trials"  # not .jsonl, which are records
MOST_INCONCLUSIVE = 0.5  # of the trials with a row that a gate may decide


@dataclass(frozen=True)
class Suites:
    """Suites of unchanged cases: how many there were, and in how many any row gave an alarm."""

    suites: int
    alarms: int
    upper: float  # the share of suites with an alarm is below this
    undecided: int  # rows for whose confirmation too few launches were left


@dataclass(frozen=True)
class UnchangedRow:
    """A row of unchanged code: the A/A suites that measured it, and how many of them left it
    inconclusive, since its launches vary too much."""

    row: str
    suites: int
    inconclusive: int


@dataclass(frozen=True)
class UnsteadyRow:
    """A row whose launches vary too much for a verdict: the trials that tell so, and how many of
    them left it inconclusive."""

    row: str
    trials: int
    inconclusive: int


@dataclass(frozen=True)
class Detection:
    """Planted slow-downs of one size in rows of one kind, and what of them was found."""

    size: float
    bound_by: str
    trials: int
    found: int
    lower: float  # the share found is above this
    verified_low: float = field(metadata=strict.SIGNED)
    verified_median: float = field(metadata=strict.SIGNED)  # of the slow-downs as measured
    verified_high: float = field(metadata=strict.SIGNED)


@dataclass(frozen=True)
class SuitesByGate:
    """Suites of unchanged code whose gates were alike: in how many rows shared the error budget,
    and whether the runs of a screen carried on the order in which sides prepare."""

    gate: str
    order_carried: bool
    suites: int
    alarms: int
    upper: float


@dataclass(frozen=True)
class DetectionByGate:
    """Planted slow-downs of one size in gates that were alike."""

    gate: str
    order_carried: bool
    size: float
    trials: int
    found: int
    lower: float


@dataclass(frozen=True)
class DetectionByRow:
    """Planted slow-downs of one size in one row."""

    row: str
    size: float
    trials: int
    found: int
    lower: float


@dataclass(frozen=True)
class Alarm:
    """A row of an A/A suite that was called regressed or improved."""

    trial: str
    row: str
    verdict: str
    change: float = field(metadata=strict.SIGNED)


@dataclass(frozen=True)
class Missed:
    """A planted slow-down that was not found."""

    trial: str
    row: str
    size: float
    verdict: str


@dataclass(frozen=True)
class RowError:
    """A row that a trial could not measure."""

    trial: str
    row: str
    reason: str


@dataclass(frozen=True)
class Correlation:
    """Between successive launch values of a row in an A/A suite, over all rows."""

    value: float = field(metadata=strict.SIGNED)
    standard_error: float
    pairs: int


@dataclass(frozen=True)
class RuleTally:
    """What a rule said where head was slower by `size` (0: unchanged).

    `seconds` of measuring go into one verdict, on average.
    """

    rule: str
    repetition: str
    size: float
    trials: int
    regressed: int
    improved: int
    seconds: float


@dataclass(frozen=True)
class TrialNote:
    """One trial; its content is in the file of trials, under the same id."""

    id: str
    kind: str
    started_at: str
    seconds: float
    card: str
    schedule_sha256: str


@dataclass(frozen=True)
class Certificate:
    """Sizes, shares and floors are fractions: a floor of 0.004 says that a change of 0.4 % in that
    row was shown to be seen, or would have been, and one of 0.999 that none was. `method` is that
    of the decision."""

    schema: str
    method: str
    measuring_method: str
    machine: str
    citable: bool
    caveat: str
    cards: tuple[str, ...]
    drivers: tuple[str, ...]
    commits: tuple[str, ...]
    first_trial: str
    last_trial: str
    arm_time_s: float
    rows: tuple[str, ...]
    aa: Suites
    alarms: tuple[Alarm, ...]
    unchanged: tuple[UnchangedRow, ...]
    replays: Suites
    detection: tuple[Detection, ...]
    missed: tuple[Missed, ...]
    floors: Mapping[str, float]
    floor_reasons: Mapping[str, str]
    autocorrelation: Correlation
    incumbents: tuple[RuleTally, ...]
    errors: tuple[RowError, ...]
    trials: tuple[TrialNote, ...]
    suites_by_gate: tuple[SuitesByGate, ...]
    detection_by_gate: tuple[DetectionByGate, ...]
    detection_by_row: tuple[DetectionByRow, ...]

    @property
    def name(self) -> str:
        """The machine that it is for."""
        return self.machine

    @property
    def unsteady(self) -> tuple[UnsteadyRow, ...]:
        """The rows that most of their trials left inconclusive: suites of unchanged code, and those
        in which what was planted was left inconclusive."""
        planted = Counter(one.row for one in self.missed if one.verdict == INCONCLUSIVE)
        counted = (
            UnsteadyRow(one.row, one.suites + planted[one.row], one.inconclusive + planted[one.row])
            for one in self.unchanged
        )
        return tuple(one for one in counted if one.inconclusive > MOST_INCONCLUSIVE * one.trials)


def file_of(results: Path, slug: str) -> Path:
    """Where the certificate of that model is, among the results."""
    return results / FOLDER / f"{slug}.json"


def find_certificate(results: Path, slug: str) -> Certificate | None:
    """The certificate of that model among the results, or None without one."""
    file = file_of(results, slug)
    return read_certificate(file) if file.is_file() else None


def read_certificate(file: Path) -> Certificate:
    """Reads one certificate. Throws RecordError for what is not one."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise GpuliftError(f"{file}: cannot be read: {error.strerror}") from None
    fields = Fields(parse_line(content, str(file)), str(file))
    schema = fields.text("schema")
    if schema not in READABLE:
        raise fields.error(
            "schema",
            f"is {schema}; only {' and '.join(READABLE)} can be read: gpulift certify --reissue"
            " makes it anew from its trials",
        )
    if schema != SCHEMA:
        fields = Fields({**{key: [] for key in SINCE_1_2}, **fields.values}, str(file))
    made = strict.read(Certificate, fields)
    for row, floor in made.floors.items():
        if not 0 < floor < 1:
            raise RecordError(f"{file}: floors.{row} must be a fraction above 0 and below 1")
    return made


def write_certificate(certificate: Certificate, file: Path) -> None:
    """Writes it whole or not at all; makes the folder."""
    text = json.dumps(asdict(certificate), indent=1, allow_nan=False) + "\n"
    write_whole(text, file)


def write_whole(text: str, file: Path) -> None:
    """Replaces a file at once, so that no reader sees half of it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = file.with_name(f".{file.name}.{os.getpid()}.new")
        whole.write_text(text, encoding="utf-8")
        whole.replace(file)
    except OSError as error:
        raise write_error(file, error) from None


def sentence(certificate: Certificate) -> str:
    """What a person needs to know of it, in one sentence."""
    one = certificate.aa
    parts = [
        f"{one.alarms} of {one.suites} A/A suites raised an alarm (95 % bound {_share(one.upper)})"
        if one.suites
        else "no suite of unchanged code was measured"
    ]
    found: dict[float, list[int]] = {}
    for line in certificate.detection:
        sums = found.setdefault(line.size, [0, 0])
        sums[0] += line.found
        sums[1] += line.trials
    said = [f"{percent(size)} in {hits} of {trials}" for size, (hits, trials) in found.items()]
    parts.append(
        f"planted slow-downs were found: {', '.join(said)} trials"
        if said
        else "no slow-down was planted"
    )
    cards = len(certificate.cards)
    where = f"{certificate.machine} ({cards} card{'s' if cards != 1 else ''})"
    caveat = f"; not citable: {certificate.caveat}" if not certificate.citable else ""
    return f"{where if cards else certificate.machine}: {'; '.join(parts)}{caveat}."


def _share(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
