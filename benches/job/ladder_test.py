"""job/ladder: each arm has one setting more, trains alike, and holds no memory while it rests."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import jobs  # noqa: E402
from gpulift_work.training import TEXT_SIZES  # noqa: E402

TOY = {"model": "llama_toy"}
ON_PROCESSORS = ["torch_default", "tf32", "bf16", "fused_adamw", "compiled"]


@pytest.fixture(autouse=True)
def switches_that_are_put_back() -> Iterator[None]:
    """A process has one arm, and tests have many."""
    yield
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(name="uncompiled", autouse=True)
def compiling_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was to be compiled."""
    compiled: list[Any] = []

    def compile_nothing(work: Any, **_: Any) -> Any:
        compiled.append(work)
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)
    return compiled


def settings_of(job: Any, compiled: list[Any]) -> dict[str, bool]:
    return {
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "bf16": job.training.bf16,
        "fused_adamw": bool(job.training.optimizer.defaults["fused"]),
        "compiled": bool(compiled),
    }


@pytest.mark.parametrize("arm", ON_PROCESSORS)
def test_an_arm_has_the_settings_up_to_its_own(
    technique: ModuleType, uncompiled: list[Any], arm: str
) -> None:
    uncompiled.clear()
    settings = technique.RUNGS[: technique.RUNGS.index(arm) + 1]
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, settings)
    found = settings_of(job, uncompiled)
    assert found == {name: name in settings for name in found}


def test_a_training_that_rests_holds_nothing_and_begins_anew(technique: ModuleType) -> None:
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, ["torch_default"])
    job.training.step()
    after_one = [one.detach().clone() for one in job.parameters]
    job.training.step()
    job.rest()
    assert sum(one.numel() for one in job.parameters) == 0
    assert not job.training.optimizer.state
    assert all(one.grad is None for one in job.parameters)
    job.wake()
    job.wake()  # of one that is awake nothing is taken
    for mine, expected in zip(job.parameters, after_one, strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("arm", ["tf32", "bf16"])
def test_gradients_that_are_not_scaled_right_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    settings = technique.RUNGS[: technique.RUNGS.index(arm) + 1]
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, settings)
    tolerance = (
        jobs.tolerance_of(settings, "llama_toy") or technique.TECHNIQUE["check"]["tolerance"]
    )
    assert job.error() <= tolerance
    loss = job.training.loss_of
    monkeypatch.setattr(job.training, "loss_of", lambda *batch: 1.2 * loss(*batch))
    with pytest.raises(Exception, match=r"gradients are 1\.2\d* times as large as TF32's"):
        job.error()


def test_a_layer_without_its_gradient_is_found(technique: ModuleType) -> None:
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, ["torch_default"])
    norm = job.training.model.layers[1].input_layernorm
    norm.weight.register_hook(torch.zeros_like)
    with pytest.raises(Exception, match=r"no gradient reaches layers\.1\.input_layernorm\.weight"):
        job.error()


def test_an_optimizer_that_does_nothing_is_found(technique: ModuleType) -> None:
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, ["torch_default"])
    job.training.optimizer.step = lambda: None
    with pytest.raises(Exception, match=r"losses of 5 steps are 0\.\d+ from TF32's: 4\.\d+, 4"):
        job.error()


def test_a_loss_that_is_not_finite_is_found(technique: ModuleType) -> None:
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, ["torch_default"])
    loss = job.training.loss_of
    job.training.loss_of = lambda *batch: loss(*batch) * float("nan")
    with pytest.raises(Exception, match="gradients are nan times as large as TF32's"):
        job.error()


@pytest.mark.parametrize("arm", ["fp8", "cut_cross_entropy"])
def test_what_a_processor_cannot_do_is_skipped(technique: ModuleType, arm: str) -> None:
    with pytest.raises(Exception, match="products of 8-bit floats need a GPU"):
        technique.make(arm, TOY, 7, None)


@pytest.mark.parametrize(("model", "names"), [("llama_toy", 2 * ["Layer"]), ("gpt_toy", ["Gpt"])])
def test_small_layers_are_compiled_together(
    technique: ModuleType, uncompiled: list[Any], model: str, names: list[str]
) -> None:
    jobs.Job(model, torch.device("cpu"), 7, technique.RUNGS[:5])
    *body, _ = uncompiled  # the loss
    assert [type(one.__self__).__name__ for one in body] == names


def test_images_have_the_settings_but_for_a_loss_of_words(
    technique: ModuleType, uncompiled: list[Any]
) -> None:
    job = jobs.Job("vit_toy", torch.device("cpu"), 7, technique.RUNGS[:5])
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]
    assert [type(one.__self__).__name__ for one in uncompiled] == 2 * ["VitLayer"]
    with pytest.raises(Exception, match="images have few classes"):
        technique.make("cut_cross_entropy", {"model": "vit_toy"}, 7, None)


def test_an_arm_counts_its_work(technique: ModuleType) -> None:
    arm = technique.make("bf16", TOY, 7, None)
    assert (arm.items, arm.item, arm.roof) == (8 * 32, "token", "")
    assert arm.flops == 8 * TEXT_SIZES["llama_toy"].flops_of_row()
    roofs = [jobs.roof_of(technique.RUNGS[:count]) for count in range(1, 8)]
    assert roofs == [f"gemm/{name}" for name in ("fp32", "tf32", *["bf16"] * 3, "fp8", "fp8")]
