"""precision/fp8_loss: that a broken scale costs more than is let pass and a right one does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import courses, llama, training  # noqa: E402

POINT = {"updates": 100}


@pytest.fixture(name="toy", autouse=True)
def toy_on_a_host(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """In FP32, uncompiled, of two seeds."""
    size = replace(llama.LLAMA_SIZES["llama_toy"], vocabulary=256)
    for sizes in (llama.LLAMA_SIZES, training.TEXT_SIZES):
        monkeypatch.setitem(sizes, technique.MODEL, size)
    monkeypatch.setitem(training.TWINS, technique.MODEL, training.TWINS["llama_toy"])
    for requirement in ("require_fp8", "require_compiler", "compile_layers"):
        monkeypatch.setattr(technique, requirement, lambda _: None)
    monkeypatch.setattr(technique, "SEEDS", 2)
    monkeypatch.setattr(technique, "RATE", 3e-3)
    monkeypatch.setattr(courses, "LOOKS", 1)


@pytest.fixture(name="emulated")
def emulated_products(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao's own, of which a host rounds the numbers as a card does."""
    float8 = pytest.importorskip("torchao.float8")

    def convert(model: Any, recipe: str) -> None:
        config = float8.Float8LinearConfig.from_recipe_name(recipe)
        float8.convert_to_float8_training(model, config=replace(config, emulate=True))

    monkeypatch.setattr(technique, "convert_to_fp8", convert)


@pytest.fixture(name="deviation")
def deviation_from_the_baseline(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], float]:
    """deviation(arm): of its value for one seed, relative, as the engine judges it. After 80
    updates a broken scale is 5 times as far off as a right one."""
    monkeypatch.setattr(technique, "SEEDS", 1)

    def deviation(arm: str) -> float:
        point = {"updates": 80}
        values = [technique.make(one, point, 7, None).value() for one in ("bf16", arm)]
        return float(abs(values[1] / values[0] - 1))

    return deviation


@pytest.mark.parametrize("arm", ["tensorwise", "rowwise"])
@pytest.mark.usefixtures("emulated")
def test_fp8_passes(technique: ModuleType, deviation: Callable[[str], float], arm: str) -> None:
    assert 0 < deviation(arm) < technique.TECHNIQUE["check"]["tolerance"]


@pytest.mark.usefixtures("emulated")
def test_a_scale_that_cuts_large_numbers_off_is_refused(
    technique: ModuleType, deviation: Callable[[str], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    scaling = pytest.importorskip("torchao.float8.float8_scaling_utils")
    right = scaling.tensor_to_scale
    monkeypatch.setattr(scaling, "tensor_to_scale", lambda *given: 8 * right(*given))
    assert deviation("tensorwise") > technique.TECHNIQUE["check"]["tolerance"]


def test_seeds_are_trainings_of_their_own(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, kept = [], []

    def train(job: Any, text: Any, rate: float, updates: int, seed: int) -> courses.Course:
        starts.append(float(job.model.output_weight.detach().sum()))
        kept.append((updates, seed, len(job.optimizer.state)))
        job.step()
        return courses.Course(rate, (updates,), (float(seed - 5),))

    monkeypatch.setattr(courses, "train_on_text", train)
    arm = technique.make("bf16", POINT, 7, None)
    arm.step()
    assert arm.value() == 2.5
    assert kept == [(100, 7, 0), (100, 8, 0)]  # without moments of what came before
    assert starts[0] != starts[1]
    assert arm.metrics() == {"held_out_loss": 2.5, "held_out_loss_sd": pytest.approx(0.5**0.5)}
    assert (arm.items, arm.roof) == (8 * 32, "gemm/bf16")
    assert "text_sha256" in arm.notes


def test_a_model_that_learns_nothing_proves_nothing(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "RATE", 1e-9)
    with pytest.raises(technique.Failed, match="learned no more than which bytes there are: 5"):
        technique.make("bf16", {"updates": 2}, 7, None).value()


def test_a_card_without_fp8_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "require_fp8", training.require_fp8)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type="cuda"))
    with pytest.raises(Exception, match="the GPU has no 8-bit floats"):
        technique.make("bf16", POINT, 7, 0)
