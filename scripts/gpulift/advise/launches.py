"""Numbers of one launch, which is one process, and of several. Logs are natural ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Literal, TypeAlias

import numpy as np
import scipy

from gpulift.advise.evidence import BASELINE, Process, Window
from gpulift.ground.estimate import Estimate
from gpulift.verdicts import stats

MemoryOf: TypeAlias = Literal["device_bytes", "host_bytes"]
NO_BLOCKS = np.empty(0)
MOST_INPUT = 0.99  # of a step
TOLD_SHARE, TOLD_BYTES = 0.01, 16 << 20  # smaller differences of memory are not told


def live_s(process: Process) -> float | None:
    """The mean live step in seconds; None without one. A loader of several processes delivers in
    bursts: the median step would be one that does not wait."""
    return fmean(process.steps_s) if process.steps_s else None


def replayed_s(process: Process, arm: str) -> float | None:
    """The median step of an arm on cached batches in seconds; None without a window."""
    windows = _windows(process, arm)
    return stats.middle([_step_s(window) for window in windows]) if windows else None


def rest_log(process: Process) -> float | None:
    """Log of what is left of a live step whose batch is there; None where nothing tells it.

    On a processor that is all but what it spends in the loader. A GPU's work may hide that: steps
    on cached batches tell, but of batches of very different sizes only a few are cached. Input
    takes no less than nothing, and no more than is spent in the loader.
    """
    live, replayed = live_s(process), replayed_s(process, BASELINE)
    if live is None or replayed is None:
        return None
    waits_s = [wait_s for span in process.live for wait_s in span.waits_s]
    if not waits_s:
        return math.log(replayed / live)
    most = min(sum(waits_s) / sum(process.steps_s), MOST_INPUT)
    return math.log(1 - (min(max(1 - replayed / live, 0), most) if process.on_gpu else most))


def starts_share(process: Process) -> float | None:
    """The share of an epoch that is over until workers that start anew give its first batch; None
    where none do, or an epoch has no known end."""
    facts, step_s = process.facts, live_s(process)
    loader = facts.loader if facts else None
    if facts is None or step_s is None or not (loader and loader.workers and loader.batches):
        return None
    epoch_s = loader.batches / facts.batches_per_step * step_s
    return loader.starts_s / (loader.starts_s + epoch_s)


def issued_share(process: Process) -> float | None:
    """The share of a step at whose end the host had issued all of it; None without a window."""
    windows = _windows(process, BASELINE)
    return median(one.issued_s / one.seconds for one in windows) if windows else None


def gain_log(process: Process, arm: str) -> float | None:
    """Log of what an arm gains over the step as it is; None unless a block has both."""
    sides = [_windows(process, name) for name in (BASELINE, arm)]
    if not all(sides):
        return None
    blocks = [_turns(process, block, arm) for block in sorted({w.block for w in process.windows})]
    times = {side: np.array([_step_s(one) for one in sides[side]]) for side in (0, 1)}
    values = stats.block_values(blocks, 1, 0, times)
    return -median(values.tolist()) if values.size else None


def _turns(process: Process, block: int, arm: str) -> list[int]:
    names = (one.arm for one in process.windows if one.block == block)
    return [int(name == arm) for name in names if name in (arm, BASELINE)]


def paired(turns: Sequence[Process], setting: str) -> list[tuple[Process, list[Process]]]:
    """Each process of the setting that took live steps, with those as it is of its round."""
    plain = [one for one in turns if one.setting == BASELINE and one.steps_s]
    pairs = [
        (own, [base for base in plain if base.turn == own.turn])
        for own in turns
        if own.setting == setting and own.steps_s
    ]
    return [(own, bases) for own, bases in pairs if bases]


def paired_gain_log(own: Process, bases: Sequence[Process]) -> float:
    """Log of what a step of a process with a setting gains over those of its round."""
    return fmean(_live_log(base) for base in bases) - _live_log(own)


def items_log(own: Process, bases: Sequence[Process]) -> float | None:
    """Log of how many times as many items a step has; None where the loaders do not tell."""
    counts = [_items(one) for one in (own, bases[0])]
    return math.log(counts[0] / counts[1]) if counts[0] and counts[1] else None


def _live_log(process: Process) -> float:
    return math.log(fmean(process.steps_s))


def _items(process: Process) -> float | None:
    """Of a step; None where the loader does not tell."""
    facts = process.facts
    if facts is None or facts.loader is None or not facts.loader.batch:
        return None
    return facts.loader.batch * facts.batches_per_step


def over_launches(logs: Sequence[float]) -> Estimate | None:
    """The quantity of whose logs there is one for each launch. One launch has no interval."""
    return stats.over_launches(logs, NO_BLOCKS) if logs else None


def over_values(values: Sequence[float | None]) -> Estimate | None:
    """The same of the quantity in each launch that knows it."""
    return over_launches([math.log(value) for value in values if value is not None])


def p_value(logs: Sequence[float]) -> float:
    """How often launches that differ as these would be as far from 0: Student's t, two-sided.

    One launch tells nothing: 1.
    """
    count = len(logs)
    if count < 2 or not any(logs):
        return 1.0
    spread = float(np.std(logs, ddof=1))
    if spread == 0:
        return 0.0
    quantile = abs(fmean(logs)) * math.sqrt(count) / spread
    return 2 * float(scipy.special.stdtr(count - 1, -quantile))


def peak_difference(replays: Sequence[Process], arm: str) -> int | None:
    """Bytes that an arm takes more on the device, where that is worth telling."""
    peaks = [[w.peak_bytes for one in replays for w in _windows(one, a)] for a in (arm, BASELINE)]
    return _told(*peaks)


def memory_difference(
    pairs: Sequence[tuple[Process, Sequence[Process]]], of: MemoryOf
) -> int | None:
    """The same of a setting, of one of the two that its processes tell."""
    sides = [one for one, _ in pairs], [base for _, bases in pairs for base in bases]
    told = [[getattr(one.memory, of) for one in side if one.memory] for side in sides]
    return _told(*told)


def _told(own: Sequence[int], base: Sequence[int]) -> int | None:
    if not own or not base:
        return None
    difference = median(own) - median(base)
    told = abs(difference) > max(TOLD_BYTES, TOLD_SHARE * median(base))
    return round(difference) if told else None


def _windows(process: Process, arm: str) -> list[Window]:
    return [window for window in process.windows if window.arm == arm]


def _step_s(window: Window) -> float:
    return window.seconds / window.steps
