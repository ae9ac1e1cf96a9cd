"""Peaks computed from what the driver says of a card, and what share of them a sound card reaches.

The formulas are those of the plausibility bound in core/host/plausibility.cpp:

- device_memory: 2 transfers per clock x highest memory clock x bus width / 8.
- host_link: bytes/s of a lane after line coding (PCI Express base specifications: 8b/10b up to
  generation 2, 128b/130b up to 5, FLIT mode with 242 of 256 bytes in 6) x lanes of the widest link;
  twice that for both directions at once.
- gpu_link: bytes/s of an NVLink each way x links in use. gpu_link/host, the way through the host:
  that of host_link one way.
- gemm: operations per clock and multiprocessor (datasheet dense peak / (multiprocessors x boost
  clock): A100 312 TFLOP/s fp16 at 108 x 1.41 GHz, H100 989.5 at 132 x 1.83; the whitepapers of
  Turing, Ampere, Ada, Hopper and RTX Blackwell) x multiprocessors x highest SM clock. GeForce cards
  do half of it for floating-point types with FP32 accumulation, which is what training uses (NVIDIA
  Ada GPU architecture whitepaper, appendix A: RTX 4090 fp16 330.3 TFLOP/s with FP16 accumulation,
  165.2 with FP32; the Turing and GA102 whitepapers alike). The bound from above leaves that out.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpulift.records.fields import Fields
from gpulift.records.model import Gpu

LANE_BYTES_PER_S = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}
OPERATIONS_PER_CLOCK: Mapping[int, Mapping[str, float]] = {
    75: {"fp32": 128, "fp16": 1024, "int8": 2048},
    80: {"fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    86: {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048},
    89: {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
    90: {"fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    120: {"fp32": 256, "tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048},
}
HALVED_ON_GEFORCE = ("tf32", "fp16", "bf16", "fp8")

# Share of the peak at or above which a card passes; below half of it, it fails. The shares leave
# room below what sound cards were seen to reach. On the H200 of results/ (peaks at its highest
# clock of 1.98 GHz), with public figures of others beside it:
# - device_memory: 97 to 98 %. GB200 90 % (STREAM triad in a log of microsoft/superbenchmark).
# - host_link one way: 88 %. H200 88 % and 87 % (nvbandwidth, in stas00/ml-engineering), A100 on
#   PCIe 4 80 % (NVIDIA/nvbandwidth#42). Both ways: 81 %.
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
    ("gemm", "burst"): 0.65,
    ("gemm", "sustained"): 0.50,
}


def computed_peak(roof: str, gpu: Gpu) -> float | None:
    """Bytes/s or operations/s that the card cannot exceed; None where the driver says too little.

    Raises RecordError where a fact has the wrong type.
    """
    facts = Fields(dict(gpu.facts), gpu.name, "gpu")
    family, _, detail = roof.partition("/")
    if family == "device_memory":
        return _memory(facts)
    if family == "host_link":
        return _link(detail, facts)
    if roof == "gpu_link":
        return _nvlink(facts)
    if roof == "gpu_link/host":
        return _link("h2d", facts)
    if family == "gemm":
        return _gemm(detail, gpu.name, facts)
    return None


def expected_share(roof: str, regime: str) -> float | None:
    """The share of its peak at which a roof passes; None where no share is known."""
    exact = SHARES.get((roof, regime))
    return exact if exact is not None else SHARES.get((roof.partition("/")[0], regime))


def _memory(facts: Fields) -> float | None:
    clock, bits = facts.maybe_number("max_memory_clock_hz"), facts.maybe_number("memory_bus_bits")
    return 2 * clock * bits / 8 if clock and bits else None


def _link(direction: str, facts: Fields) -> float | None:
    lane = LANE_BYTES_PER_S.get(facts.maybe_whole("pcie_max_generation") or 0)
    lanes = facts.maybe_number("pcie_max_width")
    if lane is None or not lanes:
        return None
    return lane * lanes * (2 if direction == "both" else 1)


def _nvlink(facts: Fields) -> float | None:
    links = facts.maybe_number("nvlink_links")
    each = facts.maybe_number("nvlink_link_bytes_per_s")
    return links * each if links and each else None


def _gemm(dtype: str, name: str, facts: Fields) -> float | None:
    per_clock = OPERATIONS_PER_CLOCK.get(facts.maybe_whole("architecture") or 0, {}).get(dtype)
    count, clock = facts.maybe_number("multiprocessors"), facts.maybe_number("max_sm_clock_hz")
    if per_clock is None or not count or not clock:
        return None
    halved = "geforce" in name.lower() and dtype in HALVED_ON_GEFORCE
    return per_clock * count * clock / (2 if halved else 1)
