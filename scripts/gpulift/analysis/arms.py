"""What one record alone says of an arm, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpulift.ground import text
from gpulift.ground.estimate import Estimate
from gpulift.records.model import Arm, Cost, Record
from gpulift.verdicts import stats

TIME_DIGITS = 4
JOULES = "joules_per_step"
UNTIMED = "in an untimed window"
RESERVED = "peak_reserved_bytes"
LAUNCHES = "kernel_launches_per_step"
EXPOSED_S, WITHOUT_S = "exposed_communication_s", "step_without_exchange_s"
FITS = 0.1  # of a step, by which its parts may miss it
NOT_CHECKED = "not checked"
OVERBOOKED = "refused: more than all cores could have taken in a window"
IDLE_GPUS = "other GPUs idled beside it, and the counters of all were read"

Ratio = Callable[[Sequence[Record], str, str], "Estimate | None"]


def time_unit(typical_s: float) -> tuple[float, str]:
    """Seconds of the unit that fits, and its name."""
    return next((unit for unit in text.SMALL if typical_s >= unit[0]), text.SMALL[-1])


def step_time(record: Record, arm: Arm, launches: Sequence[Record] = ()) -> str:
    """`50.03 µs [50.01, 50.05]`: the median window's step, over all `launches` where there are any;
    empty where nothing was measured."""
    estimate = stats.step_time(launches or [record], arm.name)
    return _time(estimate) if estimate else ""


def speedup(record: Record, arm: Arm, launches: Sequence[Record] = ()) -> str:
    """Against the record's baseline, over all `launches` where there are any; empty for that
    baseline, for ceilings and without windows."""
    baseline = baseline_of(record)
    if baseline is None or arm.name == baseline.name or is_ceiling(record):
        return ""
    pair = stats.pair_ratio(launches or [record], arm.name, baseline.name)
    if pair is None:
        return ""
    clocks = ", by two different clocks" if pair.clocks_differ else ""
    items = f" per {pair.per_item}" if pair.per_item else ""
    return f"{text.speedup(pair.speedup)}{items}{clocks}"


def baseline_of(record: Record) -> Arm | None:
    """What the other arms are held against; None where the record has no arms."""
    return next((arm for arm in record.arms if arm.role == "baseline"), None)


def is_ceiling(record: Record) -> bool:
    """Whether the arms stand for themselves: their rates count, and nothing against another."""
    return record.ceiling and record.kind != "duet"


def rates(record: Record, arm: Arm, launches: Sequence[Record] = ()) -> list[str]:
    """Of the work that a step needs, over its time; items last."""
    time = stats.step_time(launches or [record], arm.name)
    if time is None or arm.cost is None:
        return []
    work = (
        (arm.cost.bytes, "B/s"),
        (arm.cost.flops, "FLOP/s"),
    )
    shown = [text.rate(amount / time.value, unit) for amount, unit in work if amount > 0]
    if arm.cost.items > 0:
        shown.append(item_rate(arm.cost.items / time.value, arm.cost.item))
    return shown


def item_rate(per_s: float, item: str) -> str:
    """`1234 images/s`, `1.23 million tokens/s`; `items` where the cost does not name one."""
    million = " million" if per_s >= 1e6 else ""
    return f"{text.digits(per_s / 1e6 if million else per_s)}{million} {item or 'item'}s/s"


def joules_per_step(record: Record, arm: Arm) -> float | None:
    """Of the cards: in the median window that their counters resolve, else in the arm's long one.

    None where there is neither, and where cards that idled beside it were counted, too.
    """
    if stats.beside_idle_gpus(record, arm):
        return None
    middle = stats.median_over(_resolved(arm))
    return arm.metrics.get(JOULES) if middle is None else middle / arm.steps_per_window


def tells(arm: Arm, metric: str) -> bool:
    """Whether the arm has this fact; not of exposed communication that does not fit its windows:
    with the step without the exchange it is the step, or one of the two is wrong."""
    if metric != EXPOSED_S or not {EXPOSED_S, WITHOUT_S} <= arm.metrics.keys():
        return metric in arm.metrics
    step_s = arm.step_quartiles_s[1]
    return abs(arm.metrics[EXPOSED_S] + arm.metrics[WITHOUT_S] - step_s) <= FITS * step_s


def cpu_per_step(record: Record, arm: Arm) -> float | None:
    """CPU seconds in the median window, over its steps; None where they were not counted, and where
    they cannot be."""
    if stats.overbooked(record, arm):
        return None
    middle = stats.median_over(arm.windows.cpu_s)
    return None if middle is None else middle / arm.steps_per_window


def cpu(record: Record, arm: Arm) -> str:
    """`12.3 ms a step, 0.502× [0.500, 0.504] against pageable`; empty where it was not counted."""
    if stats.overbooked(record, arm):
        return OVERBOOKED
    used = cpu_per_step(record, arm)
    if used is None:
        return ""
    parts = [f"{text.seconds(used)} a step", _of_baseline(record, arm, stats.cpu_ratio)]
    return ", ".join(part for part in parts if part)


def energy_of_baseline(record: Record, arm: Arm) -> str:
    """`0.812× [0.810, 0.814] against pageable`; empty where a window is not resolved."""
    return _of_baseline(record, arm, stats.energy_ratio)


def _of_baseline(record: Record, arm: Arm, ratio_of: Ratio) -> str:
    baseline = baseline_of(record)
    if baseline is None or arm.name == baseline.name or is_ceiling(record):
        return ""
    ratio = ratio_of([record], arm.name, baseline.name)
    return "" if ratio is None else f"{text.speedup(ratio)} against {baseline.name}"


def energy(record: Record, arm: Arm) -> str:
    """`12.3 J a step, 0.384 J an image, ...`; empty where the card's counter resolved nothing."""
    if stats.beside_idle_gpus(record, arm):
        return f"withheld: {IDLE_GPUS}"
    joules = joules_per_step(record, arm)
    if joules is None:
        return ""
    known = len(_resolved(arm))
    of_item = joules_of_item(arm.cost, joules)
    source = f"median of {known} of {len(arm.window_s)} windows" if known else UNTIMED
    parts = [f"{text.joules(joules)} a step", of_item, source]
    return ", ".join(part for part in parts if part)


