"""attention/document_mask: every arm keeps documents apart, over the same work."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import mean, median
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import documents, llama  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

TOY = {"lengths": "chat_toy"}
CPU = torch.device("cpu")
KERNEL_ARMS = ["variable_length", "flex", "flex_rebuilt"]
ARMS = ["padded", "grouped", "packed_unmasked", "dense_mask", *KERNEL_ARMS]


def by_documents(*given: Any, **options: Any) -> Any:
    """What the kernel for many lengths does, by a call for each."""
    *parts, ends, other_ends, longest, other_longest = given
    lengths = ends.diff().tolist()
    assert ends.dtype == torch.int32
    assert ends is other_ends
    assert max(lengths) == longest == other_longest
    assert options == {"window_size": (-1, 0), **documents.SHARES}
    split = zip(*(each[None].split(lengths, dim=1) for each in parts), strict=True)
    return torch.cat([llama.causal_shared_attention(*each)[0] for each in split])


@pytest.mark.parametrize("arm", ARMS[:5])
def test_gradients_are_those_of_documents_one_by_one(
    technique: ModuleType, arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "varlen_attn", by_documents)
    work = technique.Pass(arm, "chat_toy", 7, CPU)
    assert work.error() < technique.FP32_TOLERANCE


def test_the_mask_of_flex_attention_is_the_dense_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        documents, "compiled", lambda function: torch.compile(function, backend="eager")
    )
    query, key, value = (torch.randn(1, 256, heads, 16) for heads in (4, 2, 2))
    with torch.no_grad():  # for which alone a processor has it
        for lengths in ([96, 13, 115, 32], [256]):
            expected = documents.dense_mask(lengths, CPU)(query, key, value)
            found = documents.flex(lengths, CPU)(query, key, value)
            torch.testing.assert_close(found, expected)


def without_a_mask(*_: object) -> Any:
    return llama.causal_shared_attention


def with_one_key_too_many(lengths: list[int], device: Any) -> Any:
    first, second, *others = lengths
    return documents.dense_mask([first + 1, second - 1, *others], device)


@pytest.mark.parametrize(("wrong", "least"), [(without_a_mask, 40), (with_one_key_too_many, 1)])
def test_documents_that_see_each_other_are_found(
    technique: ModuleType,
    wrong: Callable[..., Any],
    least: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(technique.ATTENTIONS, "dense_mask", wrong)
    arm = technique.make("dense_mask", TOY, 7, None)
    arm.step()
    assert arm.error() > least * technique.TECHNIQUE["check"]["tolerance"]  # of BF16


def test_padding_that_counts_is_found(technique: ModuleType) -> None:
    work = technique.Pass("padded", "chat_toy", 7, CPU)
    (batch,) = work.batches
    batch.gradient[batch.gradient == 0] = batch.gradient.abs().mean()
    assert work.error() > 3 * technique.TECHNIQUE["check"]["tolerance"]


@pytest.mark.parametrize("name", ["even", "chat", "books", "chat_toy"])
def test_documents_fill_a_row(technique: ModuleType, name: str) -> None:
    assert sum(technique.LENGTHS[name]) == (256 if name == "chat_toy" else 16384)


def test_lengths_are_distributed_as_said(technique: ModuleType) -> None:
    chat, books = technique.LENGTHS["chat"], technique.LENGTHS["books"]
    logarithms = [math.log(each) for each in chat]
    assert 550 < mean(chat) < 650
    assert median(logarithms) == pytest.approx(mean(logarithms), abs=0.02)
    assert 32 <= min(chat) < max(chat) <= 4096
    assert max(books) / sum(books) > 0.5
    assert median(books) < mean(books) / 2


def test_documents_of_a_group_are_alike_and_each_is_in_one(technique: ModuleType) -> None:
    lengths = technique.LENGTHS["chat"]
    groups = technique.alike(lengths)
    assert sorted(place for group in groups for place in group) == list(range(28))
    longest = [max(lengths[place] for place in group) for group in groups]
    assert longest == sorted(longest, reverse=True)
    assert all(
        len(group) * most <= 4096 or len(group) == 1
        for group, most in zip(groups, longest, strict=True)
    )
    assert [len(group) for group in groups] == [1, 2, 3, 5, 8, 9]


def test_a_group_that_is_left_out_is_found(technique: ModuleType) -> None:
    work = technique.Pass("grouped", "chat_toy", 7, CPU)
    del work.batches[-1]
    assert work.error() > technique.TECHNIQUE["check"]["tolerance"]


def test_without_a_mask_documents_see_each_other_in_rows(technique: ModuleType) -> None:
    work = technique.Pass("packed_unmasked", "chat_toy", 7, CPU)
    (batch,) = work.batches
    assert batch.given.shape == (4, 64, 64)
    assert work.facts() == {"padding_share": 0.0}
    masked = technique.Pass("dense_mask", "chat_toy", 7, CPU)
    torch.testing.assert_close(batch.given.flatten(0, 1), masked.batches[0].given[0])
    assert technique.TECHNIQUE["controls"] == ["packed_unmasked"]


def test_all_arms_do_the_work_of_the_documents_whatever_the_seed(technique: ModuleType) -> None:
    made = [
        technique.make(arm, TOY, seed, None) for arm in ("padded", "grouped") for seed in (7, 8)
    ]
    assert {(each.items, each.item, each.roof) for each in made} == {(256, "token", "")}
    assert {each.flops for each in made} == {technique.flops_of("dense_mask", "chat_toy")}
    (first,), (other,) = (
        technique.Pass("padded", "chat_toy", seed, CPU).batches for seed in (7, 8)
    )
    assert first.given.shape == other.given.shape
    assert not torch.equal(first.given, other.given)


@pytest.mark.parametrize("arm", ["dense_mask", "packed_unmasked"])
def test_work_is_what_torch_counts_of_documents_but_for_masked_attention(
    technique: ModuleType, arm: str
) -> None:
    work = technique.Pass(arm, "chat_toy", 7, CPU)
    size = technique.SIZES["chat_toy"]
    # Of its fused attention on a processor torch counts nothing.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work.step()
    scores = sum(one.given.shape[0] * one.given.shape[1] ** 2 for one in work.batches)
    masked = scores - sum(length**2 for length in work.lengths) / 2
    counted = counter.get_total_flops() - 12 * size.layers * size.width * masked
    assert counted == technique.flops_of(arm, "chat_toy")


def test_an_arm_tells_its_padding_and_what_its_mask_takes(technique: ModuleType) -> None:
    rows = technique.make("padded", TOY, 7, None)
    dense = technique.make("dense_mask", TOY, 7, None)
    assert rows.metrics() == {"padding_share": 1 - 256 / (4 * 115)}
    assert dense.metrics().keys() == {"padding_share", "mask_s"}
    assert dense.metrics()["padding_share"] == 0


def test_a_mask_is_kept_or_made_anew(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def noted(lengths: list[int], _device: Any) -> Any:
        made.append(lengths)
        return without_a_mask()

    for name in ("dense_mask", "flex"):
        monkeypatch.setitem(technique.ATTENTIONS, name, noted)
    for arm, count in {"dense_mask": 3, "flex": 1, "flex_rebuilt": 3}.items():
        made.clear()
        work = technique.Pass(arm, "chat_toy", 7, CPU)
        work.step()
        work.step()
        assert len(made) == count, arm


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU is what would be waited for")
@pytest.mark.parametrize("arm", ARMS)
def test_no_step_waits_for_the_device(technique: ModuleType, arm: str) -> None:
    work = technique.Pass(arm, "chat_toy", 7, torch.device("cuda", 0))
    work.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("arm", KERNEL_ARMS)
def test_kernels_need_a_gpu(technique: ModuleType, arm: str) -> None:
    with pytest.raises(technique.Skip, match="the kernels of this attention need a GPU"):
        technique.make(arm, TOY, 7, None)


@pytest.mark.parametrize("name", ["even", "chat", "books"])
def test_wide_layers_need_a_gpu(technique: ModuleType, name: str) -> None:
    with pytest.raises(technique.Skip, match="layers of llama_1b take a minute on a processor"):
        technique.make("padded", {"lengths": name}, 7, None)


def test_every_arm_has_an_attention(technique: ModuleType) -> None:
    assert technique.TECHNIQUE["arms"] == ARMS
    for arm in set(ARMS) - set(KERNEL_ARMS):
        assert technique.Pass(arm, "chat_toy", 7, CPU).attend
    kernels = {arm.removesuffix("_rebuilt") for arm in KERNEL_ARMS}
    assert kernels | {"padded", "dense_mask"} == technique.ATTENTIONS.keys()
