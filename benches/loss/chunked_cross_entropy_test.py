"""loss/chunked_cross_entropy: each loss gives the gradients of whole logits, or is found."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpulift_case  # noqa: E402
from gpulift_work import training  # noqa: E402

TOY = {"model": "llama_toy"}
LARGE = {"model": "llama_1b"}


def gradients_of(loss: Callable[..., Any], *given: Any) -> list[Any]:
    found = loss(*given)
    return [found.detach(), *torch.autograd.grad(2 * found, given[:2])]


def test_own_chunks_give_the_gradients_of_logits_and_are_as_many_as_asked_for(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    whole = technique.loss_and_gradient

    def noted(first: Sized, *others: object) -> object:
        rows.append(len(first))
        return whole(first, *others)

    monkeypatch.setattr(technique, "loss_and_gradient", noted)
    technique.make("chunked", TOY, 7, None).step()
    assert rows == [32] * technique.CHUNKS
    state = torch.randn(24, 8, requires_grad=True)
    weight = torch.randn(50, 8, requires_grad=True)
    given = state, weight, torch.randint(50, (24,))
    wanted = gradients_of(technique.of_logits, *given)
    torch.testing.assert_close(gradients_of(technique.chunked, *given), wanted)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_the_compiler_makes_chunks_of_logits_larger_than_what_they_are_made_of(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MadeError(Exception):
        """What follows takes a compiler of C++ long."""

    importlib.import_module("torch._inductor.compile_fx")  # which has operators that it names
    auto_chunker = importlib.import_module("torch._inductor.fx_passes.auto_chunker")
    whole = auto_chunker.chunk

    def chunk_alone(graph: Any) -> None:
        raise MadeError(f"chunks: {whole(graph).code.count('invoke_subgraph(')}")

    monkeypatch.setattr(auto_chunker, "chunk", chunk_alone)
    monkeypatch.setattr(technique.inductor_metrics, "num_auto_chunking", 0)
    state, weight = (torch.randn(rows, 8, requires_grad=True) for rows in (32, 96))
    with pytest.raises(Exception, match=f"MadeError: chunks: {technique.CHUNKS}"):
        technique.LOSSES["compiled_chunked"]()(state, weight, torch.randint(96, (32,)))
    assert technique.inductor_metrics.num_auto_chunking == 1


def test_what_the_compiler_did_not_chunk_fails(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "require_parts_of", lambda *_: None)
    monkeypatch.setitem(technique.LOSSES, "compiled_chunked", lambda: technique.of_logits)
    monkeypatch.setattr(technique.inductor_metrics, "num_auto_chunking", 0)
    arm = technique.make("compiled_chunked", TOY, 7, None)
    with pytest.raises(technique.Failed, match="torch's compiler made no chunks"):
        arm.error()


def test_a_gradient_of_another_scale_is_found_though_adamw_hides_it(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = technique.loss_and_gradient

    def doubled(*given: object) -> tuple[Any, Any]:
        loss, gradient = right(*given)
        return loss, 2 * gradient

    monkeypatch.setattr(technique, "loss_and_gradient", doubled)
    arm = technique.make("chunked", TOY, 7, None)
    arm.step()
    assert arm.tolerance == 1e-5
    assert arm.error() > 0.9
    assert arm.metrics()["gradient_error"] > 0.9


def test_a_wrong_loss_fails(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = technique.of_logits
    monkeypatch.setitem(technique.LOSSES, "eager", lambda: lambda *given: 1.1 * right(*given))
    arm = technique.make("eager", TOY, 7, None)
    arm.step()
    with pytest.raises(technique.Failed, match=r"the loss is 0\.1 from"):
        arm.error()


def test_an_arm_counts_its_work_and_tells_how_far_it_is_off(technique: ModuleType) -> None:
    arm = technique.make("eager", TOY, 7, None)
    assert (arm.items, arm.item, arm.roof) == (8 * 32, "token", "")
    assert arm.flops == 8 * technique.TEXT_SIZES["llama_toy"].flops_of_row()
    arm.step()
    arm.rest()
    assert arm.error() < arm.tolerance
    told = {name for name in arm.metrics() if not name.startswith("check_")}
    assert told == {"gradient_error", "loss_error"}  # and of a GPU its peaks


def test_a_later_launch_repeats_two_steps_and_refuses_others(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = technique.make("chunked", TOY, 7, None)
    gpulift_case.begin({"seed": 7})
    arm.error()
    facts = arm.metrics()
    monkeypatch.setattr(technique, "errors_of", None)
    gpulift_case.begin({"seed": 8, "check_seed": 7, "launch": 2, "earlier": facts})
    assert technique.make("chunked", TOY, 8, None).error() < 1e-6
    right = technique.loss_and_gradient

    def halved(*given: object) -> tuple[Any, Any]:
        loss, gradient = right(*given)
        return loss, gradient / 2

    monkeypatch.setattr(technique, "loss_and_gradient", halved)
    with pytest.raises(technique.Failed, match=r"gradients have a norm of 0\.\d+, in the first"):
        technique.make("chunked", TOY, 8, None).error()


def test_losses_share_what_the_exact_model_finds(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []
    genuine = training.exact_step

    def noted(one: Any, rows: int) -> Any:
        seen.append(rows)
        return genuine(one, rows)

    monkeypatch.setattr(training, "exact_step", noted)
    gpulift_case.begin({"seed": 7, "shared": str(tmp_path)})
    errors = [technique.make(arm, TOY, 7, None).error() for arm in ("eager", "chunked")]
    assert all(0 < error < 1e-5 for error in errors)
    assert seen == [8]
    gpulift_case.begin({"seed": 8, "shared": str(tmp_path)})
    technique.make("eager", TOY, 8, None).error()
    assert seen == [8, 8], "other weights"


@pytest.fixture(autouse=True)
def no_case_afterwards() -> Iterator[None]:
    """What a test said of its case."""
    yield
    gpulift_case.begin({"seed": 0})


@pytest.mark.parametrize("arm", ["liger", "cut_cross_entropy"])
def test_kernels_need_a_gpu(technique: ModuleType, arm: str) -> None:
    with pytest.raises(technique.Skip, match="the kernels of this loss need a GPU"):
        technique.make(arm, TOY, 7, None)


def test_a_toy_has_nothing_to_chunk(technique: ModuleType) -> None:
    with pytest.raises(technique.Skip, match="the compiler makes no chunks"):
        technique.make("compiled_chunked", TOY, 7, None)


def test_large_models_need_a_gpu(technique: ModuleType) -> None:
    with pytest.raises(technique.Skip, match="step of llama_1b takes seconds on a processor"):
        technique.make("chunked", LARGE, 7, None)
