"""One row for each arm of each record, with every scalar: what CSV holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from gpulift.analysis import arms, conditions, errata
from gpulift.analysis.bounds import bound_of
from gpulift.analysis.choice import Choice, choice_of
from gpulift.engine import machine
from gpulift.records.model import Arm, Context, Record
from gpulift.records.read import Run
from gpulift.verdicts import stats

TELEMETRY_RANGES = (
    "sm_clock_hz",
    "memory_clock_hz",
    "power_w",
    "temperature_c",
    "gpu_utilisation",
)
ENDS = ("min", "median", "max")
WORK = ("bytes", "flops", "items")
BUILD = (
    *("commit", "type", "compiler", "cuda_compiler", "architectures", "sanitizers"),
    *("cuda_host_compiler", "linker", "flags", "cuda_flags", "link_flags", "dirty"),
)

Scalar = str | int | float | bool | None
Cell = Callable[["Row"], Scalar]


@dataclass(frozen=True)
class Row:
    """An arm in one launch; a record without arms has one row without an arm."""

    run: Run
    record: Record
    arm: Arm | None

    @cached_property
    def step_s(self) -> float | None:
        """Seconds of a step in the median window of this launch."""
        measured = self.arm and stats.measured_arms([self.record], self.arm.name)
        return measured[0].step_quartiles_s[1] if measured else None

    @property
    def speedup(self) -> float | None:
        """Baseline time / arm time in this launch; None for the baseline itself."""
        baseline = arms.baseline_of(self.record)
        if self.arm is None or baseline is None or self.arm is baseline:
            return None
        if arms.is_ceiling(self.record):
            return None
        pair = stats.pair_ratio([self.record], self.arm.name, baseline.name)
        return pair.speedup.value if pair else None

    def rate(self, work: str) -> float | None:
        """Bytes, flops or items of a step over its time."""
        amount = getattr(self.arm.cost, work) if self.arm and self.arm.cost else 0.0
        return amount / self.step_s if amount > 0 and self.step_s else None


@dataclass(frozen=True)
class Column:
    """A column of the table; its unit is in the name."""

    name: str
    value: Cell


def rows_of(runs: Sequence[Run]) -> Iterator[Row]:
    """All rows, run by run, in the order of the records."""
    for run in runs:
        for record in run.records:
            yield from _of_arms(run, record)


def _of_arms(run: Run, record: Record) -> Iterator[Row]:
    for arm in record.arms or (None,):
        yield Row(run, record, arm)


def columns() -> list[Column]:
    """All scalar columns, in their order."""
    return [*OF_RECORD, *OF_CONTEXT, *OF_TELEMETRY, *OF_ARM]


def cells_of(
    runs: Sequence[Run], cell: Callable[[Scalar], Scalar]
) -> Iterator[tuple[Row, list[Scalar]]]:
    """The same rows, each with its cells by column.

    What arms of a record share is computed once, and so is what records of a process share.
    """
    known: tuple[Context, list[Scalar]] | None = None
    for run in runs:
        for one in run.records:
            whole = Row(run, one, None)
            if known is None or known[0] is not one.context:
                known = (one.context, _cells(OF_CONTEXT, whole, cell))
            shared = [*_cells(OF_RECORD, whole, cell), *known[1]]
            shared += _cells(OF_TELEMETRY, whole, cell)
            for row in _of_arms(run, one):
                yield row, [*shared, *_cells(OF_ARM, row, cell)]


def _cells(found: Sequence[Column], row: Row, cell: Callable[[Scalar], Scalar]) -> list[Scalar]:
    return [cell(column.value(row)) for column in found]


def known_errors(record: Record) -> str:
    """What the checkout's errata say of a record, in short."""
    return "; ".join(one.short for one in errata.errata_of(record, choice().errata))


def gone(record: Record, arm: str) -> str:
    """What of an arm's row is no more in today's sweep: technique, case, baseline or arm."""
    baseline = None if arms.is_ceiling(record) else arms.baseline_of(record)
    return choice().today.gone(record, (arm,), baseline.name if baseline else "")


def choice() -> Choice:
    """By the results of the checkout."""
    return _choice(machine.results_folder())


@cache
def _choice(results: Path) -> Choice:
    return choice_of(results)


def _checked(row: Row) -> bool | None:
    """Nothing where the arm has no result that could have been."""
    return row.arm.checked if row.arm and row.arm.outcome == "ok" else None


def _throttle_known(row: Row) -> bool | None:
    seen = row.record.telemetry
    return None if seen is None else seen.throttle is not None


def _rate(work: str, row: Row) -> float | None:
    return row.rate(work)


def _gpus_json(row: Row) -> str | None:
    """All GPUs of arms that had several."""
    gpus = row.record.context.gpus
    return f"[{','.join(as_json(gpu.facts) for gpu in gpus)}]" if gpus else None


