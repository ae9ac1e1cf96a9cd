"""distributed/sharding: whatever a rank keeps, training is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("sharding.py")
TOY = {"model": "gpt_toy"}


def test_no_step_is_told_without_its_exchange(
    hellos_of_ranks: Callable[..., list[dict[str, Any]]],
) -> None:
    for hello in hellos_of_ranks(SCRIPT, "zero_1", TOY):
        assert hello["cost"]["items"] == 2 * 8 * 32
        assert "step_without_exchange_s" not in hello["metrics"], "weights are exchanged, too"


LIVE = """
import gc
from gpulift_work.training import Gpt
from gpulift_worker import Arm

def make(*case):
    gc.disable()
    arm = technique.make(*case)
    models = [one for one in gc.get_objects() if issubclass(type(one), Gpt)]
    return Arm(step=arm.step, error=arm.error, metrics=lambda: {"models": len(models)})
"""


@pytest.mark.parametrize("arm", ["ddp", "fsdp2"])
def test_what_the_check_made_is_gone_when_memory_is_measured(
    altered: Callable[[Path, str], Path], hellos_of_ranks: Callable[..., Any], arm: str
) -> None:
    for hello in hellos_of_ranks(altered(SCRIPT, LIVE), arm, TOY):
        assert hello["metrics"]["models"] == 1


def test_what_is_in_the_hosts_memory_is_not_offloaded_to_it(
    hellos_of_ranks: Callable[..., list[dict[str, Any]]],
) -> None:
    for hello in hellos_of_ranks(SCRIPT, "fsdp2_offload", TOY):
        assert "anyway" in hello["skipped"]
