"""distributed/no_sync: once or each time, the gradients are those of all rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("no_sync.py")


def test_both_arms_give_the_gradients_of_all_rows(
    altered: Callable[[Path, str], Path], hellos_of_ranks: Callable[..., list[dict[str, Any]]]
) -> None:
    script = altered(SCRIPT, 'technique.MODELS = {"gloo": "gpt_toy"}')
    for arm in ("exchange_each", "exchange_last"):
        for hello in hellos_of_ranks(script, arm, {"link": "gloo", "micro_batches": 4}):
            assert hello["check_error"] < 1e-5, (arm, hello)
            assert hello["cost"]["items"] == 2 * 8 * 32


def test_micro_batches_of_a_llama_are_as_large_however_many(
    altered: Callable[[Path, str], Path], hellos_of_ranks: Callable[..., list[dict[str, Any]]]
) -> None:
    lines = 'technique.MODELS = {"gloo": "llama_toy"}\ntechnique.ROWS = {"llama_toy": 1}'
    script = altered(SCRIPT, lines)
    for hello in hellos_of_ranks(script, "exchange_last", {"link": "gloo", "micro_batches": 4}):
        assert hello["check_error"] < 1e-5, hello
        assert hello["cost"]["items"] == 2 * 4 * 32
