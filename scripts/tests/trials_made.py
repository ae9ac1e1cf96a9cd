"""Makes trials with known launch values, without any measuring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpulift.verdicts.decision import DECISION_METHOD
from proof.trials import AA, PLANTED, SCHEMA, RowTrial, Trial, schedule_hash

NOISE = 3e-4
ROWS = ("ceiling/memory/n:1/copy", "launch/empty/n:1/plain")


def row(
    name: str,
    first: Iterable[float],
    second: Iterable[float] = (),
    size: float = 0.0,
    **other: object,
) -> RowTrial:
    """A measured row."""
    first, second = [float(value) for value in first], [float(value) for value in second]
    made = RowTrial(
        row=name,
        on_gpu=name.startswith("ceiling/"),
        outcome="ok",
        reason="",
        size=size,
        planted=tuple(1.02 * size for _ in (*first, *second)) if size else (),
        first=tuple(first),
        second=tuple(second),
        base_s=(),
        head_s=(),
        base_cycles=(),
        head_cycles=(),
        seconds=2.0 * (len(first) + len(second)),
        records=tuple(f"{index:012x}" for index in range(len(first) + len(second))),
    )
    return replace(made, **other)  # type: ignore[arg-type]


def trial(number: int, rows: Sequence[RowTrial], **other: object) -> Trial:
    """A trial of these rows; it is a planted one when a row has a size."""
    sizes = {one.row: one.size for one in rows}
    planted = any(sizes.values())
    made = Trial(
        schema=SCHEMA,
        kind=PLANTED if planted else AA,
        number=number,
        method="1",
        decision_method=DECISION_METHOD,
        machine="nvidia-h200",
        card="1a2b3c4d",
        driver="580.159.04",
        commit="abc1234",
        dirty=False,
        build="",
        arm_time_s=0.2,
        started_at=f"2026-11-21T{number // 60:02d}:{number % 60:02d}:00Z",
        seconds=60.0,
        cases=len(rows),
        seed=number,
        schedule_sha256=schedule_hash(sizes) if planted else "",
        rows=tuple(rows),
    )
    return replace(made, **other)  # type: ignore[arg-type]


def noise(number: int, count: int, name: str = "") -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Launch values of unchanged code."""
    return np.random.default_rng([number, count, *name.encode()]).normal(0, NOISE, count)


def unchanged(number: int, bias: Mapping[str, float] | None = None) -> Trial:
    """An A/A suite of ROWS."""
    shift = bias or {}
    return trial(
        number,
        [row(name, noise(number, 4, name) + shift.get(name, 0.0)) for name in ROWS],
    )


def planted(number: int, sizes: Mapping[str, float], blind: Sequence[str] = ()) -> Trial:
    """A planted trial: in blind rows, nothing of it shows."""
    rows = []
    for name, size in sizes.items():
        shown = 0.0 if name in blind else float(np.log1p(size))
        first, second = noise(number, 4, name) + shown, noise(number, 32, name) + shown
        rows.append(row(name, first, second, size))
    return trial(number, rows)
