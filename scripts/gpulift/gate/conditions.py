"""What a gate of a command says of the machine that it ran on."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from pathlib import Path

from gpulift.ground.errors import GpuliftError
from gpulift.ground.programs import answered, text_of
from gpulift.ground.text import visible
from gpulift.records.model import Context

CPU_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
MODEL_FILE = Path("/proc/cpuinfo")
FACTS = ("card", "driver", "clocks", "power limit")
ASKED = "--query-gpu=name,driver_version,clocks.max.sm,power.limit"
LIMIT_S = 20.0
NONE = "none"


def processor() -> str:
    """Its model, and how many cores of it there are."""
    try:
        model = CPU_MODEL.search(MODEL_FILE.read_text("utf-8", "replace"))
    except OSError:
        model = None
    return f"{model[1] if model else 'this machine'}, {os.cpu_count()} cores"


def of_command(gpu: int | None) -> dict[str, str]:
    """Processor, kernel, and what the driver says of the card, or of all where none is named."""
    found = {"processor": processor(), "kernel": platform.release()}
    which = [] if gpu is None else [f"--id={gpu}"]
    try:
        said = answered(["nvidia-smi", ASKED, "--format=csv,noheader", *which], LIMIT_S, "GPU")
    except GpuliftError:
        return {**found, "card": NONE}
    cards = [line.split(", ") for line in text_of(said.stdout).splitlines()]
    if said.returncode != 0 or not cards or any(len(card) != len(FACTS) for card in cards):
        return {**found, "card": NONE}
    for fact, values in zip(FACTS, zip(*cards, strict=True), strict=True):
        counts = Counter(map(visible, values))
        found[fact] = ", ".join(f"{many} x {one}" for one, many in counts.items())
    return found


def of_techniques(context: Context) -> dict[str, str]:
    """The same as gpulift-bench describes the machine, and what it was built with."""
    host, gpu = context.host, context.gpu
    facts = gpu.facts if gpu else {}
    libraries = {"cuda": context.cuda_runtime, **context.versions}
    return {
        "processor": host.name,
        "kernel": str(host.facts.get("kernel", "")),
        "card": gpu.name if gpu else NONE,
        "driver": context.driver,
        "clocks": f"{facts.get('max_sm_clock_hz', 0) / 1e6:.0f} MHz" if gpu else NONE,
        "power limit": f"{gpu.power_limit_w or 0:.0f} W" if gpu else NONE,
        "software": ", ".join(f"{name} {version}" for name, version in libraries.items()),
    }
