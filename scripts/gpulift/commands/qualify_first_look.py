"""A first look at a card: its three main rates by one launch of each, ahead of all else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpulift.analysis.machine.one_line import of_card
from gpulift.analysis.summary import summarise
from gpulift.engine import machine, measuring
from gpulift.engine.quick import Row
from gpulift.ground.errors import OK
from gpulift.records.read import read_run

TOLD = ("ceiling/gemm", "ceiling/device_memory", "ceiling/host_link")


def rows_of(
    options: measuring.Options, techniques: Sequence[machine.TechniqueInfo]
) -> tuple[Row, ...]:
    """Those that a quick run has anyway."""
    matches = machine.matcher(options.filter)
    every = options.rows or (
        (info.id, case.id, arm)
        for info in techniques
        for case in info.cases
        for arm in info.arms
        if case.quick and matches(info.id, f"{info.id}/{case.id}", f"{info.id}/{case.id}/{arm}")
    )
    return tuple(row for row in every if row[0] in TOLD)


def look(folder: Path, options: measuring.Options, rows: Sequence[Row], say: measuring.Say) -> int:
    """Measures them into the folder of the run, which goes on from there, and says the rates; the
    exit code unless the run can go on."""
    began_s = time.monotonic()
    asked = replace(options, rows=tuple(rows), launches=1)
    measuring.write_rows(folder, asked.rows)
    code = machine.measure(machine.find_bench(), asked.flags(folder))
    measuring.write_rows(folder, options.rows)
    if not measuring.finished(folder, code):
        return code
    if measuring.kept_records(folder):
        line = of_card(summarise(read_run(folder), None))
        say(f"first look, {time.monotonic() - began_s:.0f} s, one launch: {line}")
    return OK
