"""distributed/gradient_compression: as many bits as an arm says, and no fewer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

Hellos = Callable[..., list[dict[str, Any]]]
SCRIPT = Path(__file__).with_name("gradient_compression.py")
GLOO = {"link": "gloo"}


@pytest.mark.parametrize(
    ("arm", "least", "most"),
    [("fp32", 0.0, 1e-5), ("fp16_hook", 1e-4, 1e-3), ("bf16_hook", 1e-3, 5e-3)],
)
def test_the_gradients_have_the_bits_of_the_arm(
    altered: Callable[[Path, str], Path],
    hellos_of_ranks: Hellos,
    arm: str,
    least: float,
    most: float,
) -> None:
    script = altered(SCRIPT, 'technique.MODELS = {"gloo": "gpt_toy"}')
    for hello in hellos_of_ranks(script, arm, GLOO):
        assert least < hello["check_error"] < most
        assert hello.get("tolerance", 1e-5) == pytest.approx(most)


def test_powersgd_is_not_run_where_it_aborts(hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(SCRIPT, "powersgd_1", GLOO):
        assert "aborts in Gloo" in hello["skipped"]
