"""attention/kernels: what is measured of attention, that wrong results are found, and skips."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gpulift_worker import Skip

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

CPU = torch.device("cpu")
TOKENS = 64


def job_of(technique: ModuleType, attend: Any = None, rows: int = 1) -> Any:
    return technique.Job(attend or technique.in_groups, rows, TOKENS, 64, CPU, 7)


@pytest.mark.parametrize("attend", ["in_groups", "with_a_head_each"])
def test_output_and_gradients_are_those_in_more_bits(technique: ModuleType, attend: str) -> None:
    job = job_of(technique, getattr(technique, attend), rows=2)
    job.forward()
    job.backward()
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert 0 < job.output_error() < tolerance
    assert 0 < job.gradient_error() < tolerance


def test_attention_without_its_mask_is_found(technique: ModuleType) -> None:
    def unmasked(*operands: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(*operands, enable_gqa=True)

    job = job_of(technique, unmasked)
    job.backward()
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert job.output_error() > 5 * tolerance
    assert job.gradient_error() > 5 * tolerance


def test_a_wrong_block_is_found_where_a_norm_over_all_hides_it(technique: ModuleType) -> None:
    job = technique.Job(technique.in_groups, 1, 1024, 64, CPU, 7)
    exact = job._exact()[0].detach()
    found = exact.clone()
    found[0, 5, -technique.BLOCK :] = 0
    assert technique.largest_error(found, exact) == 1
    assert (found - exact).norm() < 0.02 * exact.norm()
    found[0, 5, -1] = float("nan")
    assert technique.largest_error(found, exact) != technique.largest_error(found, exact)


def test_one_gradient_that_is_no_number_is_found(technique: ModuleType) -> None:
    job = job_of(technique)
    job.backward()
    job.gradients = (*job.gradients[:2], job.gradients[2] * float("nan"))
    assert job.gradient_error() != job.gradient_error()


@pytest.mark.parametrize(("way", "kept"), [("forward", 0), ("backward", 1)])
def test_work_is_half_of_what_torch_counts_without_a_mask(
    technique: ModuleType, way: str, kept: int
) -> None:
    """Where scores are kept the backward pass does not make them again."""
    job = job_of(technique)
    with sdpa_kernel(SDPBackend.MATH):
        job.forward()
        with FlopCounterMode(display=False) as counter:
            getattr(job, way)()
    products = technique.PRODUCTS[way]
    flops = technique.flops_of(way, 1, TOKENS, 64) * (products - kept) / products
    assert counter.get_total_flops() == 2 * flops


@pytest.mark.parametrize("arm", ["torch_default", "cudnn", "flash", "memory_efficient", "math"])
def test_an_arm_lets_torch_take_its_kernel_alone(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    allowed: list[Any] = []
    monkeypatch.setattr(technique.nnf, "scaled_dot_product_attention", lambda *_, **__: None)

    def noted(backend: Any) -> Any:
        allowed.append(backend)
        return nullcontext()

    monkeypatch.setattr(technique, "sdpa_kernel", noted)
    operands = [torch.zeros(1, heads, 4, 8) for heads in (32, 8, 8)]
    technique.ATTENDS[arm]()(*operands)
    assert allowed == [technique.BACKENDS[arm] for _ in range(arm != "torch_default")]


@pytest.mark.parametrize("arm", ["flash_attention_3", "flash_attention_4"])
def test_a_kernel_that_is_not_installed_is_skipped(technique: ModuleType, arm: str) -> None:
    with pytest.raises(Skip, match=f"FlashAttention {arm[-1]} is not installed"):
        technique.ATTENDS[arm]()


@pytest.mark.parametrize("with_sums", [False, True])
def test_a_library_is_given_rows_of_tokens(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, with_sums: bool
) -> None:
    def attend(*rows: Any, causal: bool) -> Any:
        assert causal
        assert rows[0].is_contiguous()
        assert rows[0].shape == (1, TOKENS, technique.HEADS, 64)
        found = technique.in_groups(*(one.transpose(1, 2) for one in rows)).transpose(1, 2)
        return (found, None) if with_sums else found

    library = SimpleNamespace(flash_attn_func=attend)
    monkeypatch.setitem(sys.modules, "flash_attn_interface", library)
    job = job_of(technique, technique.ATTENDS["flash_attention_3"]())
    job.backward()
    tolerance = technique.TECHNIQUE["check"]["tolerance"]
    assert 0 < job.output_error() < tolerance
    assert 0 < job.gradient_error() < tolerance


def test_scores_that_do_not_fit_the_card_are_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(total_memory=85e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    technique.require_memory(technique.TOKENS * technique.HEADS * 4096, CPU)
    with pytest.raises(Skip, match="the scores need 146 GB, this card has 85"):
        technique.require_memory(technique.TOKENS * technique.HEADS * 16384, CPU)
