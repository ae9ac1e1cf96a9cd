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


SMALL_OVER_GLOO = """
technique.MODELS = {"gloo": "gpt_toy"}
technique.require_nccl = lambda _: None
technique.LOSS_STEPS = 3
"""


@pytest.mark.parametrize("arm", ["powersgd_1", "powersgd_4"])
def test_what_powersgd_leaves_out_is_sent_later(
    altered: Callable[[Path, str], Path], hellos_of_ranks: Hellos, arm: str
) -> None:
    script = altered(SCRIPT, SMALL_OVER_GLOO + "technique.EXCHANGES = 32")
    for hello in hellos_of_ranks(script, arm, GLOO):
        most = {"powersgd_1": 0.5, "powersgd_4": 0.2}[arm]
        assert 0.01 < hello["check_error"] < most  # of one exchange 0.7 and more
        assert abs(hello["metrics"]["lost_share"]) < 1


def test_what_powersgd_never_sends_is_found(
    altered: Callable[[Path, str], Path], hellos_of_ranks: Hellos
) -> None:
    forget = """
whole = technique.powerSGD_hook.PowerSGDState
technique.powerSGD_hook.PowerSGDState = lambda **given: whole(use_error_feedback=False, **given)
"""
    script = altered(SCRIPT, SMALL_OVER_GLOO + "technique.EXCHANGES = 32" + forget)
    for hello in hellos_of_ranks(script, "powersgd_1", GLOO):
        assert hello["check_error"] > 0.5
