"""Samples: what a job and its GPUs did in an interval. What is not known is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Values = Mapping[str, float]  # by name, which ends in its unit; activities and shares are of 1

MOST_KEPT = 4096  # samples: as many as a picture can show, and a bound to what is held
THROTTLE = "throttle_"  # before the reason's name: the share of samples in which it held


@dataclass(frozen=True)
class Sample:
    """Means over the interval that ended at `time_s`, which is since the watch began."""

    time_s: float
    interval_s: float
    job: Values
    gpus: tuple[Values, ...] = ()


@dataclass
class History:
    """All of a job in samples of bounded number: neighbours are merged where there are too many."""

    samples: list[Sample] = field(default_factory=list)
    most: int = MOST_KEPT

    def add(self, sample: Sample) -> None:
        """After the sample before."""
        self.samples.append(sample)
        if len(self.samples) > self.most:
            pairs = zip(self.samples[::2], self.samples[1::2], strict=False)
            odd = self.samples[-1:] if len(self.samples) % 2 else []
            self.samples = [merged(*pair) for pair in pairs] + odd

    @property
    def whole(self) -> Sample | None:
        """Means over the whole job; None where it ended before a sample."""
        if not self.samples:
            return None
        whole = self.samples[0]
        for sample in self.samples[1:]:
            whole = merged(whole, sample)
        return whole

    def most_of(self, name: str) -> float:
        """The largest of the job's samples; 0 where it is in none."""
        return max((one.job.get(name, 0.0) for one in self.samples), default=0.0)


def merged(first: Sample, second: Sample) -> Sample:
    """One sample in place of two that follow each other."""
    weights = (first.interval_s, second.interval_s)
    return Sample(
        time_s=second.time_s,
        interval_s=sum(weights),
        job=_means((first.job, second.job), weights),
        gpus=tuple(_means(both, weights) for both in zip(first.gpus, second.gpus, strict=True)),
    )


def _means(both: Sequence[Values], weights: Sequence[float]) -> Values:
    """Weighted by time; of what only one of them knows, that."""
    found = {}
    for name in dict.fromkeys(name for values in both for name in values):
        known = [(one[name], w) for one, w in zip(both, weights, strict=True) if name in one]
        total = sum(weight for _, weight in known)
        plain = sum(value for value, _ in known) / len(known)
        found[name] = sum(v * w for v, w in known) / total if total > 0 else plain
    return found


def throttled(gpu: Values) -> list[str]:
    """Why the clock was held down in any part of the time."""
    return [
        name.removeprefix(THROTTLE)
        for name, share in gpu.items()
        if name.startswith(THROTTLE) and share > 0
    ]
