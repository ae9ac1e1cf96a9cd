"""What techniques predicted in numbers, beside what was measured.

A record holds the predictions of its case since schema 1.10. For an older one those stand that the
technique's file makes today, which were written before its first run as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpulift.engine.machine import TechniqueInfo
from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import TELLS_ALL, Prediction, Record
from gpulift.verdicts import stats
from gpulift.verdicts.cases import TECHNIQUE, Case, group_cases

FAR = 1.3  # a miss by more needs a reason


@dataclass(frozen=True)
class Predicted:
    """A prediction and what the newest run of a machine says of it; `found` is the reason that the
    technique gives for a miss."""

    case: Case
    baseline: str
    prediction: Prediction
    measured: Estimate
    found: str

    @property
    def record(self) -> Record:
        """One of the launches."""
        return self.case.first

    @property
    def machine(self) -> str:
        """Of the results folder."""
        return self.record.context.slug

    @property
    def range(self) -> tuple[float, float]:
        """What was expected."""
        low_high = self.prediction.speedup or self.prediction.step_time_s
        assert low_high is not None  # as it refuses to have neither
        return low_high

    @property
    def expected(self) -> str:
        """`4 to 7×`, or `1.2 ms to 1.4 ms`."""
        low, high = self.range
        if self.prediction.speedup:
            return f"{text.digits(low)} to {text.digits(high)}×"
        return f"{text.seconds(low)} to {text.seconds(high)}"

    @property
    def missed_by(self) -> str:
        """`1.4 times`; empty within the range."""
        return f"{text.digits(self.beyond)} times" if self.missed else ""

    @property
    def beyond(self) -> float:
        """How many times the measured value lies beyond the nearer end of the range; 1 within."""
        low, high = self.range
        return max(low / self.measured.value, self.measured.value / high, 1.0)

    @property
    def missed(self) -> bool:
        """Whether the value lies outside of the range, its interval too where it has one."""
        low, high = self.range
        least, most = self.measured.low, self.measured.high
        value = self.measured.value
        return (most if most is not None else value) < low or (
            (least if least is not None else value) > high
        )


def predictions(
    records: Iterable[Record], told: Mapping[str, TechniqueInfo]
) -> tuple[Predicted, ...]:
    """Of each machine and case the newest run that measured it, largest misses first."""
    newest: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record.kind == TECHNIQUE and record.outcome == "ok":
            key = (record.context.slug, record.technique, record.case_id)
            newest.setdefault(key, []).append(record)
    found = (
        one
        for of_case in newest.values()
        for one in _of_case(_newest_run(of_case), told.get(of_case[0].technique))
    )
    return tuple(sorted(found, key=lambda one: -one.beyond))


def of_case(case: Case, arm: str) -> tuple[Predicted, ...]:
    """What the records of a case say themselves that was predicted of the arm."""
    found = _of_case(case.records, None)
    return tuple(one for one in found if one.prediction.arm == arm)


def unexplained(found: Iterable[Predicted]) -> list[Predicted]:
    """Those far beyond their ranges of which the technique does not say why."""
    return [one for one in found if one.missed and one.beyond > FAR and not one.found]


def _newest_run(records: Sequence[Record]) -> Sequence[Record]:
    run = max(records, key=lambda one: one.started_at).file.parent
    return [record for record in records if record.file.parent == run]


def _of_case(records: Sequence[Record], info: TechniqueInfo | None) -> Iterable[Predicted]:
    (case,) = group_cases(records, TECHNIQUE)
    own = [one for one in case.first.predict]
    baseline = next(arm.name for arm in case.first.arms if arm.role == "baseline")
    found = case.first.found
    if info is not None:
        found = info.found or found
        if case.first.minor < TELLS_ALL:  # nor does it tell predictions
            of_case = case.first.case.items()
            own = [one for one in info.predict if one.case.items() <= of_case]
            baseline = info.arms[0]  # older records may have had another
    for prediction in own:
        if prediction.on in case.first.context.slug:
            measured = _measured(case, prediction, baseline)
            if measured is not None:
                yield Predicted(case, baseline, prediction, measured, found)


def _measured(case: Case, prediction: Prediction, baseline: str) -> Estimate | None:
    if prediction.speedup is None:
        return case.times_s.get(prediction.arm)
    pair = stats.pair_ratio(case.measured, prediction.arm, baseline)
    return pair.speedup if pair else None
