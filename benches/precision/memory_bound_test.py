"""precision/memory_bound: exact within its type, and fewer bits than it has are found."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

LAYERS = ["layer_norm", "softmax", "gelu"]
TOLERANCE = 1e-5


def make(technique: ModuleType, name: str, layer: str) -> Any:
    arm = technique.make(name, {"layer": layer, "values": 1 << 16}, 7, None)
    arm.step()
    return arm


@pytest.mark.parametrize("layer", LAYERS[1:])
@pytest.mark.parametrize("name", ["fp32", "fp16", "bf16"])
def test_an_arm_is_as_exact_as_its_type(technique: ModuleType, name: str, layer: str) -> None:
    found = make(technique, name, layer)
    assert found.error() < (found.tolerance or TOLERANCE)
    assert (found.tolerance is None) == (name == "fp32")
    assert found.bytes == 5 * (1 << 16) * (4 if name == "fp32" else 2)
    assert found.roof == "host_memory"


def test_what_a_cache_may_keep_has_no_roof(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "sets_beyond_cache", lambda device, size: 2)
    assert make(technique, "fp32", "gelu").roof == ""


@pytest.mark.parametrize("layer", LAYERS)
def test_fewer_bits_than_the_arm_has_are_found(technique: ModuleType, layer: str) -> None:
    for name, other in (("fp32", "fp16"), ("fp16", "bf16")):
        assert make(technique, other, layer).error() > (technique.TOLERANCES.get(name) or TOLERANCE)
