"""One row for each arm of each record, with every scalar: what CSV holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gpulift.analysis import arms, conditions, errata
from gpulift.analysis.bounds import bound_of
from gpulift.analysis.choice import Choice, choice_of
from gpulift.engine import machine
from gpulift.records.model import Arm, Context, Gpu, Record, Telemetry
from gpulift.records.read import Run
from gpulift.verdicts import stats

TELEMETRY_RANGES = (
    "sm_clock_hz",
    "memory_clock_hz",
    "power_w",
    "temperature_c",
    "gpu_utilisation",
)
HOST_LOAD = ("own_cores", "other_cores", "stolen_cores")
ENDS = ("min", "median", "max")

Scalar = str | int | float | bool | None


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
    type: type
    value: Callable[[Row], Scalar]


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
    return [*_of_record(), *_of_context(), *_of_telemetry(), *_of_arm(), *_of_result()]


def cells_of(
    runs: Sequence[Run], cell: Callable[[Scalar], Scalar]
) -> Iterator[tuple[Row, list[Scalar]]]:
    """The same rows, each with its cells by column.

    What arms of a record share is computed once, and so is what records of a process share.
    """
    record, context, telemetry = _of_record(), _of_context(), _of_telemetry()
    arm_columns = [*_of_arm(), *_of_result()]
    known: tuple[Context, list[Scalar]] | None = None
    for run in runs:
        for one in run.records:
            whole = Row(run, one, None)
            if known is None or known[0] is not one.context:
                known = (one.context, _cells(context, whole, cell))
            shared = [*_cells(record, whole, cell), *known[1], *_cells(telemetry, whole, cell)]
            for row in _of_arms(run, one):
                yield row, [*shared, *_cells(arm_columns, row, cell)]


def _cells(found: Sequence[Column], row: Row, cell: Callable[[Scalar], Scalar]) -> list[Scalar]:
    return [cell(column.value(row)) for column in found]


def _of_record() -> list[Column]:
    texts = ("kind", "technique", "case_id", "regime")
    later = ("question", "expectation", "check_meaning", "telemetry_missing")
    return [
        Column("record", str, lambda row: row.record.citation),
        Column("run", str, lambda row: row.run.folder.name),
        *(Column(name, str, _record(name)) for name in texts),
        Column("started_at", str, _record("began_at")),  # which some records tell otherwise
        *(Column(name, str, _record(name)) for name in ("schema", "method")),
        Column("case_json", str, lambda row: as_json(row.record.case)),
        Column("duet_arm", str, lambda row: row.record.duet_arm or None),
        *(Column(name, int, _record(name)) for name in ("launch", "launches")),
        *(Column(name, bool, _record(name)) for name in ("quick", "ceiling")),
        Column("record_outcome", str, _record("outcome")),
        Column("record_reason", str, lambda row: row.record.reason or None),
        Column("record_remedy", str, lambda row: row.record.remedy or None),
        *(Column(name, str, _record(name)) for name in later),
        Column("claims", str, lambda row: ", ".join(row.record.claims) or None),
        Column("errata", str, lambda row: known_errors(row.record) or None),
        Column("notes_json", str, lambda row: as_json(row.record.notes)),
        Column("stop_reason", str, _inside("stop", "reason")),
        Column("blocks", int, _inside("stop", "blocks")),
        Column("planned_blocks", int, _inside("stop", "planned_blocks")),
        Column("asked_half_width", float, _inside("stop", "asked_half_width")),
        Column("reached_half_width", float, _inside("stop", "reached_half_width")),
        *(Column(name, int, _record(name)) for name in ("discarded_blocks", "restarts")),
        *(Column(name, float, _inside("host_load", name)) for name in HOST_LOAD),
        Column("seed", str, lambda row: str(row.record.order.seed) if row.record.order else None),
        Column("source_json", str, lambda row: as_json(row.record.source)),
        Column("time_json", str, lambda row: as_json(row.record.time_s)),
    ]


def _of_context() -> list[Column]:
    versions = ("driver", "cuda_driver", "cuda_runtime", "gpu_missing", "gpu_remedy")
    build = (
        *("commit", "type", "compiler", "cuda_compiler", "architectures", "sanitizers"),
        *("cuda_host_compiler", "linker", "flags", "cuda_flags", "link_flags"),
    )
    return [
        Column("machine", str, lambda row: row.record.context.slug),
        Column("gpu", str, _gpu(lambda gpu: gpu.name)),
        Column("gpu_card", str, _gpu(lambda gpu: gpu.card or None)),
        Column("gpu_memory_bytes", int, _gpu(lambda gpu: gpu.memory_bytes)),
        Column("gpu_power_limit_w", float, _gpu(lambda gpu: gpu.power_limit_w)),
        Column("gpu_facts_json", str, _gpu(lambda gpu: as_json(gpu.facts))),
        *(Column(name, str, _context(name)) for name in versions),
        Column("libraries", str, lambda row: conditions.pairs(row.record.context.versions)),
        Column("gpus_json", str, _gpus_json),
        Column("scratch", str, lambda row: conditions.disk(row.record.context) or None),
        Column("host_cpu", str, lambda row: row.record.context.host.cpu),
        Column("host_cores", int, lambda row: row.record.context.host.cores),
        Column("host_facts_json", str, lambda row: as_json(row.record.context.host.facts)),
        *(Column(f"build_{name}", str, _build(name)) for name in build),
        Column("build_dirty", bool, _build("dirty")),
        Column(
            "build_environment_json",
            str,
            lambda row: as_json(row.record.context.build.environment),
        ),
        Column("environment_json", str, lambda row: as_json(row.record.context.environment)),
        Column("options_json", str, lambda row: as_json(row.record.context.options)),
    ]


def _of_telemetry() -> list[Column]:
    ranges = [
        Column(f"case_{key}_{end}", float, _range(key, end))
        for key in TELEMETRY_RANGES
        for end in ENDS
    ]
    return [
        Column("case_telemetry_samples", int, _inside("telemetry", "samples")),
        Column("case_telemetry_interval_s", float, _inside("telemetry", "interval_s")),
        *ranges,
        Column(
            "case_temperature_slope_c_per_s",
            float,
            _inside("telemetry", "temperature_slope_c_per_s"),
        ),
        Column("case_energy_j", float, _inside("telemetry", "energy_j")),
        Column(
            "case_throttle", str, _telemetry(lambda seen: ", ".join(seen.throttle or ()) or None)
        ),
        # Without it, no reason and no answer would be the same empty cell.
        Column("case_throttle_known", bool, _telemetry(lambda seen: seen.throttle is not None)),
        Column("case_pcie_generation", int, _inside("telemetry", "pcie_generation")),
        Column("case_pcie_width", int, _inside("telemetry", "pcie_width")),
    ]


def _of_arm() -> list[Column]:
    numbers = ("steps_per_window", "lead_in_steps")
    peaks = ("peak_device_bytes", "peak_pinned_bytes", "peak_host_bytes")
    return [
        Column("arm", str, _arm("name")),
        *(Column(name, str, _arm(name)) for name in ("role", "outcome", "clock")),
        Column("reason", str, lambda row: row.arm.reason or None if row.arm else None),
        Column("remedy", str, lambda row: row.arm.remedy or None if row.arm else None),
        *(Column(f"step_{name}", float, _cost(name)) for name in ("bytes", "flops", "items")),
        *(Column(name, str, _cost(name)) for name in ("item", "roof")),
        Column("metrics_json", str, lambda row: as_json(row.arm.metrics) if row.arm else None),
        Column("checked", bool, _checked),
        *(Column(name, float, _arm(name)) for name in ("check_error", "check_tolerance")),
        *(Column(name, int, _arm(name)) for name in (*numbers, *peaks)),
        Column("held", bool, _arm("held")),
        Column("bound", str, lambda r: (r.arm and bound_of([r.record], r.arm.name).kind) or None),
        Column("ranks", int, _arm("ranks")),
        Column(
            "arm_environment_json", str, lambda r: as_json(r.arm.environment) if r.arm else None
        ),
        Column("precondition", str, _precondition("name")),
        Column("precondition_most", float, _precondition("most")),
        Column("precondition_worst", float, _precondition("worst")),
    ]


def _of_result() -> list[Column]:
    return [
        Column("text", str, lambda row: choice().today.text(row.record) or None),
        Column(
            "gone", str, lambda row: gone(row.record, row.arm.name) or None if row.arm else None
        ),
        Column("windows", int, lambda row: len(row.arm.window_s) if row.arm else None),
        Column("step_s", float, lambda row: row.step_s),
        Column("step_cpu_s", float, _used(arms.cpu_per_step)),
        Column("step_energy_j", float, _used(arms.joules_per_step)),
        Column("speedup", float, lambda row: row.speedup),
        Column("bytes_per_s", float, lambda row: row.rate("bytes")),
        Column("flops_per_s", float, lambda row: row.rate("flops")),
        Column("items_per_s", float, lambda row: row.rate("items")),
    ]


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


def _gpus_json(row: Row) -> str | None:
    """All GPUs of arms that had several."""
    gpus = row.record.context.gpus
    return f"[{','.join(as_json(gpu.facts) for gpu in gpus)}]" if gpus else None


def as_json(value: Mapping[str, Any]) -> str:
    """Compact JSON text."""
    return json.dumps(dict(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _record(name: str) -> Callable[[Row], Scalar]:
    return lambda row: _known(getattr(row.record, name))


def _context(name: str) -> Callable[[Row], Scalar]:
    return lambda row: _known(getattr(row.record.context, name))


def _build(name: str) -> Callable[[Row], Scalar]:
    return lambda row: _known(getattr(row.record.context.build, name))


def _arm(name: str) -> Callable[[Row], Scalar]:
    return lambda row: _known(getattr(row.arm, name)) if row.arm else None


def _used(of: Callable[[Record, Arm], float | None]) -> Callable[[Row], Scalar]:
    return lambda row: of(row.record, row.arm) if row.arm else None


def _cost(name: str) -> Callable[[Row], Scalar]:
    return lambda row: _known(getattr(row.arm.cost, name)) if row.arm and row.arm.cost else None


def _precondition(name: str) -> Callable[[Row], Scalar]:
    def value(row: Row) -> Scalar:
        required = row.arm.precondition if row.arm else None
        return None if required is None else _known(getattr(required, name))

    return value


def _inside(part: str, name: str) -> Callable[[Row], Scalar]:
    """A value of a part that a record may lack."""

    def value(row: Row) -> Scalar:
        found = getattr(row.record, part)
        return None if found is None else _known(getattr(found, name))

    return value


def _gpu(of: Callable[[Gpu], Scalar]) -> Callable[[Row], Scalar]:
    return lambda row: of(row.record.context.gpu) if row.record.context.gpu else None


def _telemetry(of: Callable[[Telemetry], Scalar]) -> Callable[[Row], Scalar]:
    return lambda row: of(row.record.telemetry) if row.record.telemetry else None


def _range(key: str, end: str) -> Callable[[Row], Scalar]:
    def value(seen: Telemetry) -> Scalar:
        return float(getattr(seen.ranges[key], end)) if key in seen.ranges else None

    return _telemetry(value)


def _known(value: Any) -> Scalar:
    """An empty text says that nothing is known."""
    known: Scalar = None if value == "" else value
    return known
