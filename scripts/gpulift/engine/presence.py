"""Whether the GPUs that a machine has can be used: a card that is lost would else be one less to
judge, and a machine without a driver a processor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpulift.engine.doctor import DRIVER_REMEDY
from gpulift.records.model import Context

DEVICES = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
DISPLAY = "0x03"  # of a class: a GPU, and not the audio or the USB of its board
VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_on_bus(devices: Path = DEVICES) -> int:
    """NVIDIA's by PCI, whether or not there is a driver; a container sees those of its host."""
    return sum(
        _text(device / "vendor") == NVIDIA and _text(device / "class").startswith(DISPLAY)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def why_lost(
    context: Context,
    usable: int,
    expected: int | None,
    on_bus: int,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, str] | None:
    """Why of GPUs too few are usable, and the remedy: fewer than were expected, or none where the
    bus has some and the user did not hide them. None where neither says that there should be."""
    remedy = context.gpu_remedy or DRIVER_REMEDY
    if expected is not None and usable < expected:
        why = f": {context.gpu_missing}" if context.gpu_missing else ""
        return f"{usable} of {expected} expected GPUs can be used{why}", remedy
    hidden = environment.get(VISIBLE) in ("", "-1", "NoDevFiles")
    if not usable and on_bus and not hidden:
        seen = f"{on_bus} on the bus, and none can be used: {context.gpu_missing}"
        return seen, f"{remedy}; to judge the processor alone, set {VISIBLE}="
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
