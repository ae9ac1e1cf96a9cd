"""The arm torchao of precision/fp8_cast; gpulift_work's own tests have its casts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

TOLERANCE = 0.065  # of E4M3


@pytest.fixture(name="arm")
def arm_on_the_host(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """arm(): the arm, uncompiled, of a smaller matrix."""
    monkeypatch.setattr(technique, "SIDE", 128)
    for needed in ("require_fp8", "require_compiler"):
        monkeypatch.setattr(technique, needed, lambda device: None)
    with torch.compiler.set_stance("force_eager"):
        yield lambda: technique.make("torchao", {"cast": "tensor_both_ways"}, 7, None)


def test_a_step_casts(arm: Any) -> None:
    made = arm()
    made.step()
    assert 0.9 / 16 < made.error() < TOLERANCE


@pytest.mark.usefixtures("idle_graphs")
def test_a_graph_that_casts_nothing_is_found(arm: Any) -> None:
    made = arm()
    made.step()
    assert not made.error() < TOLERANCE
