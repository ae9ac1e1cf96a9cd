"""What to do about changes that a host which varies leaves undecided, and what paces a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median, stdev

import scipy

from gpulift.advise.advice import UNDECIDED, Row, Wide
from gpulift.advise.evidence import Process
from gpulift.advise.launches import issued_share
from gpulift.ground import text

WIDE = 0.1  # of an interval that tells nothing, on either side
MOST = 1000  # launches: more are never asked for
PACED = 0.95  # of a step, that the host issues
FEWER = ("compile", "compile_all", "foreach", "fused", "batch_2x")  # launches, for as many items
TOLD = 3
LEVEL = 0.05  # that an interval leaves out


def wide(logs: Sequence[float]) -> Wide | None:
    """Of a change by logs of its gain in several launches."""
    if len(logs) < 2:
        return None
    spread, seen = stdev(logs), max(abs(fmean(logs)), WIDE)
    count = len(logs)
    while count < MOST and half_width(spread, count) > seen:
        count = math.ceil(1.1 * count)
    return Wide(math.expm1(spread), max(1, count - len(logs)))


def half_width(spread: float, count: int) -> float:
    """Of the interval of a mean."""
    return float(scipy.special.stdtrit(count - 1, 1 - LEVEL / 2)) * spread / math.sqrt(count)


def is_noisy(row: Row) -> bool:
    """Whether it is undecided for what launches differ by."""
    return row.verdict == UNDECIDED and row.wide is not None


def line(rows: Sequence[Row], launch_s: float | None) -> Iterator[str]:
    """One for all of them: those that may be worth most, and what they need."""
    noisy = [(row, row.wide) for row in rows if row.gain and row.wide and is_noisy(row)]
    if not noisy:
        return
    noisy.sort(key=lambda pair: -pair[0].gain.mid if pair[0].gain else 0)
    varies = median(found.spread for _, found in noisy)
    first, found = noisy[0]
    assert first.gain is not None, "others were left out"
    minutes = "" if launch_s is None else f", about {found.more * launch_s / 60:.0f} min"
    others = ", ".join(f"{row.label} {row.gain.mid:.2f}×" for row, _ in noisy[1:TOLD] if row.gain)
    more = len(noisy) - TOLD
    rest = f"; likewise {others}" if others else ""
    yield (
        f"this host varies by {100 * varies:.0f} % from launch to launch: {first.label} measured"
        f" {first.gain.mid:.2f}×, needs {text.counted(found.more, 'more launch', 'more launches')}"
        f"{minutes}{rest}{f' and {more} others' if more > 0 else ''}"
    )


def pace(on_gpu: Sequence[Process], rows: Sequence[Row]) -> Iterator[str]:
    """Of a step that is over when the host has issued it: how many operators that is, and what
    those changes bring that need fewer, where any is priced."""
    shares = [share for one in on_gpu if (share := issued_share(one)) is not None]
    if not shares or median(shares) < PACED:
        return
    counts = [one.facts.issued for one in on_gpu if one.facts and one.facts.issued]
    known = f", {median(counts):,.0f} operators of torch" if counts else ""
    priced = [f"{one.label} {one.gain.mid:.2f}×" for one in rows if one.gain and one.name in FEWER]
    worth = f"; what needs fewer launches: {', '.join(priced)}" if priced else ""
    issued = f"it issues {100 * median(shares):.0f} % of the step{known}{worth}"
    yield f"the host sets the pace: {issued}"
