"""optimizer/foreach: what a step counts, and that its check finds a wrong result."""

from __future__ import annotations

import math
import os

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

foreach = load(__file__)
MANIFEST = manifest(__file__)
ARMS = MANIFEST["arms"]
CPU = torch.device("cpu")
TOY = {"model": "llama_toy"}
TOLERANCE = MANIFEST["check"]["tolerance"]


@pytest.mark.parametrize(
    ("model", "tensors", "parameters"),
    [("llama_1b", 146, 1_235_814_400), ("gpt2", 148, 124_475_904), ("llama_toy", 20, 78_144)],
)
def test_draws_a_weight_and_a_gradient_for_each_parameter_of_the_model(
    monkeypatch: pytest.MonkeyPatch, model: str, tensors: int, parameters: int
) -> None:
    def without_memory(shape: tuple[int, ...], **options: object) -> object:
        return torch.empty(shape, device="meta")

    monkeypatch.setattr(torch, "randn", without_memory)
    weights, gradients = zip(*foreach.drawn(model, 1, CPU), strict=True)
    for found in (weights, gradients):
        assert (len(found), sum(one.numel() for one in found)) == (tensors, parameters)


def test_counts_the_seven_values_that_an_update_of_a_parameter_moves() -> None:
    arm = foreach.make("loop", TOY, 1, None)
    assert arm.items == 78_144
    assert arm.bytes == 7 * 4 * 78_144


def test_an_arm_that_takes_no_step_before_its_check_is_found() -> None:
    arm = foreach.make("fused", TOY, 7, None)
    assert arm.error() == pytest.approx(1 / 3, rel=0.1)


@pytest.mark.parametrize("forgotten", [None, slice(None), slice(-1, None)])
def test_a_tensor_or_a_value_of_one_that_is_not_stepped_is_found(
    monkeypatch: pytest.MonkeyPatch, forgotten: slice | None
) -> None:
    monkeypatch.setattr(foreach, "PIECE", 1000)  # so that tensors have several
    arm = foreach.make("foreach", TOY, 7, None)
    values = arm.step.__self__.param_groups[0]["params"][-2].detach().flatten()
    start = values.clone()
    arm.step()
    if forgotten is not None:
        values[forgotten] = start[forgotten]
    assert (arm.error() > TOLERANCE) is (forgotten is not None)


@pytest.mark.parametrize(
    ("arm", "rate", "steps", "error"),
    [("loop", 1e-3, 0, 1.0), ("loop", 1e-3, 2, 1 / 3), ("fused", 2e-3, 3, 1.0)],
)
def test_no_step_one_too_few_or_another_rate_are_wrong(
    arm: str, rate: float, steps: int, error: float
) -> None:
    start = torch.randn(64, generator=torch.Generator().manual_seed(1))
    parameter = start.clone().requires_grad_()
    parameter.grad = torch.randn(64, generator=torch.Generator().manual_seed(2))
    optimizer = foreach.adamw([parameter], arm)
    optimizer.param_groups[0]["lr"] = rate
    for _ in range(steps):
        optimizer.step()
    found = foreach.relative_error(start, parameter.grad, parameter.detach())
    assert found == pytest.approx(error, rel=0.1)


def test_a_result_that_is_no_number_is_no_number_in_the_check() -> None:
    start = torch.zeros(4)
    assert math.isnan(foreach.relative_error(start, torch.ones(4), torch.full((4,), math.nan)))
    assert math.isnan(foreach.largest_error(iter([1e-5, math.nan, 1e-5])))


def test_an_arm_that_torch_refuses_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **more: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch.optim, "AdamW", refuse)
    with pytest.raises(Skip, match="torch refuses fused: no such kernel"):
        foreach.make("fused", TOY, 1, None)


def test_without_a_gpu_the_toy_runs_on_the_cpu_and_with_one_it_never_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arm = foreach.make("loop", TOY, 1, None)
    assert arm.notes["device"] == "cpu"
    assert arm.mark is None
    with pytest.raises(Skip, match="torch cannot use the GPU"):
        foreach.make("loop", TOY, 1, 0)


def test_a_model_that_is_no_toy_is_skipped_without_a_gpu() -> None:
    with pytest.raises(Skip, match="llama_1b takes seconds on a processor"):
        foreach.make("loop", {"model": "llama_1b"}, 1, None)


@pytest.mark.parametrize(("allowed", "threads"), [("4", "3"), ("1", "1")])
def test_leaves_one_of_the_cores_free_that_the_engine_allows(
    monkeypatch: pytest.MonkeyPatch, allowed: str, threads: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("GPULIFT_CORES", allowed)
    assert foreach.make("fused", TOY, 1, None).notes["torch_threads"] == threads
