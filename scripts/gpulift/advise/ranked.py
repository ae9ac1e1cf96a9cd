"""Of what several ranks of one process of the command said, one process of the slowest."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace as changed

from gpulift.advise.advice import UPPER_BOUND, Row, Span
from gpulift.advise.evidence import (
    BASELINE,
    Check,
    Live,
    Memory,
    Process,
    Rank,
    Window,
    read_process,
)
from gpulift.advise.launches import live_s, over_launches, replayed_s

LITTLE = 0.02  # of a step: ranks that differ by less are alike
EXCHANGE = "exchange"  # the arm in which each rank takes steps by itself
# As torchrun and what is built on it end, the first rank that failed behind all others.
LONGEST = 200  # letters of what a rank wrote last
OF_LAUNCHER = re.compile(r"[EIW]\d{4} ")
ROOT = re.compile(r"Root Cause.*?\n\s*rank\s*:\s*(\d+)\b.*?\n\s*exitcode\s*:\s*(-?\d+)", re.DOTALL)


def read_ranks(setting: str, turn: int, said: Path) -> Process:
    """As `read_process`, of the first rank's file and those of others beside it."""
    numbers = sorted(
        int(file.suffix[1:]) for file in said.parent.glob(f"{said.name}.*") if _is_rank(file)
    )
    files = [said, *(said.with_name(f"{said.name}.{number}") for number in numbers)]
    ranks = [read_process(setting, turn, file) for file in files]
    return merged(ranks) if len(ranks) > 1 else ranks[0]


def _is_rank(file: Path) -> bool:
    return file.suffix[1:].isdecimal()


def merged(ranks: Sequence[Process]) -> Process:
    """A step takes what it takes the slowest rank; what one rank could not do, none could."""
    first = ranks[0]
    lines = [one.facts.host for one in ranks if one.facts]
    most = {line: max(one.get(line, 0.0) for one in lines) for host in lines for line in host}
    ended = all(one.ended for one in ranks)
    return replace(
        first,
        facts=changed(first.facts, host=most) if first.facts else None,
        live=tuple(map(_slowest_live, zip(*(one.live for one in ranks), strict=False))),
        windows=tuple(map(_slowest, zip(*(one.windows for one in ranks), strict=False))),
        checks={
            arm: _worst([one.checks[arm] for one in ranks])
            for arm in first.checks
            if all(arm in one.checks for one in ranks)
        },
        memory=_memory([one.memory for one in ranks if one.memory]),
        failed=tuple(failed for one in ranks for failed in one.failed),
        ended=first.ended if ended else None,
        ranks=tuple(Rank(replayed_s(one, EXCHANGE), one.wait_s) for one in ranks),
    )


def _slowest(same: Sequence[Window]) -> Window:
    slowest = max(same, key=lambda window: window.seconds / window.steps)
    return changed(slowest, peak_bytes=max(window.peak_bytes for window in same))


def _slowest_live(same: Sequence[Live]) -> Live:
    """All take as long as each other: that of the rank which waits longest for its input."""
    return max(same, key=lambda span: (sum(span.waits_s), sum(span.steps_s)))


def _worst(same: Sequence[Check]) -> Check:
    """Where ranks have gradients of their own, any of them may be off."""
    known = [one.gradient for one in same if one.gradient is not None]
    return changed(
        same[0],
        bits=all(one.bits for one in same),
        gradient=max(known) if len(known) == len(same) else None,
        why=next((one.why for one in same if one.why), ""),
    )


def _memory(every: Sequence[Memory]) -> Memory | None:
    """Of the fullest device, and of the host for all of them."""
    if not every:
        return None
    most = max(one.device_bytes for one in every)
    return Memory(device_bytes=most, host_bytes=sum(one.host_bytes for one in every))


def slow_ranks(replays: Sequence[Process]) -> Iterator[Row]:
    """The rank that takes longest by itself in every launch, and the one whose input does, with
    what a step takes less if it were as fast as the next."""
    alone = [(alone_s(one), replayed_s(one, BASELINE)) for one in replays]
    label, why = "rank {}, which is slow,", "by itself it takes {} a step"
    yield from _behind("slow_rank", label, why, alone)
    waits = [([rank.wait_s for rank in one.ranks], live_s(one)) for one in replays]
    yield from _behind("slow_input", "input of rank {}", "a step waits {} for it", waits)


def _behind(
    name: str, label: str, why: str, found: Sequence[tuple[Sequence[float], float | None]]
) -> Iterator[Row]:
    """Of each launch, seconds of every rank and of a step."""
    known = [(own, step_s) for own, step_s in found if step_s is not None and len(own) > 1]
    slow = {max(range(len(own)), key=own.__getitem__) for own, _ in known}
    last = [sorted(own)[-2:] for own, _ in known]
    pairs = zip(last, known, strict=True)
    over = [(most_s - next_s) / step_s for (next_s, most_s), (_, step_s) in pairs]
    gain = over_launches([-math.log(max(1 - share, LITTLE)) for share in over])
    if gain is None or gain.low is None or len(slow) > 1:  # some rank is the last of one launch
        return
    if gain.low <= 1 or gain.value < 1 + LITTLE:
        return
    next_ms, most_ms = (f"{1e3 * fmean(side):.3g} ms" for side in zip(*last, strict=True))
    label = f"{label.format(*slow)} as fast as the next"
    why = f"{why.format(most_ms)}, the next {next_ms}"
    yield Row(name, label, UPPER_BOUND, Span.of(gain), why=why)


def alone_s(process: Process) -> list[float]:
    """Seconds that each rank takes for a step by itself; empty where one is not known."""
    own = [rank.alone_s for rank in process.ranks]
    return [one for one in own if one is not None] if None not in own else []


def died(error_output: str) -> str:
    """Which rank a launcher says that ended first, how, and the last that it wrote ahead of that;
    empty where it does not."""
    found = ROOT.search(error_output)
    if found is None:
        return ""
    rank, code = int(found[1]), int(found[2])
    how = f"signal {-code}" if code < 0 else f"code {code}"
    ahead = error_output[: max(error_output.rfind(" failed (exitcode:", 0, found.start()), 0)]
    lines = [one for one in ahead.splitlines() if one.strip() and not OF_LAUNCHER.match(one)]
    own = [one for one in lines if one.startswith(f"[rank{rank}]:")] or lines
    return f"rank {rank} ended first, with {how}" + (
        f": {own[-1].strip()[:LONGEST]}" if own else ""
    )
