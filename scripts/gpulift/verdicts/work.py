"""Whether launches of an arm did the same work, and what may be compared where they did not.

Two texts of a technique, or two environments of an arm, may be two kinds of work. Nobody can tell
from records whether they are: what differs is named, and compared.

A run may find the size of its work itself, and notes it: rounds of arithmetic that take as long as
a copy, or the largest batch that fits. Its launches share what the first one found, another run may
find another. Times of a step are then not of equal work. The time over the baseline's is what the
case asks for, but it hangs on how well each run found the size: one H200 found 1987 and 1821 rounds
in two runs of one build, and eight chunks were 2.6 % less worth there, twenty times what launches
of a run differ by. So it is compared where runs or cards are what counts, and not over launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from gpulift.records.model import HASHES_MEANING, Arm, Cost, Record
from gpulift.verdicts import stats

SIZES = ("iterations", "largest_batch_{arm}")  # notes of what a run found out
COSTS = {"bytes per step": "bytes", "operations per step": "flops", "items per step": "items"}
UNLIKE = "files, which records hash otherwise since schema 1.14"
MOST_DIGITS = 18  # of a size
SAME = 1e-9  # relative; costs are computed
HAS_ENVIRONMENT = 7  # minor version of the schema from which on arms tell theirs


def other_work(name: str, records: Iterable[Record]) -> str:
    """What differs between the work of two launches, or nothing."""
    seen: dict[str, object] = {}
    for record, arm in _measured(name, records):
        for key, value in {**_conditions(record, arm), **_costs(record, arm)}.items():
            if seen.setdefault(key, value) != value:
                return f"{key} {_plain(seen[key])}, then {_plain(value)}"
    return ""


def of_own_size(name: str, records: Iterable[Record]) -> bool:
    """Whether the launches differ in nothing but a size that each run found itself and noted."""
    found = list(_measured(name, records))
    sizes = [_size(record, arm) for record, arm in found]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or len({*known}) < 2:
        return False
    conditions = [_conditions(record, arm) for record, arm in found]
    costs = [_costs(record, arm) for record, arm in found]
    return all(one == conditions[0] for one in conditions) and all(
        _alike([cost[key] for cost in costs])
        or _alike([cost[key] / size for cost, size in zip(costs, known, strict=True)])
        for key in costs[0]
    )


def may_differ(records: Sequence[Record]) -> tuple[str, ...]:
    """What makes the records of a technique doubtful as ones of equal work: files whose contents
    differ, and variables of arms. What a record does not tell is no difference."""
    named = [record for record in records if record.source]
    before = [record.source for record in named if record.minor < HASHES_MEANING]
    since = [record.source for record in named if record.minor >= HASHES_MEANING]
    changed = [*dict.fromkeys([*_files(before), *_files(since)])]
    if before and since:
        changed.append(UNLIKE)
    told = [record for record in records if record.minor >= HAS_ENVIRONMENT]
    names = dict.fromkeys(arm.name for record in told for arm in record.arms)
    return (*changed, *(text for name in names for text in _variables(name, told)))


def _files(sources: Sequence[Mapping[str, str]]) -> list[str]:
    """Those whose hashes differ."""
    files = sorted({file for source in sources for file in source})
    return [file for file in files if len({source.get(file) for source in sources}) > 1]


def _variables(name: str, records: Iterable[Record]) -> Iterator[str]:
    """`NCCL_ALGO of ring: Ring, then Tree`."""
    arms = (record.arm(name) for record in records)
    environments = [arm.environment for arm in arms if arm is not None]
    for variable in sorted({one for found in environments for one in found}):
        values = dict.fromkeys(found.get(variable, "not set") for found in environments)
        if len(values) > 1:
            yield f"{variable} of {name}: {', then '.join(values)}"


def log_over_baseline(record: Record, name: str, baseline: str) -> float | None:
    """The log of the arm's time over the baseline's: the launch value of METHOD.md, per item where
    their steps differ in size. None of the baseline itself, and where no such ratio is known."""
    with np.errstate(all="ignore"):  # items may be any numbers
        pair = stats.pair_ratio([record], name, baseline) if name != baseline else None
    if pair is None or not 0 < pair.ratio.value < math.inf:
        return None
    return math.log(pair.ratio.value)


def _measured(name: str, records: Iterable[Record]) -> Iterable[tuple[Record, Arm]]:
    arms = ((record, record.arm(name)) for record in records)
    return ((record, arm) for record, arm in arms if arm is not None and arm.outcome == "ok")


def _conditions(record: Record, arm: Arm) -> dict[str, object]:
    same: dict[str, object] = {
        "regime": record.regime,
        "check": record.check_meaning,
        "clock": arm.clock,
    }
    same["kind of work"] = "step"
    if not _chooses_shape(record, arm):
        return {**same, "check tolerance": arm.check_tolerance}
    # The shape of a ceiling is its own choice, and the tolerance goes with the shape.
    roof = (arm.cost or Cost()).roof
    return {**same, "kind of work": "operation" if stats.counts_operations(roof) else "byte"}


def _costs(record: Record, arm: Arm) -> dict[str, float]:
    cost = arm.cost or Cost()
    if _chooses_shape(record, arm):
        return {}
    return {name: getattr(cost, key) for name, key in COSTS.items()}


def _chooses_shape(record: Record, arm: Arm) -> bool:
    return record.ceiling and stats.work_for_roof(arm.cost or Cost()) > 0


def _size(record: Record, arm: Arm) -> int | None:
    for key in SIZES:
        noted = record.notes.get(key.format(arm=arm.name), "")
        if noted.isdecimal() and len(noted) <= MOST_DIGITS and int(noted) > 0:
            return int(noted)
    return None


def _alike(values: Sequence[float]) -> bool:
    return all(math.isclose(one, values[0], rel_tol=SAME) for one in values)


def _plain(value: object) -> str:
    """354334801920.0 becomes 354334801920; all digits are kept, since two that differ are shown."""
    whole = isinstance(value, float) and value.is_integer()
    return f"{value:.0f}" if whole else str(value)
