"""Nsight Compute around one step of an arm: what the card's own counters say of it."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import Any

from gpulift.engine import machine
from gpulift.ground.errors import BUSY, FAILED, NOTHING_RAN, GpuliftError
from gpulift.ground.programs import finished, text_of
from gpulift.records.decode import converted
from gpulift.records.model import Cost

LIMIT_S = 600.0  # of an arm, which may compile a model
PLACES = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
WITH_OPERATIONS = (90,)  # architectures of which ncu was asked for these names, and has them
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
SECTORS, HITS = "lts__t_sectors.sum", "lts__t_sectors_lookup_hit.sum"
TIME, BUSY_TENSOR = (
    "gpu__time_duration.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
)
FORMATS = ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp8", "int8", "fp64")
OPERATIONS = tuple(f"sm__ops_path_tensor_src_{name}.sum" for name in FORMATS)
UNITS = {**dict.fromkeys(DRAM, "byte"), SECTORS: "sector", HITS: "sector", TIME: "ns"}
ERROR = re.compile(r"==ERROR== (?!The application returned an error code)(.*)")
ENDED = re.compile(r"The application returned an error code \((\d+)\)")
NO_RIGHT = "ERR_NVGPUCTRPERM"
ALLOW = (
    "run it as root (in a container with --cap-add=SYS_ADMIN), or load the driver with"
    " NVreg_RestrictProfilingToAdminUsers=0"
)
INSTALL = "install nsight-compute, or put the folder of ncu in PATH"


@dataclass(frozen=True)
class Counted:
    """Over all kernels of a step; copies and fills of the driver are none."""

    kernels: int
    dram_bytes: float
    l2_hits: float | None  # of the sectors that were asked for, writes too
    tensor_busy: float  # share of the kernels' time in which the tensor pipe was active
    tensor_flops: float | None  # None: this architecture does not count them


@dataclass(frozen=True)
class Step:
    """One arm: its cost as it says it, and what was counted, or why nothing was."""

    arm: str
    outcome: str = "ok"
    reason: str = ""
    remedy: str = ""
    cost: Cost = field(default_factory=Cost)
    counted: Counted | None = None


def find_ncu() -> str:
    """That of PATH, or else the newest in its usual places."""
    found = shutil.which("ncu") or max((one for place in PLACES for one in glob(place)), default="")
    if not found:
        raise GpuliftError(f"ncu, which reads the counters, is not here: {INSTALL}", NOTHING_RAN)
    return found


def metrics(architecture: int) -> tuple[str, ...]:
    """Those that a GPU of this architecture has."""
    counted = OPERATIONS if architecture in WITH_OPERATIONS else ()
    return (*DRAM, SECTORS, HITS, TIME, BUSY_TENSOR, *counted)


def count(
    ncu: str, wanted: Sequence[str], row: Sequence[str], flags: Sequence[str], folder: Path
) -> Step:
    """Profiles the row's arm; `folder` is empty, and `flags` are of gpulift-bench.

    Raises GpuliftError where none could be: no right, a card that another run holds.
    """
    rows, records, log = folder / "rows.tsv", folder / "records", folder / "ncu.log"
    rows.write_text("\t".join(row) + "\n", encoding="utf-8")
    bench = machine.find_bench()
    told = ["--profile", "--launches", "1", "--rows", rows, "--records", records, *flags]
    # No cache is flushed, no clock is set: the step finds what those before it left.
    kept = ["--clock-control", "none", "--cache-control", "none"]
    how = ["--target-processes", "all", "--profile-from-start", "off", *kept]
    form = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", log]
    command = [ncu, *how, *form, "--metrics", ",".join(wanted), bench, *told]
    try:
        done = finished([str(part) for part in command], LIMIT_S)
    except subprocess.TimeoutExpired:
        return Step(row[2], "error", f"no answer of ncu within {LIMIT_S:.0f} s")
    except OSError as error:
        raise GpuliftError(f"{ncu}: cannot be started: {error.strerror}", FAILED) from None
    said = log.read_text("utf-8", "replace") if log.exists() else ""
    if NO_RIGHT in said + text_of(done.stderr):
        told_why = f"ncu may not read the counters here ({NO_RIGHT}): {ALLOW}"
        raise GpuliftError(told_why, NOTHING_RAN)
    lines = [line for file in records.glob("*.jsonl") for line in file.read_bytes().splitlines()]
    if not lines:
        raise _refused(said, text_of(done.stderr), done.returncode)
    return step_of(row[2], json.loads(lines[-1]), said)


def _refused(said: str, errors: str, code: int) -> GpuliftError:
    """Why the engine measured nothing: an error of ncu's, or else its own last line."""
    if broken := ERROR.search(said):
        return GpuliftError(f"ncu: {broken[1]}", FAILED)
    ended = ENDED.search(said)
    code = int(ended[1]) if ended else code
    *_, why = ["", *errors.strip().splitlines()]
    return GpuliftError(
        why.removeprefix("gpulift-bench: ") or f"gpulift-bench ended with exit code {code}",
        BUSY if code == BUSY else FAILED,
    )


def step_of(arm: str, record: Mapping[str, Any], said: str) -> Step:
    """What the engine recorded of the arm, with what ncu said beside it."""
    found = next((one for one in record.get("arms", ()) if one["name"] == arm), record)
    told = record if record["outcome"] != "ok" else found
    if told["outcome"] != "ok":
        return Step(arm, told["outcome"], told.get("reason", ""), told.get("remedy", ""))
    if broken := ERROR.search(said):  # of some kernel, without which the others are no step
        return Step(arm, "error", f"ncu: {broken[1]}")
    cost = converted(found.get("cost", {}), Cost, "gpulift-bench --profile", "cost")
    return Step(arm, cost=cost, counted=counted_in(said))


def counted_in(said: str) -> Counted | None:
    """Sums over the kernels of ncu's CSV, amid whose lines it says other things; None where there
    is no kernel. Raises GpuliftError for what cannot be read."""
    lines = [line for line in said.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows:
        return None
    units, *kernels = rows  # the line below the headings
    for metric, unit in UNITS.items():
        if units.get(metric) != unit:
            raise GpuliftError(f"ncu told {metric} in {units.get(metric)!r}, not in {unit}", FAILED)
    if not kernels:
        return None

    def total(*metrics: str) -> float:
        return sum(_number(kernel, metric) for kernel in kernels for metric in metrics)

    sectors, time_ns = total(SECTORS), total(TIME)
    busy_ns = sum(_number(one, BUSY_TENSOR) / 100 * _number(one, TIME) for one in kernels)
    return Counted(
        kernels=len(kernels),
        dram_bytes=total(*DRAM),
        l2_hits=total(HITS) / sectors if sectors else None,
        tensor_busy=busy_ns / time_ns if time_ns else 0.0,
        tensor_flops=total(*OPERATIONS) if OPERATIONS[0] in units else None,
    )


def _number(kernel: Mapping[str, str], metric: str) -> float:
    """ncu puts commas between thousands, and `n/a` where it could not count."""
    try:
        return float(kernel[metric].replace(",", ""))
    except (KeyError, ValueError):
        raise GpuliftError(f"ncu counted no {metric}: {kernel.get(metric)}", FAILED) from None
