"""Peaks computed from what the driver says of a card, and what share of them a sound card reaches.

The figures and their sources are in core/registers/peaks.json; roofs.json says which of them limits
a roof. The plausibility bound of core/host/record/plausibility.cpp computes the same, but leaves
out that GeForce cards do half of it in floating-point types with FP32 accumulation.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpulift.ground import registers
from gpulift.records.decode import converted
from gpulift.records.model import Gpu
from gpulift.records.values import Integer, Maybe, Number

# Share of the peak at or above which a card passes; below half of it, it fails. The shares leave
# room below what sound cards were seen to reach. On the H200 of results/ (peaks at its highest
# clock of 1.98 GHz), with public figures of others beside it:
# - device_memory: 97 to 98 %. GB200 90 % (STREAM triad in a log of microsoft/superbenchmark).
# - host_link one way: 88 %. H200 88 % and 87 % (nvbandwidth, in stas00/ml-engineering), A100 on
#   PCIe 4 80 % (NVIDIA/nvbandwidth#42). Both ways: 81 %.
# - gpu_link: of two H100 of results/ a copy reaches 83 % of what the driver says of 18 links
#   (1 GiB, 398 of 478 GB/s). gpu_link/host: 59 %, a copy that the driver stages.
# - gemm, burst: 71 % (fp8) to 81 % (tf32). Mean of 100 products after 50, in
#   stas00/ml-engineering: H100 bf16 74 %; A100 bf16 87 %, B200 78 % and 76 % of the datasheet.
# - gemm, sustained, at the power limit: 60 % (fp8) to 76 % (fp32). B200 bf16 63 % of the datasheet
#   (same source).
SHARES = {
    ("device_memory", "burst"): 0.80,
    ("device_memory", "sustained"): 0.80,
    ("host_link/h2d", "burst"): 0.75,
    ("host_link/d2h", "burst"): 0.75,
    ("host_link/both", "burst"): 0.65,
    ("gpu_link", "burst"): 0.70,
    ("gpu_link/host", "burst"): 0.40,
    ("gemm", "burst"): 0.65,
    ("gemm", "sustained"): 0.50,
}


@dataclass(frozen=True)
class Facts:
    """What the driver says of a card's limits."""

    architecture: Maybe[Integer] = None
    multiprocessors: Maybe[Number] = None
    max_sm_clock_hz: Maybe[Number] = None
    max_memory_clock_hz: Maybe[Number] = None
    memory_bus_bits: Maybe[Number] = None
    pcie_max_generation: Maybe[Integer] = None
    pcie_max_width: Maybe[Integer] = None
    nvlink_links: Maybe[Number] = None
    nvlink_link_bytes_per_s: Maybe[Number] = None


def facts_of(gpu: Gpu) -> Facts:
    """Of its facts these. Raises RecordError where one has the wrong type."""
    return converted(dict(gpu.facts), Facts, gpu.name, "gpu")


def computed_peak(roof: str, gpu: Gpu) -> float | None:
    """Bytes/s or operations/s that the card cannot exceed; None where the driver says too little.

    Raises RecordError where a fact has the wrong type.
    """
    facts = facts_of(gpu)
    limit = registers.roof(roof).get("limit", {})
    by = limit.get("by")
    if by == "memory":
        return _memory(facts)
    if by == "pcie":
        return _link(limit["directions"], facts)
    if by == "nvlink":
        return _nvlink(facts)
    return _operations(limit["type"], gpu.name, facts) if by == "operations" else None


def expected_share(roof: str, regime: str) -> float | None:
    """The share of its peak at which a roof passes; None where no share is known."""
    exact = SHARES.get((roof, regime))
    return exact if exact is not None else SHARES.get((roof.partition("/")[0], regime))


def _memory(facts: Facts) -> float | None:
    clock, bits = facts.max_memory_clock_hz, facts.memory_bus_bits
    per_clock: float = registers.register("peaks")["memory"]["transfers_per_clock"]
    return per_clock * clock * bits / 8 if clock and bits else None


def _link(directions: int, facts: Facts) -> float | None:
    generation = str(facts.pcie_max_generation)
    lane = registers.register("peaks")["pcie"]["generations"].get(generation)
    lanes = facts.pcie_max_width
    if lane is None or not lanes:
        return None
    bytes_per_s: float = lane["transfers_per_s"] * lane["payload"] / lane["of"] / 8
    return bytes_per_s * lanes * directions


def _nvlink(facts: Facts) -> float | None:
    links = facts.nvlink_links
    each = facts.nvlink_link_bytes_per_s
    return links * each if links and each else None


def _operations(number_type: str, name: str, facts: Facts) -> float | None:
    peaks = registers.register("peaks")
    architecture = peaks["operations"].get(str(facts.architecture), {})
    per_clock: float | None = architecture.get("per_clock", {}).get(number_type)
    count, clock = facts.multiprocessors, facts.max_sm_clock_hz
    if per_clock is None or not count or not clock:
        return None
    halved = "geforce" in name.lower() and number_type in peaks["halved_on_geforce"]["types"]
    return per_clock * count * clock / (2 if halved else 1)
