"""Records as the JSON of Google Benchmark: a launch is a repetition, names as gpulift-bench's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpulift.exchange.rows import Row, known_errors, rows_of
from gpulift.ground.errors import GpuliftError
from gpulift.records.read import Run

Json = dict[str, Any]
NS_PER_S = 1e9
# As Google Benchmark names a benchmark with one iteration of manual time.
SUFFIX = "/iterations:1/manual_time"
NO_CPU_TIME = "not measured: cpu_time is 0 throughout"
PEAKS = ("peak_device_bytes", "peak_pinned_bytes", "peak_host_bytes")


def gbench_text(runs: Sequence[Run]) -> str:
    """One run: its names do not say the machine, so two runs would pass for repetitions.

    `real_time` is the median window's step by the arm's clock. What was not measured is listed in
    the context with its reason: an entry with an error has a time of 0 in this format.
    """
    if len(runs) != 1:
        names = ", ".join(run.name for run in runs)
        raise GpuliftError(f"gbench holds one run, these are {len(runs)}: {names}; name one")
    rows = list(rows_of(runs))
    families: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda one: one.record.launch):
        if row.step_s is not None:
            families.setdefault(_name(row), []).append(row)
    entries = [
        _entry(name, index, number, family)
        for index, (name, family) in enumerate(families.items())
        for number in range(len(family))
    ]
    document = {"context": _context(runs[0], rows), "benchmarks": entries}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _name(row: Row) -> str:
    record = row.record
    arm = row.arm.name if row.arm else ""
    parts = (record.technique, record.case_id, arm)
    return "/".join(part for part in parts if part) + SUFFIX


def _entry(name: str, family: int, number: int, launches: Sequence[Row]) -> Json:
    row = launches[number]
    step_s = row.step_s or 0.0
    made: Json = {
        "name": name,
        "family_index": family,
        "per_family_instance_index": 0,
        "run_name": name,
        "run_type": "iteration",
        "repetitions": len(launches),
        "repetition_index": number,
        "threads": 1,
        "iterations": 1,
        "real_time": step_s * NS_PER_S,
        "cpu_time": 0.0,
        "time_unit": "ns",
    }
    counters = {
        "bytes_per_second": row.rate("bytes"),
        "items_per_second": row.rate("items"),
        "flops_per_second": row.rate("flops"),
        "speedup": row.speedup,
        **{key: getattr(row.arm, key) for key in PEAKS},
    }
    return made | {key: value for key, value in counters.items() if value is not None}


def _context(run: Run, rows: Sequence[Row]) -> Json:
    context = run.records[0].context
    known: Json = {
        "date": min(record.began_at for record in run.records),
        "executable": "gpulift export gbench",
        "num_cpus": context.host.cores,
        "gpu": context.gpu.name if context.gpu else None,
        "gpulift_run": run.name,
        "gpulift_commit": context.build.commit,
        "gpulift_driver": context.driver or None,
        "gpulift_cpu_time": NO_CPU_TIME,
        "gpulift_known_errors": sorted({known_errors(one) for one in run.records} - {""}) or None,
        "gpulift_not_measured": [_missing(row) for row in rows if row.step_s is None] or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def _missing(row: Row) -> Json:
    of = row.arm if row.arm and row.record.outcome == "ok" else row.record
    return {
        "name": _name(row).removesuffix(SUFFIX),
        "launch": row.record.launch,
        "outcome": of.outcome,
        "reason": of.reason,
    }