def joules_of_item(cost: Cost | None, joules: float) -> str:
    """`0.384 J per image`; empty where the cost does not say what the items of a step are."""
    if cost is None or not cost.item or cost.items <= 0:
        return ""
    return f"{text.joules(joules / cost.items)} per {cost.item}"


def metric(name: str, value: float) -> str:
    """A fact of an arm in the unit that its name ends in; a plain number where that is no unit."""
    if value < 0:
        return f"-{metric(name, -value)}"
    words = name.split("_")
    if words[-1] == "bytes":
        return text.size(round(value))
    if words[0] == "joules" or words[-1] == "j":
        return text.joules(value)
    if words[-1] == "s" and "per" not in words:
        return text.seconds(value)
    return f"{value:.0f}" if value == round(value) else text.digits(value)


def _resolved(arm: Arm) -> list[float]:
    return [energy_j for energy_j in arm.windows.energy_j if energy_j is not None]


def check(arm: Arm) -> str:
    """The check's error beside what it may be; `not checked` where nothing was compared."""
    if not arm.checked:
        return NOT_CHECKED
    if arm.check_error is None:
        return ""
    if arm.check_tolerance is None:
        return f"error {arm.check_error:.2g}"
    return f"error {arm.check_error:.2g} of {arm.check_tolerance:.2g} allowed"


def _time(estimate: Estimate) -> str:
    factor, unit = time_unit(estimate.value)
    shown = f"{text.digits(estimate.value / factor, TIME_DIGITS)} {unit}"
    if estimate.low is None or estimate.high is None:
        return f"{shown} (too few windows for an interval)"
    low, high = (text.digits(end / factor, TIME_DIGITS) for end in (estimate.low, estimate.high))
    return f"{shown} [{low}, {high}]"
