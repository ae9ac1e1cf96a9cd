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


@pytest.mark.parametrize(("tensors", "parameters"), [("many", 150 * 4096), ("few", 4 * 4194304)])
def test_counts_every_parameter_and_the_seven_values_that_an_update_moves(
    tensors: str, parameters: int
) -> None:
    arm = foreach.make("loop", {"tensors": tensors}, 1, None)
    assert arm.items == parameters
    assert arm.bytes == 7 * 4 * parameters


def test_the_baseline_is_torchs_default_on_a_gpu_and_the_loop_a_control() -> None:
    assert ARMS[0] == "foreach"
    assert MANIFEST["controls"] == ["loop"]


def test_an_arm_that_takes_no_step_before_its_check_is_found() -> None:
    arm = foreach.make("fused", {"tensors": "many"}, 7, None)
    assert arm.error() == pytest.approx(1 / 3, rel=0.1)


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
    assert foreach.relative_error(start, parameter) == pytest.approx(error, rel=0.1)


def test_a_result_that_is_no_number_is_no_number_in_the_check() -> None:
    start = torch.zeros(4)
    parameter = torch.full((4,), math.nan).requires_grad_()
    parameter.grad = torch.ones(4)
    assert math.isnan(foreach.relative_error(start, parameter))


def test_an_arm_that_torch_refuses_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object, **more: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch.optim, "AdamW", refuse)
    with pytest.raises(Skip, match="torch refuses fused: no such kernel"):
        foreach.make("fused", {"tensors": "many"}, 1, None)


def test_without_a_gpu_it_runs_on_the_cpu_and_with_one_it_never_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    arm = foreach.make("loop", {"tensors": "many"}, 1, None)
    assert arm.notes["device"] == "cpu"
    assert arm.mark is None
    with pytest.raises(Skip, match="torch cannot use the GPU"):
        foreach.make("loop", {"tensors": "many"}, 1, 0)


@pytest.mark.parametrize(("allowed", "threads"), [("4", "3"), ("1", "1")])
def test_leaves_one_of_the_cores_free_that_the_engine_allows(
    monkeypatch: pytest.MonkeyPatch, allowed: str, threads: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("GPULIFT_CORES", allowed)
    assert foreach.make("fused", {"tensors": "many"}, 1, None).notes["torch_threads"] == threads
