"""From trials to a certificate: pure functions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import scipy

from gpulift.gate.certificate import SCHEMA as CERTIFICATE_SCHEMA
from gpulift.gate.certificate import (
    Alarm,
    Certificate,
    Detection,
    DetectionByGate,
    DetectionByRow,
    Missed,
    RowError,
    Suites,
    SuitesByGate,
    TrialNote,
    UnchangedRow,
)
from gpulift.gate.evidence import OK
from gpulift.ground.errors import NOT_COMPARABLE, USAGE, GpuliftError
from gpulift.ground.whole import write_whole
from gpulift.records.model import UNKNOWN_COMMITS
from gpulift.verdicts.decision import (
    DECISION_METHOD,
    DUET,
    IMPROVED,
    INCONCLUSIVE,
    REGRESSED,
    Verdict,
    paired,
    percent,
)
from gpulift.verdicts.stats import upper_bound
from proof.trials import AA, PLANTED, RowTrial, Trial

MUST_FIND = 0.005  # a row that misses this size or a larger one gets a floor
BOUND = 0.95
NO_SIZE_FOUND = 0.999  # floor of a row in which nothing was shown to be seen; one is below 1


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
    unknown = any(one.commit in UNKNOWN_COMMITS for one in trials)
    return Certificate(
        schema=CERTIFICATE_SCHEMA,
        method=DECISION_METHOD,
        measuring_method=trials[0].method,
        machine=trials[0].machine,
        citable=not unknown,
        caveat="the commit is not known" if unknown else "",
        cards=_names(one.card for one in trials),
        drivers=_names(one.driver for one in trials),
        commits=_names(one.commit for one in trials),
        first_trial=trials[0].started_at,
        last_trial=trials[-1].started_at,
        arm_time_s=trials[0].arm_time_s,
        rows=_names(row.row for one in trials for row in one.rows),
        aa=_suites(len(unchanged), len({alarm.trial for alarm in alarms})),
        alarms=alarms,
        unchanged=tuple(_unchanged(unchanged)),
        detection=tuple(_detection(planted)),
        missed=tuple(_missed(planted)),
        floors={row: floor for row, (floor, _) in floors.items()},
        floor_reasons={row: reason for row, (_, reason) in floors.items()},
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


def _names(values: Iterator[str]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


def _suites(suites: int, alarms: int) -> Suites:
    return Suites(suites, alarms, upper_bound(alarms, suites))


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


def write_certificate(certificate: Certificate, file: Path) -> None:
    """Writes it whole or not at all; makes the folder."""
    write_whole(json.dumps(asdict(certificate), indent=1, allow_nan=False) + "\n", file)
