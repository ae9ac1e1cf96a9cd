"""What arms are beside their time: memory, launches, joules, rates, and metrics of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from gpulift.analysis import arms
from gpulift.ground import text
from gpulift.records.model import Arm, Cost
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

PEAK = "peak_"
SMALL_PART = 1e-3  # of the most: such a kind of memory is left out of a table's cell
UNKNOWN = "–"
WITHHELD = "withheld"  # a metric that does not fit the windows
REFUSED = "refused"  # there is more of it than there can be


@dataclass(frozen=True)
class Facts:
    """Of one arm over its launches. Bytes are peaks; joules are of one step."""

    device_bytes: int | None = None
    pinned_bytes: int | None = None
    host_bytes: int | None = None
    joules: float | None = None  # None where windows are too short to tell
    item_joules: float | None = None  # of one item of a step
    cpu_s: float | None = None  # CPU seconds of a step
    overbooked: bool = False  # there are more of them than there can be
    checked: bool = True  # in every launch
    cost: Cost | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()  # metrics that do not fit the windows

    @property
    def memory_bytes(self) -> int | None:
        """Of the device where it used any or nothing else is known, else of the host."""
        known = (self.device_bytes, self.host_bytes)
        return self.device_bytes or next((one for one in reversed(known) if one is not None), None)

    @property
    def memory(self) -> dict[str, float | None]:
        """Peaks by kind; of a framework's allocator there is also what it took from the device."""
        return {
            "device": self.device_bytes,
            "reserved": self.metrics.get(arms.RESERVED),
            "pinned": self.pinned_bytes,
            "host": self.host_bytes,
        }

    @property
    def launches(self) -> float | None:
        """Kernel launches of a step, None where they are not known."""
        return self.metrics.get(arms.LAUNCHES)


def facts(case: Case, name: str) -> Facts:
    """Of an arm's launches: the largest peaks, mean joules and CPU seconds, median metrics."""
    measured = case.arms[name]
    both = [
        (record, arm) for record in case.measured for arm in stats.measured_arms([record], name)
    ]
    overbooked = any(stats.overbooked(*one) for one in both)
    joules = [arms.joules_per_step(*one) for one in both]
    names = dict.fromkeys(name for arm in measured for name in arm.metrics)
    told = {
        name: values
        for name in names
        if (values := [arm.metrics[name] for arm in measured if arms.tells(arm, name)])
    }
    return Facts(
        device_bytes=_most(arm.peak_device_bytes for arm in measured),
        pinned_bytes=_most(arm.peak_pinned_bytes for arm in measured),
        host_bytes=_most(arm.peak_host_bytes for arm in measured),
        joules=_mean(joules),
        item_joules=_mean(map(_of_one_item, measured, joules)),
        cpu_s=None if overbooked else _mean(arms.cpu_per_step(*one) for one in both),
        overbooked=overbooked,
        checked=all(arm.checked for arm in measured),
        cost=measured[0].cost,
        metrics={name: _over_launches(name, values) for name, values in told.items()},
        withheld=frozenset(names.keys() - told.keys()),
    )


def _of_one_item(arm: Arm, joules: float | None) -> float | None:
    """By what this launch's own steps do."""
    return joules / arm.cost.items if joules is not None and arm.cost and arm.cost.items else None


def memory(arm: Facts, baseline: Facts) -> tuple[str, ...]:
    """`device 11.6 GiB / 6.12 GiB` for each kind of memory that either has used, arm first."""
    found = []
    pairs = [(kind, most, baseline.memory[kind]) for kind, most in arm.memory.items()]
    least = SMALL_PART * max((one or 0 for _, *both in pairs for one in both), default=0)
    for kind, *both in pairs:
        if max(one or 0 for one in both) > least:
            found.append(f"{kind} {' / '.join(_size(one) for one in both)}")
    return tuple(found) or (UNKNOWN,)


def cpu(arm: Facts, baseline: Facts) -> str:
    """CPU seconds of a step, arm first."""
    return " / ".join(map(_cpu, (arm, baseline)))


def energy(arm: Facts, baseline: Facts) -> tuple[str, ...]:
    """Joules of a step, and of an item where it has a name; arm first."""
    both = (arm.joules, baseline.joules)
    if both == (None, None):
        return (UNKNOWN,)
    steps = " / ".join(UNKNOWN if one is None else text.joules(one) for one in both)
    if not all(_has_item(one) for one in (arm, baseline)):
        return (steps,)
    assert arm.cost is not None, "it has an item"
    items = " / ".join(_of_item(one) for one in (arm, baseline))
    return f"{steps} a step", f"{items} per {arm.cost.item}"


def launches(arm: Facts, baseline: Facts) -> str:
    """Kernel launches of a step, arm first."""
    both = (arm.launches, baseline.launches)
    return UNKNOWN if both == (None, None) else " / ".join(_count(one) for one in both)


def _cpu(one: Facts) -> str:
    if one.overbooked:
        return REFUSED
    return UNKNOWN if one.cpu_s is None else text.seconds(one.cpu_s)


def _has_item(one: Facts) -> bool:
    return one.cost is not None and bool(one.cost.item) and one.cost.items > 0


def _of_item(one: Facts) -> str:
    return UNKNOWN if one.item_joules is None else text.joules(one.item_joules)


def _size(value: float | None) -> str:
    return "not known" if value is None else text.size(round(value))


def _count(value: float | None) -> str:
    return "not known" if value is None else arms.metric(arms.LAUNCHES, value)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return float(np.mean(known)) if known else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((one for one in values if one is not None), default=None)


def _over_launches(name: str, values: Sequence[float]) -> float:
    return max(values) if name.startswith(PEAK) else float(median(values))
