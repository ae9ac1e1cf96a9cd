"""distributed/data_parallel: who gets which rows."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch")


def test_a_batch_is_kept_or_split(technique: ModuleType) -> None:
    assert technique.rows_of_shard(8, 2, "weak", "ddp") == 8
    assert technique.rows_of_shard(8, 2, "strong", "ddp") == 4
    assert technique.rows_of_shard(8, 2, "strong", "one_gpu") == 8


def test_a_batch_that_cannot_be_split_skips_all_arms(technique: ModuleType) -> None:
    for arm in technique.TECHNIQUE["arms"]:
        with pytest.raises(technique.Skip, match="a batch of 1 cannot be split among 2 GPUs"):
            technique.rows_of_shard(1, 2, "strong", arm)


def test_cudnn_does_not_search_as_torch_by_itself(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = technique.join
    monkeypatch.setattr(technique, "join", lambda *_, **__: join("gloo", None))
    technique.make("ddp", {"model": "gpt_toy", "gpus": 2, "scaling": "weak"}, 7, None)
    assert not torch.backends.cudnn.benchmark