def as_json(value: Mapping[str, Any]) -> str:
    """Compact JSON text."""
    return json.dumps(dict(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _at(path: str) -> Cell:
    """What stands at that place of a row; None where a part on the way is not there. An empty text
    says that nothing is known."""
    names = path.split(".")

    def value(row: Row) -> Scalar:
        part: Any = row
        for name in names:
            part = part.get(name) if isinstance(part, Mapping) else getattr(part, name)
            if part is None:
                return None
        if isinstance(part, Mapping):
            return as_json(part)
        known: Scalar = ", ".join(part) if isinstance(part, tuple) else part
        return None if known == "" else known

    return value


def _columns(*each: str | tuple[str, str | Cell]) -> list[Column]:
    """Of names with where they stand, or how they are computed; `part: a b c` are all of one part,
    called as there."""
    cells: dict[str, str | Cell] = {}
    for column in each:
        if isinstance(column, str):
            part, _, names = column.partition(": ")
            cells |= {name: f"{part}.{name}" for name in names.split()}
        else:
            cells[column[0]] = column[1]
    return [Column(name, _at(at) if isinstance(at, str) else at) for name, at in cells.items()]


OF_RECORD = _columns(
    ("record", "record.citation"),
    ("run", "run.folder.name"),
    "record: kind technique case_id regime",
    ("started_at", "record.began_at"),  # which some records tell otherwise
    "record: schema method",
    ("case_json", "record.case"),
    "record: duet_arm launch launches quick ceiling",
    ("record_outcome", "record.outcome"),
    ("record_reason", "record.reason"),
    ("record_remedy", "record.remedy"),
    "record: question expectation check_meaning telemetry_missing claims",
    ("errata", lambda row: known_errors(row.record) or None),
    ("notes_json", "record.notes"),
    ("stop_reason", "record.stop.reason"),
    "record.stop: blocks planned_blocks asked_half_width reached_half_width",
    "record: discarded_blocks restarts",
    "record.host_load: own_cores other_cores stolen_cores",
    ("seed", "record.order.seed"),
    ("source_json", "record.source"),
    ("time_json", "record.time_s"),
)
OF_CONTEXT = _columns(
    ("machine", "record.context.slug"),
    ("gpu", "record.context.gpu.name"),
    ("gpu_card", "record.context.gpu.card"),
    ("gpu_memory_bytes", "record.context.gpu.memory_bytes"),
    ("gpu_power_limit_w", "record.context.gpu.power_limit_w"),
    ("gpu_facts_json", "record.context.gpu.facts"),
    "record.context: driver cuda_driver cuda_runtime gpu_missing gpu_remedy",
    ("libraries", lambda row: conditions.pairs(row.record.context.versions)),
    ("gpus_json", _gpus_json),
    ("scratch", lambda row: conditions.disk(row.record.context) or None),
    ("host_cpu", "record.context.host.cpu"),
    ("host_cores", "record.context.host.cores"),
    ("host_facts_json", "record.context.host.facts"),
    *((f"build_{name}", f"record.context.build.{name}") for name in BUILD),
    ("build_environment_json", "record.context.build.environment"),
    ("environment_json", "record.context.environment"),
    ("options_json", "record.context.options"),
)
OF_TELEMETRY = _columns(
    ("case_telemetry_samples", "record.telemetry.samples"),
    ("case_telemetry_interval_s", "record.telemetry.interval_s"),
    *(
        (f"case_{key}_{end}", f"record.telemetry.ranges.{key}.{end}")
        for key in TELEMETRY_RANGES
        for end in ENDS
    ),
    ("case_temperature_slope_c_per_s", "record.telemetry.temperature_slope_c_per_s"),
    ("case_energy_j", "record.telemetry.energy_j"),
    ("case_throttle", "record.telemetry.throttle"),
    # Without it, no reason and no answer would be the same empty cell.
    ("case_throttle_known", _throttle_known),
    ("case_pcie_generation", "record.telemetry.pcie_generation"),
    ("case_pcie_width", "record.telemetry.pcie_width"),
)
OF_ARM = _columns(
    ("arm", "arm.name"),
    "arm: role outcome clock reason remedy",
    *((f"step_{name}", f"arm.cost.{name}") for name in WORK),
    "arm.cost: item roof",
    ("metrics_json", "arm.metrics"),
    ("checked", _checked),
    "arm: check_error check_tolerance steps_per_window lead_in_steps",
    "arm: peak_device_bytes peak_pinned_bytes peak_host_bytes held",
    ("bound", lambda row: (row.arm and bound_of([row.record], row.arm.name).kind) or None),
    "arm: ranks",
    ("arm_environment_json", "arm.environment"),
    ("precondition", "arm.precondition.name"),
    ("precondition_most", "arm.precondition.most"),
    ("precondition_worst", "arm.precondition.worst"),
    ("text", lambda row: choice().today.text(row.record) or None),
    ("gone", lambda row: gone(row.record, row.arm.name) or None if row.arm else None),
    ("windows", lambda row: len(row.arm.window_s) if row.arm else None),
    ("step_s", "step_s"),
    ("step_cpu_s", lambda row: arms.cpu_per_step(row.record, row.arm) if row.arm else None),
    ("step_energy_j", lambda row: arms.joules_per_step(row.record, row.arm) if row.arm else None),
    ("speedup", "speedup"),
    *((f"{name}_per_s", partial(_rate, name)) for name in WORK),
)
