"""Whether the hardware itself slowed a launch."""

from __future__ import annotations

from gpulift.ground.registers import slowdowns
from gpulift.records.model import Record
from gpulift.records.throttle import throttle_of


def slowed_by_hardware(record: Record) -> bool:
    """Whether the hardware cut the clocks in this launch, or left it without any window."""
    seen = throttle_of([record]).reasons
    return bool(slowdowns("hardware") & set(seen)) or emptied_by_hardware(record)


def emptied_by_hardware(record: Record) -> bool:
    """Whether every block was discarded because the hardware cut the clocks.

    gpulift-bench calls such a case failed; that says nothing of the code.
    """
    empty = not any(arm.window_s for arm in record.arms if arm.outcome == "ok")
    return record.discarded_blocks > 0 and empty
