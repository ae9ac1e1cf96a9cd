"""job/fit: what each arm makes again or keeps elsewhere, and that all train as the baseline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import fitting  # noqa: E402
from gpulift_work.losses import LossOfHidden  # noqa: E402
from torch._functorch import config as functorch_config  # noqa: E402
from torch.autograd.graph import save_on_cpu  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

TOY = {"model": "llama_toy"}
CPU = torch.device("cpu")
# Operations of two layers on 256 tokens, without their last product, whose output nobody asks for.
AGAIN = 2 * 8 * 32 * 2 * (64 * (64 + 32 + 32 + 64) + 2 * 64 * 128)
LAST = 2 * 8 * 32 * 64 * 128  # of one layer: torch 2.15 makes that of one of the two again, too


@pytest.fixture(name="compiled", autouse=True)
def compiling_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The budgets that what was to be compiled had."""
    budgets: list[float] = []

    def compile_nothing(work: Any, **_: Any) -> Any:
        budgets.append(functorch_config.activation_memory_budget)
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)
    with functorch_config.patch(activation_memory_budget=1.0):  # and puts it back
        yield budgets


def job_of(technique: ModuleType, arm: str, name: str = "llama_toy") -> Any:
    return technique.Job(name, CPU, 7, arm)


def products_of(job: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        job.training.make_gradients()
    found: int = counter.get_total_flops()
    return found


@pytest.mark.parametrize(
    ("arm", "name", "apart"),
    [
        ("selective_checkpointing", "llama_toy", 0.0),
        ("selective_checkpointing", "gpt_toy", 0.0),
        ("full_checkpointing", "llama_toy", 0.0),
        # What comes back is contiguous, whatever it was: some processors then add in another order.
        ("activation_offload", "llama_toy", 1e-4),
    ],
)
def test_what_is_made_again_or_kept_elsewhere_changes_no_loss(
    technique: ModuleType, arm: str, name: str, apart: float
) -> None:
    plain, other = (job_of(technique, each, name).training for each in ("bf16", arm))
    for each in (plain, other):
        each.train_until(3)
    assert other.losses == pytest.approx(plain.losses, rel=apart, abs=0.0)


def test_selective_makes_no_product_again_and_full_those_of_the_layers(
    technique: ModuleType,
) -> None:
    plain, selective, full = (
        products_of(job_of(technique, arm))
        for arm in ("bf16", "selective_checkpointing", "full_checkpointing")
    )
    assert selective == plain
    assert full - plain in (AGAIN, AGAIN + LAST)


def test_of_activations_the_layers_alone_are_on_the_host(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = []

    def noted(**said: Any) -> Any:
        entered.append(said)
        return save_on_cpu(**said)

    monkeypatch.setattr(technique, "save_on_cpu", noted)
    job_of(technique, "activation_offload").training.step()
    assert entered == 2 * [{"pin_memory": True}]


@pytest.mark.parametrize(("arm", "budget"), [("compiled", 1.0), ("memory_budget", 0.5)])
def test_layers_are_compiled_with_the_budget_of_the_arm(
    technique: ModuleType, compiled: list[float], arm: str, budget: float
) -> None:
    job = job_of(technique, arm)
    assert compiled == 2 * [budget]
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]


def test_moments_in_8_bits_train_alike_and_are_dropped(technique: ModuleType) -> None:
    pytest.importorskip("torchao")
    job = job_of(technique, "adamw_8bit_torchao")
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]
    kinds = {type(one["exp_avg"]).__name__ for one in job.training.optimizer.state.values()}
    assert kinds == {"OptimState8bit", "Tensor"}, "those of norms are small"
    job.rest()
    assert not job.training.optimizer.state


def test_an_optimizer_on_the_host_begins_anew_with_the_weights(
    technique: ModuleType, on_a_gpu: None
) -> None:
    job = job_of(technique, "optimizer_offload")
    job.training.step()
    after_one = [one.detach().clone() for one in job.parameters]
    job.training.step()
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]
    job.rest()
    optimizer = job.training.optimizer
    assert not any(part.state for part in (*optimizer.optim_dict.values(), optimizer.d_opt))
    assert sum(one.numel() for one in job.parameters) == 0
    job.wake()
    for mine, expected in zip(job.parameters, after_one, strict=True):
        torch.testing.assert_close(mine, expected)


def test_weights_that_stay_on_the_host_are_found(
    technique: ModuleType, on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "copies_of", lambda optimizer: {})
    job = job_of(technique, "optimizer_offload")
    monkeypatch.setattr(job, "drop_moments", lambda: None)
    job.training.step()
    with pytest.raises(Exception, match="losses of 5 steps"):
        job.error()


@pytest.mark.parametrize("arm", ["adamw_8bit_torchao", "optimizer_offload"])
def test_the_rule_is_that_of_the_baseline(technique: ModuleType, on_a_gpu: None, arm: str) -> None:
    pytest.importorskip("torchao")
    expected = job_of(technique, "bf16").training.optimizer.param_groups[0]
    for group in job_of(technique, arm).training.optimizer.param_groups:
        assert float(group["lr"]) == pytest.approx(expected["lr"])
        assert [group[key] for key in ("betas", "weight_decay", "eps")] == [
            expected[key] for key in ("betas", "weight_decay", "eps")
        ]


def test_the_cut_loss_is_that_of_hidden_states(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "cut_cross_entropy", lambda: None)
    job = job_of(technique, "cut_cross_entropy")
    assert isinstance(job.training.loss_of, LossOfHidden)


def test_without_bitsandbytes_its_arm_names_the_package(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ModuleNotFoundError, match="bitsandbytes"):
        job_of(technique, "adamw_8bit_bitsandbytes")


@pytest.mark.parametrize(
    "arm", ["adamw_8bit_bitsandbytes", "optimizer_offload", "cut_cross_entropy"]
)
def test_what_needs_a_gpu_is_skipped_without(technique: ModuleType, arm: str) -> None:
    with pytest.raises(Exception, match="needs a GPU"):
        technique.make(arm, TOY, 7, None)


def test_every_arm_has_a_setting_and_counts_its_work(technique: ModuleType) -> None:
    assert list(technique.SETTINGS) == technique.TECHNIQUE["arms"]
    arm = technique.make("full_checkpointing", TOY, 7, None)
    assert (arm.items, arm.item, arm.roof) == (8 * 32, "token", "")
