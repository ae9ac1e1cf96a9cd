"""Whether the instrument tells the truth on this machine: it measures what is known beforehand.

What is known are ratios and times of the processor, so that nothing depends on how fast the machine
is. What varies too much for a word is inconclusive, never a pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.table import Table

from gpulift.analysis.arms import cpu_per_step
from gpulift.analysis.summary import Summary
from gpulift.commands import bench, shared
from gpulift.engine import machine, measuring, runs
from gpulift.engine.measuring import Say
from gpulift.engine.quick import Row
from gpulift.ground import terminal, text
from gpulift.ground.errors import FAILED, INCONCLUSIVE, INSTRUMENT_BROKEN, OK, GpuliftError
from gpulift.ground.estimate import CONFIDENCE
from gpulift.ground.whole import temporary_folder
from gpulift.records.files import record_files
from gpulift.records.model import Arm, Context, Record
from gpulift.records.read import read_file, read_results
from gpulift.verdicts import stats
from gpulift.verdicts.decision import paired, percent
from gpulift.verdicts.duets import BASE, HEAD

HOLDS = "holds"
WRONG = "WRONG"
OPEN = "inconclusive"
MS = "ms"

ON_GPU: Row = ("ceiling/device_memory", f"bytes:{2 * 1024**3}", "read")
ON_HOST: Row = ("instrument/busy_loop", "", "once")
MODULES = {ON_GPU: "modules", ON_HOST: "instrument-modules"}  # folders of the build
SIZES = (0.0, 0.01, 1.0)  # of what is planted; the last is a spin as long as the work itself
LOOKS = (8, 24)  # launches; multiples of four, over which places and orders even out
ARM_TIME_S = 0.1
SHOWN_BIAS = 0.0025  # as in a gate: a smaller one is none, however certain
NEAR = 0.005  # of what is known: half of the planted 1 %, so that it cannot be taken for nothing
CHANCE = 1e-4  # of calling a true instrument wrong, at each look
SCRIPT = Path("core") / "instrument" / "known_time.py"
ARMS = ("once", "twice")
KNOWN = "known_cpu_s"
SCRIPT_LAUNCHES = 4
SCRIPT_ARM_TIME_S = 0.2


@dataclass(frozen=True)
class Check:
    """One thing that is known, and whether it was measured."""

    what: str
    state: str
    evidence: str


@dataclass(frozen=True)
class Measured:
    """What launches measured, and what they should have."""

    measured: float
    known: float

    @property
    def error(self) -> float:
        """On the log scale."""
        return math.log(self.measured / self.known)


def exit_code(checks: Sequence[Check]) -> int:
    """Of all checks: the worst."""
    states = {check.state for check in checks}
    if WRONG in states:
        return INSTRUMENT_BROKEN
    return INCONCLUSIVE if OPEN in states else OK


def table(checks: Sequence[Check]) -> Table:
    """A check per row."""
    made = terminal.titled("", columns=("known", "", "measured"))
    for check in checks:
        made.add_row(check.what, check.state, check.evidence)
    return made


def judge(what: str, unit: str, launches: Sequence[Measured]) -> Check:
    """Holds the launches against what is known: WRONG if they show a bias, inconclusive if they
    vary too much to be near what is known."""
    off = paired([launch.error for launch in launches])
    if off is None:
        return Check(what, OPEN, f"{len(launches)} launches say nothing of how they vary")
    known = math.exp(fmean(math.log(launch.known) for launch in launches))
    seen = (off.log_mean, *off.interval(CONFIDENCE))
    value, low, high = (_text(known * math.exp(log), unit) for log in seen)
    evidence = f"{value} [{low}, {high}] in {len(launches)} launches, known {_text(known, unit)}"
    if min(off.p_slower(SHOWN_BIAS), off.p_faster(SHOWN_BIAS)) < CHANCE:
        return Check(what, WRONG, evidence)
    if off.within(NEAR):
        return Check(what, HOLDS, evidence)
    return Check(what, OPEN, f"{evidence}: varies too much, is the machine busy?")


def _text(value: float, unit: str) -> str:
    """`1.00012` or `5.003 ms`."""
    return f"{1e3 * value:.4g} ms" if unit == MS else f"{value:.5f}"


def examine(context: Context, techniques: Sequence[machine.TechniqueInfo], say: Say) -> list[Check]:
    """All checks, on the GPU where there is one."""
    row = row_of(context, techniques)
    with temporary_folder() as folder:
        checks = [duet(row, size, folder / f"planted-{size:g}", say) for size in SIZES]
        return [*checks, *known_times(folder, context, say)]


def row_of(context: Context, techniques: Sequence[machine.TechniqueInfo]) -> Row:
    """What the duets measure."""
    on_gpu = (info for info in techniques if info.id == ON_GPU[0] and not info.not_here(context))
    return ON_GPU if any(on_gpu) else ON_HOST


def duet(row: Row, size: float, folder: Path, say: Say) -> Check:
    """The build against a copy of itself that is slower by a known part; it takes more launches
    until they say something."""
    what = {0.0: "unchanged code"}.get(size, f"{percent(size)} planted")
    what = f"{what} in {'/'.join(filter(None, row))}"
    launches: list[Measured] = []
    begun = 0
    for look in LOOKS:
        say(f"{what}: {look} launches")
        launches += _launches(row, size, folder / str(look), begun, look - begun)
        begun = look
        check = judge(what, "", launches)
        if check.state != OPEN:
            break
    return check


def _launches(row: Row, size: float, folder: Path, first: int, count: int) -> list[Measured]:
    engine = machine.find_bench()
    modules = str(engine.parent / MODULES[row])
    folder.mkdir(parents=True)
    measuring.write_rows(folder, [row])
    flags = ["--head", modules, "--base", modules, "--rows", str(folder / runs.ROWS_FILE)]
    flags += ["--records", str(folder), "--arm-time", str(ARM_TIME_S)]
    flags += ["--launches", str(count), "--seed", str(1 + first)]
    code = machine.measure(engine, flags + ([f"--plant={size}"] if size else []))
    records = [record for file in record_files(folder) for record in read_file(file).records]
    if code != OK or len(records) < count:
        why = next((record.reason for record in records if record.reason), f"exit code {code}")
        raise GpuliftError(f"{'/'.join(row)} could not be measured: {why}", FAILED)
    launches = (_of_launch(record, row[2], size) for record in records)
    return [launch for launch in launches if launch is not None]


def _of_launch(record: Record, arm: str, size: float) -> Measured | None:
    """None where noise kept the extra work from being told apart, so that its size is not known."""
    if size and "planted" not in record.notes:
        return None
    pair = stats.pair_ratio([record], HEAD + arm, BASE + arm)
    if pair is None:
        raise GpuliftError(f"a launch of {record.technique} has no windows", FAILED)
    # What the extra work took by its own count, cycles of the GPU's clock or time of the host's.
    return Measured(pair.ratio.value, 1 + (float(record.notes["planted"]) if size else 0.0))


def known_times(folder: Path, context: Context, say: Say) -> list[Check]:
    """One technique from its script to the report, of which times and ratio are known."""
    with bench.prepared(machine.checkout_root() / SCRIPT) as modules:
        options = measuring.Options(
            launches=SCRIPT_LAUNCHES, arm_time=SCRIPT_ARM_TIME_S, modules=modules
        )
        ended = measuring.run(options, folder, folder / "known_time", context, say)
    if ended.exit_code != OK:
        raise GpuliftError(f"{SCRIPT} could not be measured: exit code {ended.exit_code}", FAILED)
    (run,) = read_results([ended.folder])
    return [
        *(judge(f"CPU time of {arm}", MS, [_cpu(one, arm) for one in run.records]) for arm in ARMS),
        judge("twice against once", "", [_ratio(one) for one in run.records]),
        _report(shared.summary_of(run), ended.folder),
    ]


def _cpu(record: Record, name: str) -> Measured:
    arm = _arm(record, name)
    used_s = cpu_per_step(record, arm)
    if used_s is None:
        raise GpuliftError(f"{record.technique}: no CPU time of {name} was counted", FAILED)
    return Measured(used_s, arm.metrics[KNOWN])


def _ratio(record: Record) -> Measured:
    once, twice = (_arm(record, name) for name in ARMS)
    pair = stats.pair_ratio([record], twice.name, once.name)
    if pair is None:
        raise GpuliftError(f"{record.technique}: an arm has no windows", FAILED)
    return Measured(pair.ratio.value, twice.metrics[KNOWN] / once.metrics[KNOWN])


def _arm(record: Record, name: str) -> Arm:
    arm = record.arm(name)
    if arm is None or KNOWN not in arm.metrics:
        raise GpuliftError(f"{record.technique}: no launch without the arm {name}", FAILED)
    return arm


def _report(summary: Summary, folder: Path) -> Check:
    """The page has to have the technique and its ratio, as the summary says it."""
    from gpulift.report import bench_page  # which takes a second

    written = bench_page.write(summary, folder / "report").read_text(encoding="utf-8")
    page = re.sub("<[^>]*>", "", written)
    wanted = [summary.run.records[0].technique, *(text.speedup(w.speedup) for w in summary.worths)]
    missing = [words for words in wanted if words not in page]
    if missing:
        return Check("the report", WRONG, f"lacks {', '.join(missing)}")
    return Check("the report", HOLDS, ", ".join(wanted))
