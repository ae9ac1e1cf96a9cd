"""Peaks from the driver's facts."""

from __future__ import annotations

from typing import Any

import pytest

from gpulift.analysis.machine.computed_peaks import computed_peak, expected_share
from gpulift.ground.errors import RecordError
from gpulift.records.model import Gpu

H200: dict[str, Any] = {
    "architecture": 90,
    "multiprocessors": 132,
    "max_sm_clock_hz": 1.98e9,
    "max_memory_clock_hz": 3.201e9,
    "memory_bus_bits": 6016,
    "pcie_max_generation": 5,
    "pcie_max_width": 16,
    "nvlink_links": 18,
    "nvlink_link_bytes_per_s": 25e9,
}


def peak(roof: str, name: str = "NVIDIA H200", **change: Any) -> float | None:
    facts = {key: value for key, value in (H200 | change).items() if value is not None}
    return computed_peak(roof, Gpu(name, facts=facts))


def test_peaks_by_hand() -> None:
    assert peak("device_memory") == pytest.approx(2 * 3.201e9 * 6016 / 8)
    assert peak("host_link/h2d") == pytest.approx(32e9 * 128 / 130 / 8 * 16)
    assert peak("host_link/both") == pytest.approx(2 * 32e9 * 128 / 130 / 8 * 16)
    assert peak("gpu_link") == pytest.approx(450e9)
    assert peak("gpu_link/host") == peak("host_link/h2d")
    assert peak("gemm/bf16") == pytest.approx(4096 * 132 * 1.98e9)


@pytest.mark.parametrize(
    ("roof", "change"),
    [
        ("device_memory", {"memory_bus_bits": None}),
        ("host_link/d2h", {"pcie_max_width": None}),
        ("host_link/d2h", {"pcie_max_generation": 9}),
        ("gpu_link", {"nvlink_links": None}),
        ("gpu_link", {"nvlink_links": 0}),
        ("gpu_link", {"nvlink_link_bytes_per_s": None}),
        ("gpu_link/host", {"pcie_max_width": None}),
        ("gpu_link/other", {}),
        ("gemm/bf16", {"architecture": 999}),
        ("gemm/fp4", {}),
        ("gemm/bf16", {"max_sm_clock_hz": None}),
        ("host_memory", {}),
    ],
)
def test_what_cannot_be_computed_is_none(roof: str, change: dict[str, Any]) -> None:
    assert peak(roof, **change) is None


def test_a_fact_of_the_wrong_type_is_named() -> None:
    with pytest.raises(
        RecordError, match=r"NVIDIA H200: gpu.multiprocessors must be float, not str"
    ):
        peak("gemm/bf16", multiprocessors="many")


def test_geforce_does_half_with_fp32_accumulation() -> None:
    ada: dict[str, Any] = {"architecture": 89, "multiprocessors": 128, "max_sm_clock_hz": 2.52e9}
    name = "NVIDIA GeForce RTX 4090"
    assert peak("gemm/fp16", name, **ada) == pytest.approx(165.2e12, rel=1e-3)
    assert peak("gemm/tf32", name, **ada) == pytest.approx(82.6e12, rel=1e-3)
    assert peak("gemm/int8", name, **ada) == pytest.approx(660.6e12, rel=1e-3)
    assert peak("gemm/fp16", "NVIDIA RTX 6000 Ada", **ada) == pytest.approx(330.3e12, rel=1e-3)


def test_architecture_12_0_has_all_its_peaks() -> None:
    blackwell: dict[str, Any] = {"architecture": 120, "multiprocessors": 170}
    at_boost = blackwell | {"max_sm_clock_hz": 2.407e9}
    name = "NVIDIA GeForce RTX 5090"
    datasheet = {"fp32": 104.8, "tf32": 104.8, "bf16": 209.5, "fp8": 419, "int8": 838}
    for number_type, expected in datasheet.items():
        assert peak(f"gemm/{number_type}", name, **at_boost) == pytest.approx(
            expected * 1e12, rel=1e-3
        )
    professional = blackwell | {"multiprocessors": 188, "max_sm_clock_hz": 2.617e9}
    name = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
    ordinary = peak("gemm/fp32", name, **professional)
    assert ordinary == pytest.approx(125e12, rel=1e-2)  # its datasheet
    halved = peak("gemm/bf16", "NVIDIA GeForce RTX 5090", **professional)
    assert halved is not None
    assert peak("gemm/bf16", name, **professional) == 2 * halved


def test_expected_shares() -> None:
    assert expected_share("gemm/fp8", "burst") == 0.65
    assert expected_share("gemm/fp8", "sustained") == 0.50
    assert expected_share("host_link/both", "burst") == 0.65
    assert expected_share("host_memory", "burst") is None
