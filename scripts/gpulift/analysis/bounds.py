"""What sets the pace of an arm's steps, from the windows of its records alone.

A ratio of two arms that wait for the host is one of hosts, and of two that sleep one of our own
constants, however it is called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpulift.analysis.arms import LAUNCHES
from gpulift.records.model import IMPORT, Arm, Record
from gpulift.verdicts import stats

HOST, DEVICE, LINK = "host", "device", "link"
DISK, SLEEP, PROCESSOR = "disk", "sleep", "processor"
ROOFS = {"host_link": LINK, "gpu_link": LINK, "storage": DISK}  # by the first part of a roof's name
HOST_SHARE = 0.85  # of the device's time: who issues for so long is what the device waits for
# Or who waits for it: a stream takes some 1024 launches, and then a call returns when one is done.
# As the host ends issuing a step on an H100 or H200, 607 and more are left of a full queue, 273 of
# GPT-2's 840 where there was none.
FULL_QUEUE = 500
COUNTED_ONCE = 15  # minor version of the schema since which a run's first launch alone does
MODEL = "model"  # an axis of the cases, or a note: what a step trains
STEP, EMULATED = "step", "emulated"  # a note, and how any begins where something was not real
COMPUTED = "emulated: calls"  # that takes a processor's time, and does not sleep
SLEEPS = "emulated: it sleeps"


@dataclass(frozen=True)
class Bound:
    """What sets an arm's pace; no kind where its records do not tell."""

    kind: str = ""
    enqueue_share: float | None = None  # issuing a window over its time on the device
    launches: float | None = None  # of kernels, a step

    @property
    def share(self) -> str:
        """`0.98, 768 launches a step`."""
        counted = f", {self.launches:.0f} launches a step" if self.launches else ""
        return f"{self.enqueue_share or 0.0:.2f}{counted}"

    @property
    def shown(self) -> str:
        """`host 0.98, 768 launches a step`, of all others the kind alone."""
        return f"{HOST} {self.share}" if self.kind == HOST else self.kind


def shown(bounds: Iterable[Bound]) -> str:
    """`device / host 0.98, 768 launches a step`; one where all are alike."""
    return " / ".join(dict.fromkeys(one.shown or "not told" for one in bounds))


def host_bound(bounds: Mapping[str, Bound]) -> str:
    """`host-bound: eager 0.98, 768 launches a step`, by arm; empty where none waits for it."""
    waiting = [f"{arm} {one.share}" for arm, one in bounds.items() if one.kind == HOST]
    return f"host-bound: {'; '.join(waiting)}" if waiting else ""


def bound_of(records: Sequence[Record], name: str) -> Bound:
    """Of the arm in these launches of one case.

    `host`: in the median launch, issuing takes more than HOST_SHARE of the device's time, no hold
    kept it out of that, and it did not wait for a place in the queue. An arm that blocks in its
    calls counts as issuing meanwhile.
    """
    launches = stats.measured_arms(records, name)
    if not launches or records[0].kind == IMPORT:
        return Bound()
    counts = [one.metrics[LAUNCHES] for one in launches if LAUNCHES in one.metrics]
    counted = median(counts) if counts else None
    found = (_enqueue_share(one, counted or 0.0) for one in launches)
    shares = [one for one in found if one is not None]
    share = median(shares) if shares else None
    if share is not None and share > HOST_SHARE and counted is None and _counted_elsewhere(records):
        share = None  # a full queue may look so
    kind = _kind(records[0], launches[0], share)
    return Bound(kind, share, counted)


def _counted_elsewhere(records: Sequence[Record]) -> bool:
    """Whether another launch of the case may know how many launches its steps have."""
    return all(record.launch > 0 and record.minor >= COUNTED_ONCE for record in records)


def _kind(record: Record, arm: Arm, share: float | None) -> str:
    if sleeps(record):
        return SLEEP
    if share is not None and share > HOST_SHARE:
        return HOST
    roof = arm.cost.roof.partition("/")[0] if arm.cost else ""
    if roof in ROOFS:
        return ROOFS[roof]
    if share is not None:
        return DEVICE
    # JAX works on the device without events that tell for how long.
    return "" if any(one.peak_device_bytes for one in record.arms) else PROCESSOR


def _enqueue_share(arm: Arm, launches_per_step: float) -> float | None:
    """0 where a hold kept the host's pace out, or a full queue it; None where nothing tells the
    device's time."""
    windows = arm.windows
    if not len(windows.device_s):
        return None
    if not arm.may_wait_for_host or _launches_behind(arm, launches_per_step) > FULL_QUEUE:
        return 0.0
    pairs = zip(windows.enqueue_s, windows.device_s, strict=False)
    return median([issued / worked for issued, worked in pairs if worked > 0] or [0.0])


def _launches_behind(arm: Arm, launches_per_step: float) -> float:
    """How many the device has yet to do as the host has issued a window."""
    windows = arm.windows
    times = zip(windows.host_s, windows.enqueue_s, windows.device_s, strict=False)
    left = [(whole - issued) / worked for whole, issued, worked in times if worked > 0]
    return median(left or [0.0]) * arm.steps_per_window * launches_per_step


def sleeps(record: Record) -> bool:
    """Whether a step or a store of the case sleeps in place of working."""
    return any(
        note.startswith(EMULATED) and not note.startswith(COMPUTED)
        for note in record.notes.values()
    )


def trained_model(record: Record) -> str:
    """The model of which a whole training step was measured; empty for a building block, as what
    counts the bytes that it moves is, though they may be a model's.

    `resnet50_128` is the same model with so many images.
    """
    emulated = record.notes.get(STEP, "").startswith(EMULATED)
    if emulated or any(arm.cost and arm.cost.bytes for arm in record.arms):
        return ""
    named = str(record.case.get(MODEL) or record.notes.get(MODEL, "").partition(",")[0])
    name, _, size = named.rpartition("_")
    return name if name and size.isdecimal() else named
