"""precision/fp8_step: which recipe an arm asks for, what it tells, and which cards lack FP8."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import jobs  # noqa: E402


@pytest.fixture(autouse=True)
def card_with_fp8(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(technique, "require_fp8", lambda device: None)
    monkeypatch.setattr(jobs, "require_fp8", lambda device: None)


@pytest.mark.parametrize("arm", ["bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_layers_are_converted_by_the_recipe_of_the_arm(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    recipes: list[str] = []
    monkeypatch.setattr(jobs, "convert_to_fp8", lambda model, recipe, small: recipes.append(recipe))
    technique.make(arm, {"model": "llama_toy", "form": "eager"}, 7, None)
    assert recipes == ([] if arm == "bf16" else [arm])


def test_an_arm_tells_its_error_and_how_far_its_losses_are(technique: ModuleType) -> None:
    arm = technique.make("bf16", {"model": "llama_toy", "form": "eager"}, 7, None)
    arm.step()
    arm.rest()
    assert 0 < arm.error() < technique.TECHNIQUE["check"]["tolerance"]
    found = arm.metrics()
    assert 0 < found["loss_deviation_of_5_steps"] < 1e-3
    assert found["gradient_norm_ratio"] == pytest.approx(1, abs=1e-3)
    assert 0.999 < found["least_gradient_cosine"] < 1


def test_a_card_without_fp8_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type="cuda"))
    with pytest.raises(Exception, match="the GPU has no 8-bit floats"):
        technique.make("bf16", {"model": "gpt2", "form": "eager"}, 7, 0)
