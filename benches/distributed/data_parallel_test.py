"""distributed/data_parallel: who gets which rows, and what each way exchanges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("data_parallel.py")
TOY = {"model": "gpt_toy", "gpus": 2, "scaling": "weak", "compiled": "no"}
ON_PROCESSORS = """
join = technique.join
technique.join = lambda link, gpu, backend: join("gloo", None)
"""
Hellos = Callable[..., list[dict[str, Any]]]
Altered = Callable[[Path, str], Path]


@pytest.fixture(autouse=True)
def on_processors(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks join over Gloo."""
    join = technique.join
    monkeypatch.setattr(technique, "join", lambda *_, **__: join("gloo", None))


def test_a_batch_is_kept_or_split(technique: ModuleType) -> None:
    assert technique.rows_of_shard(8, 2, "weak", "ddp") == 8
    assert technique.rows_of_shard(8, 2, "strong", "ddp") == 4
    assert technique.rows_of_shard(8, 2, "strong", "one_gpu") == 8


def test_a_batch_that_cannot_be_split_skips_all_arms(technique: ModuleType) -> None:
    for arm in technique.TECHNIQUE["arms"]:
        with pytest.raises(technique.Skip, match="a batch of 1 cannot be split among 2 GPUs"):
            technique.rows_of_shard(1, 2, "strong", arm)


@pytest.mark.parametrize("arm", ["ddp", "ddp_static_views"])
@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_ranks_have_the_gradients_of_all_rows(
    altered: Altered, hellos_of_ranks: Hellos, arm: str, scaling: str
) -> None:
    script = altered(SCRIPT, ON_PROCESSORS)
    for hello in hellos_of_ranks(script, arm, {**TOY, "scaling": scaling}):
        assert hello["check_error"] < 1e-5, hello
        assert hello["cost"]["items"] == (16 if scaling == "weak" else 8) * 32
        assert hello["metrics"]["gradient_bytes"] == 424_960


def test_what_dataparallel_drives_is_in_bf16_wherever_it_is_called(technique: ModuleType) -> None:
    layer = technique.InBf16(torch.nn.Linear(4, 4))
    with torch.autocast("cpu", torch.float16):  # as in a thread of its own
        assert layer(torch.ones(2, 4)).dtype == torch.bfloat16
    assert layer(torch.ones(2, 4)).dtype == torch.float32


# The compiler's front end alone, which needs no compiler and takes no minute.
COMPILED = (
    ON_PROCESSORS
    + """
from dataclasses import replace
from functools import partial

from gpulift_work import distributed, training

distributed.require_compiler = lambda _: None
compile = partial(technique.torch.compile, backend="aot_eager")
technique.torch.compile = compile
training.TWINS["gpt_toy"] = replace(training.TWINS["gpt_toy"], bf16=True)
"""
)


@pytest.mark.parametrize(("model", "tolerance"), [("gpt_toy", 0.25), ("llama_toy", None)])
def test_what_is_compiled_is_checked_as_it_is_timed(
    altered: Altered, hellos_of_ranks: Hellos, model: str, tolerance: float | None
) -> None:
    point = {**TOY, "model": model, "compiled": "yes"}
    for hello in hellos_of_ranks(altered(SCRIPT, COMPILED), "ddp", point):
        assert hello.get("tolerance") == tolerance
        if tolerance is None:
            assert hello["check_error"] < 1e-5, hello
        else:
            assert 1e-4 < hello["check_error"] < 0.05, hello


def test_compiled_replicas_that_exchange_nothing_are_found(
    altered: Altered, hellos_of_ranks: Hellos
) -> None:
    script = altered(SCRIPT, COMPILED + 'technique.WRAPPINGS = {"ddp": lambda _: None}')
    hellos = hellos_of_ranks(script, "ddp", {**TOY, "compiled": "yes"})
    assert "rank 1 does not hold what rank 0 holds" in hellos[1].get("failed", "")


def test_one_gpu_exchanges_nothing(technique: ModuleType) -> None:
    arm = technique.make("one_gpu", TOY, 7, None)
    arm.step()
    assert arm.error() < 1e-5
    assert "exposed_communication_s" not in arm.metrics()


def test_what_others_tell_is_skipped(technique: ModuleType) -> None:
    for arm in ("data_parallel", "ddp_gloo"):
        with pytest.raises(technique.Skip, match=f"{arm} is not compiled"):
            technique.make(arm, {**TOY, "compiled": "yes"}, 7, None)
    with pytest.raises(technique.Skip, match="over Gloo takes long"):
        technique.make("ddp_gloo", {**TOY, "model": "llama_1b"}, 7, None)


def test_one_process_does_not_drive_the_gpus_of_several_nodes(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULIFT_NODES", "2")
    with pytest.raises(technique.Skip, match="of its own host alone"):
        technique.make("data_parallel", {**TOY, "nodes": 2}, 7, None)


def test_cudnn_does_not_search_as_torch_by_itself(technique: ModuleType) -> None:
    technique.make("ddp", TOY, 7, None)
    assert not torch.backends.cudnn.benchmark
