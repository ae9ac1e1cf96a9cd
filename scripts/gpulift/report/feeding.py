"""How training is fed: the rungs of a ladder of loading, and what the storage below gives.

A ladder is a case whose arms tell what their loader makes and what the step alone takes; storage is
a case whose axis `access` has the size of a block in its values, as in `random_4k`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from gpulift.analysis.machine.feeding import Rung, rungs_of
from gpulift.ground import text
from gpulift.report import escaping, plots
from gpulift.report.drawing import Drawing
from gpulift.report.machine_views import MachineView
from gpulift.report.plots import Bar
from gpulift.verdicts import stats
from gpulift.verdicts.cases import Case

ACCESS = "access"
BLOCK = re.compile(r"([a-z]+)_(\d+)([km])")  # random_4k: how it is asked, the size of a block
UNITS = {"k": 1 << 10, "m": 1 << 20}
MOST_LADDERS = 4


def drawings(machines: Iterable[MachineView]) -> list[Drawing]:
    """The ladders and the storage of each machine."""
    return [one for view in machines for one in (*_ladders(view), *_storage(view))]


def _ladders(view: MachineView) -> Iterator[Drawing]:
    found = ((case, rungs_of(case)) for case in view.summary.cases)
    long = [(case, rungs) for case, rungs in found if len(rungs) > 1]
    for number, (case, rungs) in enumerate(long[:MOST_LADDERS]):
        item = _item(case)
        rows = [Bar(one.name, one.per_s, text.digits(one.per_s.value)) for one in rungs]
        alone = stats.median_over([one.step_per_s for one in rungs])
        counted = plots.launches(row.estimate for row in rows)
        axis = f"{item}s/s with their 95 % interval (more is better)\n{counted}"
        line = (alone, f"the step alone: {text.digits(alone)}") if alone else None
        draw = partial(plots.bars, rows, axis, line=line)
        alt = _ladder_alt(view, case, rungs, alone)
        yield Drawing(f"ladder-{view.number}-{number}", alt, draw)


def _ladder_alt(view: MachineView, case: Case, rungs: Sequence[Rung], alone: float | None) -> str:
    said = ", ".join(f"{escaping.brief(one.name)} {text.digits(one.per_s.value)}" for one in rungs)
    step = escaping.brief(case.first.notes.get("step", "not told"))
    ends = f"; the step alone ({step}) takes {text.digits(alone)}" if alone else ""
    return (
        f"{_where(case.technique, view)}, {text.case_label(case.case_id)}, {_item(case)}s a second"
        f", cumulative settings: {said}{ends}."
    )


def _item(case: Case) -> str:
    cost = case.first.arms[0].cost
    return escaping.brief(cost.item) if cost and cost.item else "item"


def _storage(view: MachineView) -> Iterator[Drawing]:
    """A figure for each technique, the smallest blocks first."""
    groups: dict[str, list[tuple[int, Case]]] = {}
    for case in view.summary.cases:
        size = _block_bytes(case)
        if size is not None and case.times_s:
            groups.setdefault(case.technique, []).append((size, case))
    for number, (technique, found) in enumerate(groups.items()):
        cases = [case for _, case in sorted(found, key=_by_size)]
        rows = [row for case in cases for row in _storage_rows(case)]
        if rows:
            alt = f"{_where(technique, view)}, bytes a second by block: {_said(rows)}."
            counted = plots.launches(row.estimate for row in rows)
            axis = f"bytes/s with their 95 % interval, log scale\n{counted}"
            draw = partial(plots.bars, rows, axis, log=True)
            yield Drawing(f"storage-{view.number}-{number}", alt, draw)


def _by_size(found: tuple[int, Case]) -> tuple[str, int]:
    size, case = found
    return _others(case), size


def _others(case: Case) -> str:
    """The values of the axes beside the access: `read`."""
    return ", ".join(str(value) for axis, value in case.first.case.items() if axis != ACCESS)


def _block_bytes(case: Case) -> int | None:
    found = BLOCK.fullmatch(str(case.first.case.get(ACCESS, "")))
    return int(found[2]) * UNITS[found[3]] if found else None


def _storage_rows(case: Case) -> Iterator[Bar]:
    found = BLOCK.fullmatch(str(case.first.case[ACCESS]))
    size = _block_bytes(case)
    assert found is not None, "such cases alone are drawn"
    assert size is not None, "such cases alone are drawn"
    for name, launches in case.arms.items():
        cost = launches[0].cost
        if cost is not None and cost.bytes > 0:
            rate = stats.rate(case.times_s[name], cost.bytes)
            label = f"{_others(case)}, {found[1]} {text.round_size(size)}: {name}"
            yield Bar(label, rate, text.rate(rate.value, "B/s"))


def _said(rows: Sequence[Bar]) -> str:
    return "; ".join(f"{escaping.brief(one.label)} {one.value}" for one in rows)


def _where(technique: str, view: MachineView) -> str:
    return f"{escaping.brief(technique)} on {escaping.brief(view.summary.run.machine)}"
