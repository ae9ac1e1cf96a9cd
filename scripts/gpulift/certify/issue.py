"""From trials to a certificate: pure functions.

A trial is a whole gate on this machine with one build on both sides, or with one side slowed down
on purpose. Its verdicts are not stored: `decision.decide_gate` gives them from the launch values,
with the margins of a duet and no floors.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy
from msgspec import Meta
from numpy.typing import NDArray

from gpulift.certify import incumbent_rules
from gpulift.certify.incumbent_rules import Launch, Sample
from gpulift.gate.certificate import SCHEMA as CERTIFICATE_SCHEMA
from gpulift.gate.certificate import (
    Alarm,
    Certificate,
    Correlation,
    Detection,
    DetectionByGate,
    DetectionByRow,
    Missed,
    RowError,
    RuleTally,
    Suites,
    SuitesByGate,
    TrialNote,
    UnchangedRow,
)
from gpulift.gate.evidence import OK
from gpulift.ground.errors import NOT_COMPARABLE, USAGE, GpuliftError, RecordError
from gpulift.ground.whole import read_whole
from gpulift.records.decode import NotJsonError, converted, parse_line
from gpulift.records.model import ID_DIGITS, UNKNOWN_COMMITS
from gpulift.records.values import NotNegative, Number, Whole, among
from gpulift.verdicts.decision import (
    DECISION_METHOD,
    DUET,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    GatePlan,
    Verdict,
    decide_gate,
    decide_in_order,
    paired,
    percent,
)
from gpulift.verdicts.stats import upper_bound

SCHEMA = "1.0"  # of trials
AA = "aa"
PLANTED = "planted"
KINDS = (AA, PLANTED)
SIZES = (0.002, 0.005, 0.01, 0.02, 0.05)  # planted slow-downs
MUST_FIND = 0.005  # a row that misses this size or a larger one gets a floor
# Of commit 75a03a7. In earlier screens the head prepared first in all of the first four launches.
ORDER_CARRIED_FROM = "2026-11-24T20:48:46Z"
ONE_ROW, FEW_ROWS, SUITE = "1 row", "2 to 5 rows", "6 rows or more"
MOST_OF_FEW = 5
BY_GPU = "GPU"
BY_HOST = "launches or host"

REPLAYS = 2000
REPLAY_SEED = 20261121
BOUND = 0.95
PAIR = 2  # launches, of which either side allocated first in one
NEARLY = 0.999  # what is this near to passing the screen is given to the decision itself
NO_SIZE_FOUND = NEARLY  # floor of a row in which nothing was shown to be seen; one is below 1
GATE_RULE = "gpulift gate"
ONE_LAUNCH = "one launch"
NINE_LAUNCHES = "9 launches"
TWO_STAGES = "duet launches"

Values = NDArray[np.float64]
Seed = Annotated[int, Meta(ge=0)]  # of 64 bits and more


@dataclass(frozen=True)
class RowTrial:
    """A row in a trial. `first` and `second` are the launch values of the two stages (log ratios);
    the medians of the windows are those of the screen, one per launch: seconds of a step, and SM
    clock cycles where they are known."""

    row: str
    on_gpu: bool
    outcome: str
    reason: str
    size: NotNegative
    planted: tuple[Number, ...]
    first: tuple[Number, ...]
    second: tuple[Number, ...]
    base_s: tuple[NotNegative, ...]
    head_s: tuple[NotNegative, ...]
    base_cycles: tuple[NotNegative, ...]
    head_cycles: tuple[NotNegative, ...]
    seconds: NotNegative
    records: tuple[str, ...]

    @property
    def launches(self) -> int:
        """Of both stages."""
        return len(self.first) + len(self.second)

    @property
    def bound_by(self) -> str:
        """What bounds the row: the GPU where its events judge work that was queued before."""
        return BY_GPU if self.on_gpu else BY_HOST


@dataclass(frozen=True)
class RuleCount:
    """What a rule of others said of single launches in one trial; size 0 is unchanged."""

    rule: str
    size: NotNegative
    trials: Whole
    regressed: Whole
    improved: Whole


@dataclass(frozen=True)
class Trial:
    """One finished trial. `cases` is the number of rows among which its gate shared the error
    budget; `seed` is its first one, and `schedule_sha256` was said before it began (A/A trials have
    none). `build` is empty where a build from committed files met a copy of itself; otherwise it
    has the fingerprints of the builds that met, head+base where there were two."""

    schema: str
    kind: Annotated[str, among(*KINDS)]
    number: Whole
    method: str
    decision_method: str
    machine: str
    card: str
    driver: str
    commit: str
    dirty: bool
    build: str
    arm_time_s: NotNegative
    started_at: str
    seconds: NotNegative
    cases: Whole
    seed: Seed
    schedule_sha256: str
    rows: tuple[RowTrial, ...]
    one_launch: tuple[RuleCount, ...]

    @cached_property
    def id(self) -> str:
        """The start of the SHA-256 of its line."""
        return hashlib.sha256(line_of(self).encode("ascii")).hexdigest()[:ID_DIGITS]

    @property
    def plan(self) -> GatePlan:
        """How its gate spent the error budget."""
        return GatePlan(self.cases)

    @property
    def measured(self) -> list[RowTrial]:
        """The rows of which every launch was measured."""
        return [row for row in self.rows if row.outcome == OK]

    @property
    def gate(self) -> str:
        """Among how many rows it shared its error budget: of one row, the whole is spent on it."""
        if self.cases == 1:
            return ONE_ROW
        return FEW_ROWS if self.cases <= MOST_OF_FEW else SUITE

    @property
    def order_carried(self) -> bool:
        """Whether the runs of a screen went on with the order in which sides prepare."""
        return self.started_at >= ORDER_CARRIED_FROM

    def verdict(self, row: RowTrial) -> Verdict:
        """What the gate says of one of its rows."""
        return decide_gate(row.first, row.second, DUET, self.plan)


def schedule_hash(size_of: Mapping[str, float]) -> str:
    """SHA-256 of the JSON of a schedule, sizes by row, with sorted keys."""
    return hashlib.sha256(json.dumps(dict(size_of), sort_keys=True).encode("ascii")).hexdigest()


def line_of(trial: Trial) -> str:
    """The trial as one line of JSON, without the line feed."""
    return json.dumps(asdict(trial), separators=(",", ":"), allow_nan=False)


def read_trials(file: Path) -> tuple[list[Trial], list[str]]:
    """The trials of a file, and warnings: a last line that was cut off is dropped."""
    lines = read_whole(file).split(b"\n")
    trials, warned = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            raw = parse_line(line, place)
        except NotJsonError:
            if number != len(lines):
                raise
            warned.append(f"{place}: the last trial is cut off; it was dropped")
            continue
        trials.append(_read_trial(raw, place))
    return trials, warned


def issue(trials: Sequence[Trial]) -> Certificate:
    """The certificate that the trials give, in whatever order they come.

    Throws GpuliftError (exit code 4) for trials of several machines or methods.
    """
    trials = sorted(trials, key=lambda one: (one.started_at, one.card, one.number))
    _require_one_kind_of(trials)
    # A suite of which no row could be measured is no clean one.
    unchanged = [one for one in trials if one.kind == AA and one.measured]
    planted = [one for one in trials if one.kind == PLANTED]
    alarms = tuple(_alarms(unchanged))
    floors = _floors(unchanged, planted)
    caveat = _caveat(trials)
    return Certificate(
        schema=CERTIFICATE_SCHEMA,
        method=DECISION_METHOD,
        measuring_method=trials[0].method,
        machine=trials[0].machine,
        citable=not caveat,
        caveat=caveat,
        cards=_names(one.card for one in trials),
        drivers=_names(one.driver for one in trials),
        commits=_names(one.commit for one in trials),
        first_trial=trials[0].started_at,
        last_trial=trials[-1].started_at,
        arm_time_s=trials[0].arm_time_s,
        rows=_names(row.row for one in trials for row in one.rows),
        aa=_suites(len(unchanged), len({alarm.trial for alarm in alarms}), 0),
        alarms=alarms,
        unchanged=tuple(_unchanged(unchanged)),
        replays=_replays(unchanged),
        detection=tuple(_detection(planted)),
        missed=tuple(_missed(planted)),
        floors={row: floor for row, (floor, _) in floors.items()},
        floor_reasons={row: reason for row, (_, reason) in floors.items()},
        autocorrelation=autocorrelation(unchanged),
        incumbents=tuple(_incumbents(trials)),
        errors=tuple(_errors(trials)),
        trials=tuple(
            TrialNote(t.id, t.kind, t.started_at, t.seconds, t.card, t.schedule_sha256)
            for t in trials
        ),
        suites_by_gate=tuple(_suites_by_gate(unchanged, {alarm.trial for alarm in alarms})),
        detection_by_gate=tuple(_detection_by_gate(planted)),
        detection_by_row=tuple(_detection_by_row(planted)),
    )


def lower_bound(hits: int, trials: int) -> float:
    """The share is above this with 95 % confidence (Clopper and Pearson); 0 without a trial."""
    if not trials:
        return 0.0
    test = scipy.stats.binomtest(hits, trials, alternative="greater")
    return float(test.proportion_ci(BOUND).low)


def autocorrelation(unchanged: Sequence[Trial]) -> Correlation:
    """Lag 1, of the screen's launch values about their row's mean, pooled over rows.

    Each row weighs as many pairs of neighbours as it has. The standard error is that of
    independent launches, 1 / sqrt(pairs).
    """
    total, pairs = 0.0, 0
    for suites in _screens(unchanged).values():
        centred = [suite - np.mean(np.concatenate(suites)) for suite in suites]
        count = sum(suite.size - 1 for suite in centred)
        variance = float(np.var(np.concatenate(centred)))
        if count > 0 and variance > 0:
            products = sum(float(np.sum(suite[1:] * suite[:-1])) for suite in centred)
            total += products / variance
            pairs += count
    if not pairs:
        return Correlation(0.0, 0.0, 0)
    return Correlation(total / pairs, 1 / math.sqrt(pairs), pairs)


def replay_suites(unchanged: Sequence[Trial], wanted: int) -> Suites:
    """Pseudo suites out of the recorded A/A launches, with labels exchanged at random.

    A row's screen is as many pairs of launches of any suites as it needs; each pair keeps or
    exchanges its labels. Its confirmation is drawn from what is left of the recorded launches,
    again in pairs. Exchanging
    labels hides a steady bias, so that replays support the real suites and do not replace them.
    """
    random = np.random.default_rng(REPLAY_SEED)
    plan = GatePlan(max(one.cases for one in unchanged))
    alarmed: set[int] = set()
    undecided = 0
    for pool in _pools(unchanged).values():
        for suite, verdict in _replay_row(pool, wanted, plan, random):
            if verdict.verdict in (REGRESSED, IMPROVED):
                alarmed.add(suite)
            undecided += verdict.unconfirmed
    return _suites(wanted, len(alarmed), undecided)


def _read_trial(raw: Mapping[str, Any], place: str) -> Trial:
    if raw.get("schema", SCHEMA) != SCHEMA:
        raise RecordError(f"{place}: schema is {raw['schema']}; only {SCHEMA} can be read")
    trial = converted(raw, Trial, place, closed=True)
    size_of = {row.row: row.size for row in trial.rows}
    if len(size_of) != len(trial.rows):
        raise RecordError(f"{place}: rows names a row twice")
    if trial.kind == PLANTED and schedule_hash(size_of) != trial.schedule_sha256:
        raise RecordError(f"{place}: schedule_sha256 is not that of the rows and sizes beside it")
    if any((row.size > 0) != (trial.kind == PLANTED) for row in trial.rows):
        raise RecordError(
            f"{place}: rows has sizes that do not go with a trial of kind {trial.kind}"
        )
    return trial


def _require_one_kind_of(trials: Sequence[Trial]) -> None:
    if not trials:
        raise GpuliftError("there is no finished trial to make a certificate of")
    for name, values in (
        ("machines", {one.machine for one in trials}),
        ("measuring methods", {one.method for one in trials}),
        ("arm times", {one.arm_time_s for one in trials}),
    ):
        if len(values) > 1:
            listed = ", ".join(str(value) for value in sorted(values, key=str))
            raise GpuliftError(f"trials of several {name}: {listed}", NOT_COMPARABLE)
    others = sorted({one.decision_method for one in trials} - {DECISION_METHOD})
    if others:
        raise GpuliftError(
            f"trials of decision method {', '.join(others)}, and this is {DECISION_METHOD}: check"
            " out the commit that made them",
            NOT_COMPARABLE,
        )
    if len({one.id for one in trials}) < len(trials):
        raise GpuliftError("a trial is there twice: name each file of trials once", USAGE)


def _caveat(trials: Sequence[Trial]) -> str:
    if any(one.dirty for one in trials):
        return "built from uncommitted changes"
    if any(one.commit in UNKNOWN_COMMITS for one in trials):
        return "the commit is not known"
    return ""


def _names(values: Iterator[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


def _suites(suites: int, alarms: int, undecided: int) -> Suites:
    return Suites(suites, alarms, upper_bound(alarms, suites), undecided)


def _alarms(unchanged: Sequence[Trial]) -> Iterator[Alarm]:
    for trial in unchanged:
        for row in trial.measured:
            verdict = trial.verdict(row)
            if verdict.verdict in (REGRESSED, IMPROVED) and verdict.difference is not None:
                yield Alarm(trial.id, row.row, verdict.verdict, verdict.difference.change)


def _unchanged(unchanged: Sequence[Trial]) -> Iterator[UnchangedRow]:
    verdicts: dict[str, list[str]] = {}
    for trial in unchanged:
        for row in trial.measured:
            verdicts.setdefault(row.row, []).append(trial.verdict(row).verdict)
    for name, given in sorted(verdicts.items()):
        yield UnchangedRow(name, len(given), given.count(INCONCLUSIVE))


def _errors(trials: Sequence[Trial]) -> Iterator[RowError]:
    for trial in trials:
        for row in trial.rows:
            if row.outcome != OK:
                yield RowError(trial.id, row.row, f"{row.outcome}: {row.reason}")


def _missed(planted: Sequence[Trial]) -> Iterator[Missed]:
    for trial in planted:
        for row in trial.measured:
            verdict = trial.verdict(row).verdict
            if verdict != REGRESSED:
                yield Missed(trial.id, row.row, row.size, verdict)


def _detection(planted: Sequence[Trial]) -> Iterator[Detection]:
    groups: dict[tuple[float, str], list[tuple[Trial, RowTrial]]] = {}
    for trial in planted:
        for row in trial.measured:
            groups.setdefault((row.size, row.bound_by), []).append((trial, row))
    for (size, bound_by), members in sorted(groups.items()):
        found = sum(trial.verdict(row).verdict == REGRESSED for trial, row in members)
        verified = [value for _, row in members for value in row.planted] or [0.0]
        yield Detection(
            size,
            bound_by,
            len(members),
            found,
            lower_bound(found, len(members)),
            min(verified),
            float(np.median(verified)),
            max(verified),
        )


def _suites_by_gate(unchanged: Sequence[Trial], alarmed: set[str]) -> Iterator[SuitesByGate]:
    groups: dict[tuple[str, bool], list[bool]] = {}
    for trial in unchanged:
        groups.setdefault((trial.gate, trial.order_carried), []).append(trial.id in alarmed)
    for (gate, carried), found in sorted(groups.items()):
        bound = upper_bound(sum(found), len(found))
        yield SuitesByGate(gate, carried, len(found), sum(found), bound)


def _detection_by_gate(planted: Sequence[Trial]) -> Iterator[DetectionByGate]:
    groups: dict[tuple[str, bool, float], list[bool]] = {}
    for trial in planted:
        for row in trial.measured:
            key = (trial.gate, trial.order_carried, row.size)
            groups.setdefault(key, []).append(trial.verdict(row).verdict == REGRESSED)
    for (gate, carried, size), found in sorted(groups.items()):
        bound = lower_bound(sum(found), len(found))
        yield DetectionByGate(gate, carried, size, len(found), sum(found), bound)


def _detection_by_row(planted: Sequence[Trial]) -> Iterator[DetectionByRow]:
    groups: dict[tuple[str, float], list[bool]] = {}
    for trial in planted:
        for row in trial.measured:
            found = trial.verdict(row).verdict == REGRESSED
            groups.setdefault((row.row, row.size), []).append(found)
    for (name, size), each in sorted(groups.items()):
        bound = lower_bound(sum(each), len(each))
        yield DetectionByRow(name, size, len(each), sum(each), bound)


def _floors(unchanged: Sequence[Trial], planted: Sequence[Trial]) -> dict[str, tuple[float, str]]:
    """Floor and reason of the rows that need one: the larger of what bias and misses ask for."""
    floors = _floors_of_bias(unchanged)
    for row, floor in _floors_of_misses(planted).items():
        if row not in floors or floor[0] > floors[row][0]:
            floors[row] = floor
    return dict(sorted(floors.items()))


def _floors_of_bias(unchanged: Sequence[Trial]) -> dict[str, tuple[float, str]]:
    values: dict[str, list[float]] = {}
    for trial in unchanged:
        for row in trial.measured:
            values.setdefault(row.row, []).extend([*row.first, *row.second])
    floors = {}
    for name, launches in values.items():
        one = paired(launches)
        bias = math.expm1(max(abs(end) for end in one.interval(BOUND))) if one else 0.0
        if bias > DUET.least:
            reason = f"unchanged, {len(launches)} launches show no more than a bias below"
            floors[name] = (min(bias, NO_SIZE_FOUND), f"{reason} {percent(bias)}")
    return floors


def _floors_of_misses(planted: Sequence[Trial]) -> dict[str, tuple[float, str]]:
    found: dict[str, dict[float, list[Verdict]]] = {}
    for trial in planted:
        for row in trial.measured:
            found.setdefault(row.row, {}).setdefault(row.size, []).append(trial.verdict(row))
    floors = {}
    for name, sizes in found.items():
        misses = {size: [one for one in sizes[size] if one.verdict != REGRESSED] for size in sizes}
        missed = max((s for s, those in misses.items() if those and s >= MUST_FIND), default=None)
        if missed is None:
            continue
        larger = min((s for s, those in misses.items() if not those and s > missed), default=None)
        shown = _would_have_shown(missed, misses[missed])
        if larger is not None:
            floors[name] = (larger, f"{percent(missed)} was missed, {percent(larger)} found")
        elif shown is not None:
            reason = f"{percent(missed)} was left open, and {percent(shown)} would have been seen"
            floors[name] = (shown, reason)
        else:
            reason = f"{percent(missed)} was missed, and nothing larger was planted"
            floors[name] = (NO_SIZE_FOUND, reason)
    return floors


def _would_have_shown(missed: float, misses: Sequence[Verdict]) -> float | None:
    """What all that missed this size would have seen, as they said themselves; None where one took
    what was planted for no change, or cannot tell."""
    effects = [
        one.smallest_effect
        for one in misses
        if one.verdict == INCONCLUSIVE and one.smallest_effect is not None
    ]
    if len(effects) < len(misses):
        return None
    return min(max(missed, *effects), NO_SIZE_FOUND)


def _screens(unchanged: Sequence[Trial]) -> dict[tuple[str, str], list[Values]]:
    """The values of the screens, suite by suite, of each row on each card."""
    screens: dict[tuple[str, str], list[Values]] = {}
    for trial in unchanged:
        for row in trial.measured:
            screens.setdefault((trial.card, row.row), []).append(np.asarray(row.first))
    return screens


def _pools(unchanged: Sequence[Trial]) -> dict[str, Values]:
    """Every recorded pair of launches of a row; rows with too few for a look are left out."""
    pairs: dict[str, list[Sequence[float]]] = {}
    for trial in unchanged:
        for row in trial.measured:
            for stage in (row.first, row.second):
                found = zip(stage[::PAIR], stage[1::PAIR], strict=False)
                pairs.setdefault(row.row, []).extend(found)
    plan = GatePlan(1)
    needed = (plan.screens[-1] + plan.looks[0]) // PAIR
    return {name: np.array(found) for name, found in pairs.items() if len(found) >= needed}


def _replays(unchanged: Sequence[Trial]) -> Suites:
    if not unchanged or not _pools(unchanged):
        return _suites(0, 0, 0)
    return replay_suites(unchanged, REPLAYS)


def _replay_row(
    pool: Values, wanted: int, plan: GatePlan, random: np.random.Generator
) -> Iterator[tuple[int, Verdict]]:
    """Pseudo suites in which the row may be flagged, each with its verdict."""
    most = min(len(pool), (plan.screens[-1] + plan.looks[-1]) // PAIR)
    drawn = random.permuted(np.tile(np.arange(len(pool)), (wanted, 1)), axis=1)[:, :most]
    signs = random.choice((-1.0, 1.0), size=(wanted, most, 1))
    launches = (pool[drawn] * signs).reshape(wanted, most * PAIR)
    near = np.zeros(wanted, dtype=bool)
    for look in plan.screens:
        screens = launches[:, :look]
        mean = screens.mean(axis=1)
        error = screens.std(axis=1, ddof=1) / math.sqrt(look)
        limit = NEARLY * scipy.stats.t.isf(plan.screen_look_alpha, look - 1)
        near |= (np.abs(mean) > NEARLY * math.log1p(DUET.least)) & (np.abs(mean) > limit * error)
    for suite in np.flatnonzero(near):
        yield int(suite), decide_in_order(launches[suite].tolist(), DUET, plan)


def _incumbents(trials: Sequence[Trial]) -> Iterator[RuleTally]:
    """Rules of others on the launches of the screens, and the gate on the same trials."""
    for size in (0.0, *SIZES):
        rows = [(trial, row) for trial in trials for row in trial.measured if row.size == size]
        if not rows:
            continue
        per_launch = sum(row.seconds for _, row in rows) / sum(row.launches for _, row in rows)
        counts = [one for trial in trials for one in trial.one_launch if one.size == size]
        for rule in incumbent_rules.RULES:
            mine = [one for one in counts if one.rule == rule]
            yield RuleTally(
                rule,
                ONE_LAUNCH,
                size,
                sum(one.trials for one in mine),
                sum(one.regressed for one in mine),
                sum(one.improved for one in mine),
                per_launch,
            )
        yield from _nine_launches(rows, size, per_launch)
        yield _gate_tally(rows, size)


def _nine_launches(
    rows: Sequence[tuple[Trial, RowTrial]], size: float, per_launch: float
) -> Iterator[RuleTally]:
    cases: dict[tuple[str, str], list[Launch]] = {}
    for trial, row in rows:
        cases.setdefault((trial.card, row.row), []).extend(_median_launches(row))
    full = [case for case in cases.values() if len(case) >= 2 * incumbent_rules.REPETITIONS]
    if not full:
        return
    for one in incumbent_rules.tally(full, GatePlan(1), DUET):
        if one.repetition == NINE_LAUNCHES:
            seconds = incumbent_rules.REPETITIONS * per_launch
            yield RuleTally(
                one.rule, one.repetition, size, one.trials, one.regressed, one.improved, seconds
            )


def _median_launches(row: RowTrial) -> Iterator[Launch]:
    known = len(row.base_cycles) == len(row.head_cycles) == len(row.first)
    for index, value in enumerate(row.first):
        base, head = (
            Sample(np.array([times[index]]), np.array([cycles[index]]) if known else None)
            for times, cycles in ((row.base_s, row.base_cycles), (row.head_s, row.head_cycles))
        )
        yield Launch(base, head, value)


def _gate_tally(rows: Sequence[tuple[Trial, RowTrial]], size: float) -> RuleTally:
    verdicts = [trial.verdict(row).verdict for trial, row in rows]
    seconds = sum(row.seconds for _, row in rows) / len(rows)
    return RuleTally(
        GATE_RULE,
        TWO_STAGES,
        size,
        len(rows),
        verdicts.count(REGRESSED),
        verdicts.count(IMPROVED),
        seconds,
    )
