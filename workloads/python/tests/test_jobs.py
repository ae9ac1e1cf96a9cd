"""What is wrong with a training step is refused, and what FP8 rounds off is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
float8 = pytest.importorskip("torchao.float8")

from gpulift_work import fp8, jobs, llama, training  # noqa: E402

HOST = torch.device("cpu")
SETTINGS = ("bf16", "fused_adamw", "fp8")
BF16_ERROR = 0.0033  # of the toy


@pytest.fixture(name="emulated", autouse=True)
def emulated_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao's own, of which a host rounds the numbers as a card does; of all layers, as a toy's
    are all small."""

    def convert(model: Any, recipe: str, small: bool) -> None:
        config = float8.Float8LinearConfig.from_recipe_name(recipe)
        float8.convert_to_float8_training(model, config=replace(config, emulate=True))

    monkeypatch.setattr(jobs, "convert_to_fp8", convert)


def job_of(recipe: str = "tensorwise") -> jobs.Job:
    """A toy's, in FP8."""
    return jobs.Job("llama_toy", HOST, 7, SETTINGS, recipe)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_fp8_passes(recipe: str) -> None:
    job = job_of(recipe)
    job.checked_steps = 2
    error = job.error()
    assert 0 < error < jobs.FP8_TOLERANCE
    assert error > 2 * BF16_ERROR  # it is FP8


def hook_all(parameters: Any, hook: Callable[[Any], Any]) -> None:
    for parameter in parameters:
        parameter.register_hook(hook)


def test_a_layer_whose_gradient_is_halved_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of()
    job.bounds = replace(jobs.BOUNDS, norm_of_all=1.0)  # in which one of many would not show
    hook_all(job.training.model.layers[1].parameters(), lambda gradient: gradient / 2)
    with pytest.raises(Exception, match=r"layers\.1\.\S+'s gradient is 0\.[45]\d* times TF32's"):
        job.error()


def test_gradients_a_fifth_too_large_are_refused() -> None:
    job = job_of()
    hook_all(job.parameters, lambda gradient: 1.2 * gradient)
    with pytest.raises(Exception, match=r"gradients are 1\.\d+ times as large as TF32's"):
        job.error()


def test_so_is_a_gradient_that_points_elsewhere() -> None:
    job = job_of()
    weight = job.training.model.layers[0].mlp.up_proj.weight
    weight.register_hook(lambda gradient: gradient.roll(1, 0))
    with pytest.raises(
        Exception, match=r"layers\.0\.mlp\.up_proj\.weight's gradient has a cosine of"
    ):
        job.error()


def test_a_gradient_that_is_no_number_is_refused() -> None:
    job = job_of()
    job.training.model.norm.weight.register_hook(lambda gradient: gradient * torch.nan)
    with pytest.raises(Exception, match="gradients are nan times as large as TF32's"):
        job.error()


@pytest.mark.parametrize("format_of", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_scales_that_are_8_times_too_large_are_refused(
    monkeypatch: pytest.MonkeyPatch, format_of: Any
) -> None:
    scaling = pytest.importorskip("torchao.float8.float8_scaling_utils")
    right = scaling.tensor_to_scale

    def wrong(tensor: Any, kind: Any, *given: Any) -> Any:
        return right(tensor, kind, *given) * (8 if kind == format_of else 1)

    monkeypatch.setattr(scaling, "tensor_to_scale", wrong)
    with pytest.raises(Exception, match="gradient"):
        job_of().error()


def test_small_layers_stay_in_bf16() -> None:
    with torch.device("meta"):
        layer = llama.Llama(replace(llama.LLAMA_SIZES["llama_1b"], layers=1)).layers
    fp8.convert_to_fp8(layer, "tensorwise", small=False)
    kept = [name for name, one in layer.named_modules() if type(one) is torch.nn.Linear]
    assert kept == ["0.self_attn.k_proj", "0.self_attn.v_proj"]
    fp8.convert_to_fp8(layer, "tensorwise")
    assert not any(type(one) is torch.nn.Linear for one in layer.modules())


@pytest.mark.parametrize(
    ("model", "by"), [("llama_toy", 0.01), ("gpt_toy", 0.02), ("vit_toy", 0.5)]
)
def test_layers_are_calmed_by_both_of_their_last_weights(model: str, by: float) -> None:
    torch.manual_seed(7)
    first = training.make_model(model)
    calm = training.make_model(model)
    calm.load_state_dict(first.state_dict())
    jobs.calm_layers(calm)
    theirs = dict(first.named_parameters())
    changed = [
        (name, float(one.detach().norm() / theirs[name].detach().norm()))
        for name, one in calm.named_parameters()
        if not torch.equal(one, theirs[name])
    ]
    assert [ratio for _, ratio in changed] == pytest.approx([by] * 2 * len(first.layers))
