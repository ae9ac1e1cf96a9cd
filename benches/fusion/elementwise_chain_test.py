"""The Python arms of fusion/elementwise_chain."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.mark.parametrize("chain", ["gelu", "gelu_written_out"])
@pytest.mark.parametrize("name", ["torch", "graph"])
def test_a_step_is_that_of_double_precision(technique: ModuleType, name: str, chain: str) -> None:
    arm = technique.make(name, {"chain": chain, "bytes": 2 * 4096 * 3}, 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_an_operation_that_is_left_out_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(values: Any) -> Any:
        return 0.5 * values

    monkeypatch.setattr(technique, "written_out", without)
    arm = technique.make("torch", {"chain": "gelu_written_out", "bytes": 2 * 4096 * 3}, 7, None)
    arm.step()
    assert arm.error() > arm.tolerance


@pytest.mark.parametrize(("name", "replays"), [("torch", 0), ("graph", 1), ("compiled", 1)])
def test_a_compiled_kernel_does_not_wait_for_python(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, replays: int
) -> None:
    begun: list[Any] = []

    def replay(begin: Any, _device: Any) -> Any:
        begun.append(begin)
        return SimpleNamespace(step=begin())

    monkeypatch.setattr(technique, "Replay", replay)
    monkeypatch.setattr(technique, "require_kernels_of", lambda arm, device: None)
    monkeypatch.setattr(technique.torch, "compile", lambda function, dynamic: function)
    arm = technique.make(name, {"chain": "gelu", "bytes": 2 * 4096 * 3}, 7, None)
    assert len(begun) == replays
    arm.step()
    assert 0 < arm.error() <= arm.tolerance
