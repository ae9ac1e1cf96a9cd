"""sparsity/pruning: which weights are left, and that wrong products of them are found."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

CPU = torch.device("cpu")
SIZES = (64, 128, 256)  # tokens, width, inner


def larger_two(weight: Any) -> Any:
    """Of each four in a row."""
    assert weight.dtype == torch.bfloat16
    fours = weight.reshape(-1, 4)
    kept = fours.abs().topk(2, dim=1).indices
    mask = torch.zeros_like(fours).scatter_(1, kept, 1.0)
    return (fours * mask).view(weight.shape)


@pytest.fixture(autouse=True)
def products_on_the_host(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library's packed weights stay dense ones there, or are pruned in each step."""

    def pack(model: Any, *, each_step: bool) -> None:
        if each_step:
            for linear in model.children():
                torch.nn.utils.parametrize.register_parametrization(linear, "weight", Pruned())

    monkeypatch.setattr(technique, "pack", pack)
    monkeypatch.setattr(technique, "two_of_four", larger_two)
    with torch.compiler.set_stance("force_eager"):
        yield


class Pruned(torch.nn.Module):  # type: ignore[name-defined, misc]
    """With gradients of all weights, as the library has them."""

    def forward(self, weight: Any) -> Any:
        return weight + (larger_two(weight) - weight).detach()


def mlp_after_a_step(technique: ModuleType, arm: str, task: str) -> Any:
    mlp = technique.Mlp(arm, task, *SIZES, CPU)
    mlp.step()
    return mlp


@pytest.mark.parametrize("task", ["inference", "step"])
@pytest.mark.parametrize("arm", ["dense", "unstructured", "two_four"])
def test_results_are_those_of_the_weights_that_are_left(
    technique: ModuleType, arm: str, task: str
) -> None:
    mlp = mlp_after_a_step(technique, arm, task)
    mlp.step()  # which adds nothing to the gradients of the first
    assert 0 < mlp.error() < technique.TOLERANCE == technique.TECHNIQUE["check"]["tolerance"]
    assert len(mlp.results()) == (1 if task == "inference" else 5)


def test_pruned_weights_are_half_of_all_and_two_of_each_four(technique: ModuleType) -> None:
    for arm, of_four in (("unstructured", {0, 1, 2, 3, 4}), ("two_four", {2})):
        for weight in technique.Mlp(arm, "inference", *SIZES, CPU).model.parameters():
            left = (weight != 0).view(-1, 4).sum(1)
            assert set(left.tolist()) == of_four
            assert float(left.float().mean()) == pytest.approx(2, rel=0.01)


def test_layers_that_multiply_by_all_weights_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "pack", lambda model, each_step: None)
    assert mlp_after_a_step(technique, "two_four", "step").error() > 10 * technique.TOLERANCE


@pytest.mark.parametrize("spoilt", [0, 1, 2, 3, 4])
def test_a_wrong_result_is_found(technique: ModuleType, spoilt: int) -> None:
    mlp = mlp_after_a_step(technique, "dense", "step")
    mlp.results()[spoilt].data.mul_(0.97)
    assert mlp.error() > technique.TOLERANCE


def test_an_output_that_no_step_has_made_is_no_number(technique: ModuleType) -> None:
    assert math.isnan(technique.Mlp("dense", "inference", *SIZES, CPU).error())


def test_weights_that_change_are_packed_by_the_librarys_layers(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    model = technique.SwiGlu(technique.LLAMA_SIZES["llama_toy"])
    technique.pack(model, each_step=True)
    assert {type(linear) for linear in model.children()} == {technique.SemiSparseLinear}


def test_a_step_tells_three_times_the_work(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "TOKENS", 32)
    arms = [
        technique.make("dense", {"mlp": "64x128", "task": task}, 7, None)
        for task in ("inference", "step")
    ]
    assert [arm.flops for arm in arms] == [6 * 32 * 64 * 128, 18 * 32 * 64 * 128]
    assert {(arm.items, arm.roof) for arm in arms} == {(32, "gemm/bf16")}
    assert arms[0].metrics() == {"weights_bytes": 2 * 3 * 64 * 128}


def test_what_a_machine_lacks_is_said(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(technique.Skip, match="a processor has no products"):
        technique.make("two_four", {"mlp": "64x128", "task": "step"}, 7, None)
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: False)
    with pytest.raises(technique.Skip, match="torch has no cuSPARSELt"):
        technique.require_sparse_products(torch.device("cuda", 0))


def test_a_gpu_that_reads_other_places_has_no_step(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def packed(weight: Any, backend: str) -> Any:
        assert backend == "cusparselt"
        return larger_two(weight)

    monkeypatch.setattr(technique, "semi_structured_sparsify", packed)
    technique.require_right_packing(CPU)
    monkeypatch.setattr(
        technique,
        "semi_structured_sparsify",
        lambda weight, backend: larger_two(weight).view(-1, 4).roll(1, 1).view(weight.shape),
    )
    with pytest.raises(technique.Skip, match=r"as Ampere reads them, and products are [01]\.\d+ "):
        technique.require_right_packing(CPU)


@pytest.mark.parametrize("task", ["inference", "step"])
@pytest.mark.usefixtures("idle_graphs")
def test_a_graph_that_does_nothing_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setattr(technique, "TOKENS", 32)
    arm = technique.make("dense", {"mlp": "64x128", "task": task}, 7, None)
    arm.step()
    assert not arm.error() < technique.TECHNIQUE["check"]["tolerance"]
