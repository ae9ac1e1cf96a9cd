"""The certificate of a GPU model: how often the gate alarms without cause, and what it finds.

`results/certificates/<slug>.json`, made by `python -m proof.certify` from the trials beside it, in
`results/certificates/<slug>/`. Shares come with exact one-sided 95 % bounds (Clopper and Pearson).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpulift.ground.errors import RecordError
from gpulift.ground.text import counted
from gpulift.ground.whole import read_whole
from gpulift.records.decode import converted, parse_line
from gpulift.records.values import Fraction, NotNegative, Number, Whole
from gpulift.verdicts.decision import INCONCLUSIVE, percent

SCHEMA = "1.3"
READABLE = ("1.2", SCHEMA)
UNTIL_1_2 = ("replays", "autocorrelation", "incumbents")  # which nothing reads
FOLDER = "certificates"
TRIALS_SUFFIX = ".trials"  # not .jsonl, which are records
MOST_INCONCLUSIVE = 0.5  # of the trials with a row that a gate may decide


@dataclass(frozen=True)
class Suites:
    """Suites of unchanged cases: how many there were, and in how many any row gave an alarm."""

    suites: Whole
    alarms: Whole
    upper: NotNegative  # the share of suites with an alarm is below this


@dataclass(frozen=True)
class UnchangedRow:
    """A row of unchanged code: the A/A suites that measured it, and how many of them left it
    inconclusive, since its launches vary too much."""

    row: str
    suites: Whole
    inconclusive: Whole


@dataclass(frozen=True)
class UnsteadyRow:
    """A row whose launches vary too much for a verdict: the trials that tell so, and how many of
    them left it inconclusive."""

    row: str
    trials: Whole
    inconclusive: Whole


@dataclass(frozen=True)
class Detection:
    """Planted slow-downs of one size in rows of one kind, and what of them was found."""

    size: NotNegative
    bound_by: str
    trials: Whole
    found: Whole
    lower: NotNegative  # the share found is above this
    verified_low: Number
    verified_median: Number  # of the slow-downs as measured
    verified_high: Number


@dataclass(frozen=True)
class SuitesByGate:
    """Suites of unchanged code whose gates were alike: in how many rows shared the error budget,
    and whether the runs of a screen carried on the order in which sides prepare."""

    gate: str
    order_carried: bool
    suites: Whole
    alarms: Whole
    upper: NotNegative


@dataclass(frozen=True)
class DetectionByGate:
    """Planted slow-downs of one size in gates that were alike."""

    gate: str
    order_carried: bool
    size: NotNegative
    trials: Whole
    found: Whole
    lower: NotNegative


@dataclass(frozen=True)
class DetectionByRow:
    """Planted slow-downs of one size in one row."""

    row: str
    size: NotNegative
    trials: Whole
    found: Whole
    lower: NotNegative


@dataclass(frozen=True)
class Alarm:
    """A row of an A/A suite that was called regressed or improved."""

    trial: str
    row: str
    verdict: str
    change: Number


@dataclass(frozen=True)
class Missed:
    """A planted slow-down that was not found."""

    trial: str
    row: str
    size: NotNegative
    verdict: str


@dataclass(frozen=True)
class RowError:
    """A row that a trial could not measure."""

    trial: str
    row: str
    reason: str


@dataclass(frozen=True)
class TrialNote:
    """One trial; its content is in the file of trials, under the same id."""

    id: str
    kind: str
    started_at: str
    seconds: NotNegative
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
    arm_time_s: NotNegative
    rows: tuple[str, ...]
    aa: Suites
    alarms: tuple[Alarm, ...]
    unchanged: tuple[UnchangedRow, ...]
    detection: tuple[Detection, ...]
    missed: tuple[Missed, ...]
    floors: Mapping[str, Fraction]
    floor_reasons: Mapping[str, str]
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
    raw = parse_line(read_whole(file), str(file))
    schema = raw.get("schema")
    if schema not in (None, *READABLE):
        raise RecordError(
            f"{file}: schema is {schema}; only {', '.join(READABLE)} can be read:"
            " `python -m proof.certify --reissue` makes it anew from its trials"
        )
    known = dict(raw)
    if schema != SCHEMA:
        known = {key: value for key, value in raw.items() if key not in UNTIL_1_2}
        if isinstance(known.get("aa"), dict):  # of replays, that too few launches were left
            known["aa"] = {k: v for k, v in known["aa"].items() if k != "undecided"}
    return converted(known, Certificate, str(file), closed=True)


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
    where = f"{certificate.machine} ({counted(cards, 'card')})"
    caveat = f"; not citable: {certificate.caveat}" if not certificate.citable else ""
    return f"{where if cards else certificate.machine}: {'; '.join(parts)}{caveat}."


def _share(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
