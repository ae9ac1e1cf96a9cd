"""distributed/data_parallel: who gets which rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("data_parallel.py")


@pytest.fixture(name="script")
def script_as_module() -> ModuleType:
    """The technique."""
    spec = importlib.util.spec_from_file_location("data_parallel_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_batch_is_kept_or_split(script: ModuleType) -> None:
    assert script.rows_of_shard(8, 2, "weak", "ddp") == 8
    assert script.rows_of_shard(8, 2, "strong", "ddp") == 4
    assert script.rows_of_shard(8, 2, "strong", "one_gpu") == 8


def test_a_batch_that_cannot_be_split_skips_all_arms(script: ModuleType) -> None:
    for arm in script.TECHNIQUE["arms"]:
        with pytest.raises(script.Skip, match="a batch of 1 cannot be split among 2 GPUs"):
            script.rows_of_shard(1, 2, "strong", arm)
