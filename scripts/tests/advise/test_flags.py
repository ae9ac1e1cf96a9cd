"""Switches that are settings of the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import arms, flags  # noqa: E402
from torch import nn  # noqa: E402

from tests.advise.steps import CUDA, SDPA, named, seen, state  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]


@pytest.mark.usefixtures("ampere")
def test_tf32_is_for_fp32_products() -> None:
    assert state("tf32", seen(CUDA)) == ("tried", "")
    assert state("tf32", seen(CUDA, operators={"aten::add": 1}))[0] == "not applicable"
    assert state("tf32", seen(CUDA, operators={"aten::add": 1}, compiled=True))[0] == "tried"
    assert state("tf32", seen(CUDA, autocast=True))[0] == "not applicable"
    half = seen(CUDA, modules=[nn.Linear(4, 4).bfloat16()])
    assert state("tf32", half) == ("not applicable", "all products are in BF16 or FP16")


@pytest.mark.usefixtures("old_gpu")
def test_older_gpus_have_neither_tf32_nor_bf16() -> None:
    assert state("tf32", seen(CUDA)) == ("not applicable", "the GPU has no TF32")
    assert state("bf16", seen(CUDA)) == ("not applicable", "the GPU has no BF16")


@pytest.mark.usefixtures("ampere")
@pytest.mark.parametrize("precision", ["high", "medium"])
def test_tf32_that_is_on_is_turned_off(precision: str) -> None:
    newer = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    raw = [owner.fp32_precision for owner in newer]
    torch.set_float32_matmul_precision(precision)
    try:
        watched = seen(CUDA)
        assert state("tf32", watched)[0] == "already on"
        turned = named("tf32", watched)
        turned.flip()
        assert torch.get_float32_matmul_precision() == "highest"
        turned.back()
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")
        for owner, precision in zip(newer, raw, strict=True):
            owner.fp32_precision = precision


@pytest.mark.usefixtures("ampere")
def test_tf32_of_a_script_with_the_newer_settings() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    raw = matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    matmul.fp32_precision, cudnn.conv.fp32_precision = "tf32", "ieee"
    try:
        watched = seen(CUDA, operators={"aten::convolution": 1})
        assert state("tf32", watched)[0] == "tried"
        turned = named("tf32", watched)
        turned.flip()
        assert cudnn.conv.fp32_precision == cudnn.rnn.fp32_precision == "tf32"
        turned.back()
        assert (matmul.fp32_precision, cudnn.conv.fp32_precision) == ("tf32", "ieee")
        assert state("tf32", seen(CUDA))[0] == "already on"
    finally:
        matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = raw


@pytest.mark.usefixtures("ampere")
@pytest.mark.parametrize(
    ("taken", "dtype", "applicable"),
    [
        ("flash", torch.bfloat16, {"attention_cudnn", "attention_efficient"}),
        ("efficient", torch.float16, {"attention_cudnn", "attention_flash"}),
        ("efficient", torch.float32, set()),
        ("cudnn", torch.float32, {"attention_efficient"}),
    ],
)
def test_the_back_ends_of_attention(taken: str, dtype: Any, applicable: set[str]) -> None:
    module = nn.Linear(4, 4).to(dtype)
    watched = seen(CUDA, modules=[module], operators={SDPA.format(taken): 12})
    tried = {one.name for one in arms.switches(watched) if one.state(watched)[0] == "tried"}
    assert {name for name in tried if name.startswith("attention")} == applicable


def test_attention_under_autocast_is_in_low_precision() -> None:
    operators = {SDPA.format("efficient"): 12}
    assert state("attention_flash", seen(CUDA, operators=operators, autocast=True))[0] == "tried"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "no scaled_dot_product_attention ran"),
        ({"operators": {}}, "which operators run is not known"),
        ({"compiled": True}, "compiled graphs keep the back end that they were traced with"),
        ({"operators": {SDPA.format("flash"): 1}}, "attention takes it already"),
    ],
)
def test_attention_that_cannot_be_changed(changes: dict[str, Any], why: str) -> None:
    assert state("attention_flash", seen(CUDA, **changes)) == ("not applicable", why)


def test_a_torch_that_cannot_order_back_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_set_sdp_priority_order")
    assert state("attention_cudnn", seen(CUDA)) == ("not applicable", "it needs torch 2.6")


def test_one_back_end_comes_ahead_of_the_others() -> None:
    before = torch._C._get_sdp_priority_order()
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    turned = named("attention_efficient", seen(CUDA))
    try:
        turned.flip()
        order = torch._C._get_sdp_priority_order()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()
        turned.back()
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
    finally:
        torch.backends.cuda.enable_mem_efficient_sdp(True)
    first = int(torch._C._SDPBackend.EFFICIENT_ATTENTION)
    assert order == [first, *(one for one in before if one != first)]
    assert torch._C._get_sdp_priority_order() == before


@pytest.mark.usefixtures("ampere")
def test_what_was_compiled_with_tf32_would_be_compiled_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flags.Tf32, "already", lambda *_: "it is allowed")
    assert state("tf32", seen(CUDA, compiled=True)) == ("not applicable", "it is compiled with it")


def with_cores(patch: pytest.MonkeyPatch, folder: Path, siblings: list[str]) -> None:
    """A processor whose logical ones share cores like this."""
    for number, text in enumerate(siblings):
        topology = folder / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(text, encoding="ascii")
    patch.setattr(flags, "_TOPOLOGY", folder)
    patch.setattr(os, "sched_getaffinity", lambda _: set(range(len(siblings))))


@pytest.mark.parametrize(("now", "threads"), [(1, 2), (2, 1), (4, 2)])
def test_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: int, threads: int) -> None:
    with_cores(monkeypatch, tmp_path, ["0,2", "1,3", "0,2", "1,3"])
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: now)
        turned = named("threads", seen())
    assert turned.threads == threads
    assert turned.label == f"torch.set_num_threads({threads}), {now} as it is"
    turned.flip()
    assert torch.get_num_threads() == threads
    turned.back()


def test_threads_are_not_for_one_core_or_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state("threads", seen(CUDA)) == ("not applicable", "the step runs on the GPU")
    with_cores(monkeypatch, tmp_path, ["0"])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert state("threads", seen()) == ("not applicable", "there is one core")


def test_cores_that_are_not_described_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags, "_TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert flags.physical_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert flags.physical_cores() == 2
