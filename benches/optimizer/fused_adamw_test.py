"""The Python arms of optimizer/fused_adamw."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import llama, training  # noqa: E402
from gpulift_work.kernels import model_tensors  # noqa: E402

TOLERANCE = 1e-5  # of the C++ file beside
HOST = torch.device("cpu")


def counts_of(model: Any) -> list[int]:
    return sorted(one.numel() for one in model.parameters())


def test_tensors_are_those_of_models_that_are_trained() -> None:
    with torch.device("meta"):
        gpt2 = training.make_model("gpt2")
        layer = llama.Llama(llama.LLAMA_SIZES["llama_8b_slice"]).layers[0]
    assert sorted(model_tensors("gpt2")) == counts_of(gpt2)
    assert sorted(model_tensors("llama_8b_layer")) == counts_of(layer)


@pytest.mark.parametrize("name", ["foreach", "torch_fused"])
def test_a_step_is_that_of_double_precision(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, {"model": "small"}, 7, None)
    arm.step()
    assert 0 < arm.error() < TOLERANCE


def skip_the_gradients(job: Any) -> None:
    job.optimizer.step()
    torch._foreach_copy_(job.weights, [one.detach() for one in job.exact_weights])


def skip_the_weights(job: Any) -> None:
    torch._foreach_copy_(job.exact_gradients, job.gradients)
    job.optimizer.step()


@pytest.mark.parametrize("wrong", [skip_the_gradients, skip_the_weights])
def test_a_cast_that_is_left_out_is_found(technique: ModuleType, wrong: Any) -> None:
    job = technique.Mixed("foreach", "small", 7, HOST)
    for one in job.exact_gradients:
        one.zero_()
    wrong(job)
    assert not job.error() <= TOLERANCE


def test_a_tensor_that_is_forgotten_is_found(technique: ModuleType) -> None:
    job = technique.Mixed("foreach", "small", 7, HOST)
    job.optimizer.param_groups[0]["params"].pop()
    job.step()
    with pytest.raises(KeyError):
        job.error()
