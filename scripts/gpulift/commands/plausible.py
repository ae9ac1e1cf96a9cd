"""What cannot be so in the evidence of a gate, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpulift.analysis.machine.computed_peaks import computed_peak, facts_of
from gpulift.gate.evidence import BASE, COMMANDS, HEAD, SERIES, Setup, launch_folders
from gpulift.gate.metrics import WALL
from gpulift.gate.pairs import PairedLaunch, Run, read_launch
from gpulift.ground import registers
from gpulift.records.files import record_files_below
from gpulift.records.model import Arm, Record
from gpulift.records.read import read_file
from gpulift.records.values import SMALLEST

BEYOND = 1.05  # times what is possible, as the engine allows
MOST_OF_DEVICE = 1.6  # likewise: how much more of a window the host may see than the device
REPEATED = 0.5  # of the durations: a clock of nanoseconds says hardly one of them twice
LEAST_RUNS = 8
AHEAD = timedelta(days=1)


def problems(folder: Path, setup: Setup, made_at: str, ended_at: Any) -> Iterator[str]:
    """In words, the first of each kind; none where all may be so."""
    began, made = _moment(setup.origin.began_at), _moment(made_at)
    ended = _moment(ended_at) if setup.mode == COMMANDS else made
    if not began or not made or not ended:
        yield "a time in it is none"
        return
    if not began <= ended <= made <= datetime.now(timezone.utc) + AHEAD:
        yield "its times do not follow each other"
    if setup.mode == COMMANDS:
        yield from _of_runs(folder, setup, (ended - began).total_seconds() + 2)
    else:
        yield from _of_records(folder)


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _of_runs(folder: Path, setup: Setup, passed_s: float) -> Iterator[str]:
    held = [
        (one.relative_to(folder).as_posix(), stage, number, launch)
        for series in SERIES
        for stage in (1, 2)
        for number, one in enumerate(launch_folders(folder, series, stage, setup.mode))
        if (launch := read_launch(one))
    ]
    for place, stage, number, launch in held:
        if wrong := _wrong_order(launch, stage, number):
            yield f"{place}: {wrong}"
            break
    runs = [
        (place, launch, run)
        for place, _, _, launch in held
        for pair in launch.pairs
        for run in (pair.base, pair.head)
    ]
    lasted_s = sum(run.seconds for *_, run in runs) + sum(setup.first_s.values())
    if lasted_s > passed_s:
        yield f"its runs took {lasted_s:.0f} s, and {passed_s:.0f} s passed"
    measured = [run.seconds for *_, run in runs if not run.reason]
    if len(measured) >= LEAST_RUNS and len(set(measured)) < REPEATED * len(measured):
        yield f"{len(measured)} runs have {len(set(measured))} durations, as no clock tells them"
    for place, launch, run in runs:
        if _other_time(run, launch.planted or 0.0):
            told_s = run.values[WALL].value
            yield f"{place}: wall is {told_s:.3g} s of a run of {run.seconds:.3g} s"
            break


def _wrong_order(launch: PairedLaunch, stage: int, number: int) -> str:
    """Base first and head first in turns, as gate/jobs.py has them."""
    for index, pair in enumerate(launch.pairs):
        first_is_base = (number * len(launch.pairs) + index + stage) % 2
        broken = pair.base.reason or pair.head.reason  # the pairs behind it are not there
        if not broken and pair.order != ((BASE, HEAD) if first_is_base else (HEAD, BASE)):
            return f"pair {index + 1} has another order than a gate takes"
    return ""


def _other_time(run: Run, planted: float) -> bool:
    """Whether its wall time is another than its seconds; one that was planted may be more."""
    wall = run.values.get(WALL)
    if wall is None or wall.unit != "s" or wall.higher:
        return False
    return not 1 / BEYOND <= wall.value / max(run.seconds, SMALLEST) <= BEYOND * (1 + planted)


def _of_records(folder: Path) -> Iterator[str]:
    for file in (one for series in SERIES for one in record_files_below(folder / series)):
        for record in read_file(file).records:
            for arm in record.arms:
                if wrong := _wrong_arm(record, arm):
                    place = file.relative_to(folder).as_posix()
                    yield f"{place}: launch {record.launch}, {arm.name}: {wrong}"
                    return


def _wrong_arm(record: Record, arm: Arm) -> str:
    windows, gpu = arm.windows, record.context.gpu
    highest_hz = facts_of(gpu).max_sm_clock_hz if gpu else None
    if highest_hz and max(windows.sm_clock_hz, default=0.0) > BEYOND * highest_hz:
        return f"its clock is above the card's {highest_hz / 1e6:.0f} MHz"
    lead = 1 + arm.lead_in_steps / arm.steps_per_window
    both = list(zip(windows.device_s, windows.host_s, strict=False)) if arm.window_s else []
    if both and all(not host / MOST_OF_DEVICE / lead <= one <= BEYOND * host for one, host in both):
        return f"its device tells {both[0][0]:.3g} s of windows of {both[0][1]:.3g} s by the host"
    if _overlap(windows.start_s, arm.window_s):
        return "a window begins before the one ahead of it has ended"
    return _beyond_roof(record, arm)


def _overlap(starts: Sequence[float], lasted: Sequence[float]) -> bool:
    held = sorted(zip(starts, lasted, strict=False))
    return any(start + window / BEYOND > after for (start, window), (after, _) in pairwise(held))


def _beyond_roof(record: Record, arm: Arm) -> str:
    """Faster than the card's own limit of what bounds the step."""
    gpu, cost = record.context.gpu, arm.cost
    if gpu is None or cost is None or not arm.window_s:
        return ""
    peak = computed_peak(cost.roof, gpu)
    of_flops = registers.roof(cost.roof).get("unit") == "FLOP/s"
    rate = (cost.flops if of_flops else cost.bytes) / arm.step_quartiles_s[1]
    if peak and rate > BEYOND * peak:
        return f"{rate:.3g} a second of {cost.roof}, and the card can {peak:.3g}"
    return ""
