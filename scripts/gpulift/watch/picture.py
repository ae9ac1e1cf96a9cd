"""The whole job as one SVG: a panel for each kind of quantity, time along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpulift.ground.whole import write_whole
from gpulift.watch.samples import Sample, Values

WIDTH_IN = 8.0
PANEL_IN = 1.5
AROUND_IN = 0.6
GIBI = float(1 << 30)
MEGA = 1e6
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gpulift-watch",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9.0,
}


@dataclass(frozen=True)
class Panel:
    """Quantities that share an axis: their names, what they are called, and the axis' unit."""

    title: str
    quantities: tuple[tuple[str, str], ...]
    unit: float = 1.0
    top: float | None = None


JOB_PANELS = (
    Panel("cores", (("cpu_cores", "busy"), ("cpu_wait_cores", "waited for"))),
    Panel("first thread asleep, %", (("first_thread_asleep", "asleep"),), 0.01, 100),
    Panel("memory, GiB", (("memory_bytes", "resident"),), GIBI),
    Panel(
        "bytes, MB/s",
        (
            ("disk_read_bytes_per_s", "disk read"),
            ("disk_written_bytes_per_s", "disk written"),
            ("file_read_bytes_per_s", "files read, with the cache"),
            ("network_received_bytes_per_s", "network received"),
            ("network_sent_bytes_per_s", "network sent"),
        ),
        MEGA,
    ),
)
GPU_PANELS = (
    Panel(
        "activity, %",
        (
            ("sm_activity", "SM"),
            ("tensor_activity", "tensor"),
            ("dram_activity", "DRAM"),
            ("utilisation", "utilisation"),
        ),
        0.01,
        100,
    ),
    Panel("memory, GiB", (("memory_used_bytes", "used"),), GIBI),
    Panel("power, W", (("power_w", "power"),)),
    Panel("clock, MHz", (("sm_clock_hz", "SM"),), MEGA),
    Panel(
        "links, MB/s",
        (
            ("pcie_received_bytes_per_s", "PCIe received"),
            ("pcie_sent_bytes_per_s", "PCIe sent"),
            ("nvlink_received_bytes_per_s", "NVLink received"),
            ("nvlink_sent_bytes_per_s", "NVLink sent"),
        ),
        MEGA,
    ),
)


def write(samples: Sequence[Sample], names: Sequence[str], file: Path) -> None:
    """Draws what is known; there is a sample at least."""
    with matplotlib.rc_context(STYLE):
        drawn = figure(samples, names)
        about = {"Date": None, "Creator": None, "Title": "What a job did, over time"}
        content = BytesIO()
        drawn.savefig(content, format="svg", metadata=about)
    write_whole(content.getvalue(), file)


def figure(samples: Sequence[Sample], names: Sequence[str]) -> Figure:
    """The panels of the job, then those of each GPU, without those of which nothing is known."""
    times_s = [one.time_s for one in samples]
    rows = [("", panel, [one.job for one in samples]) for panel in JOB_PANELS]
    for index, name in enumerate(names):
        gpu = [one.gpus[index] for one in samples]
        rows += [(f"{name}: ", panel, gpu) for panel in GPU_PANELS]
    known = [row for row in rows if any(_known(row[1], values) for values in row[2])]
    made = Figure(figsize=(WIDTH_IN, PANEL_IN * len(known) + AROUND_IN), layout="constrained")
    every = made.subplots(len(known), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (owner, panel, values) in zip(every, known, strict=True):
        _draw(axes, panel, times_s, values)
        axes.set_title(f"{owner}{panel.title}", loc="left", fontsize="medium")
    every[-1].set_xlabel("s since the watch began")
    return made


def _known(panel: Panel, values: Values) -> bool:
    return any(name in values for name, _ in panel.quantities)


def _draw(axes: Axes, panel: Panel, times_s: Sequence[float], values: Sequence[Values]) -> None:
    for (name, label), colour in zip(panel.quantities, COLOURS, strict=False):
        if any(name in one for one in values):
            drawn = [one.get(name, float("nan")) / panel.unit for one in values]
            axes.plot(times_s, drawn, label=label, color=colour, linewidth=1.2, marker=".")
    axes.set_ylim(bottom=0, top=panel.top)
    axes.grid(axis="y", linewidth=0.4)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
