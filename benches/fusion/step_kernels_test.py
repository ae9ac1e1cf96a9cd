"""fusion/step_kernels: kernels take the place of torch's, with the same weights."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import llama, training  # noqa: E402
from gpulift_worker import Failed  # noqa: E402

TOY = {"model": "llama_toy", "form": "eager"}


def rms_norm(state: Any, weight: Any, epsilon: float) -> Any:
    return torch.nn.functional.rms_norm(state, weight.shape, weight, epsilon)


def rope(query: Any, key: Any, cosine: Any, sine: Any) -> Any:
    return llama.rotated_both(query, key, torch.stack([cosine, sine]))


@pytest.fixture(name="calls")
def library_of_torch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In the library's place what it stands for, which runs on a processor; the names of calls."""
    calls: list[str] = []

    def noted(name: str, work: Any) -> Any:
        def call(*values: Any) -> Any:
            calls.append(name)
            return work(*values)

        return call

    functional = SimpleNamespace(
        liger_rms_norm=noted("norm", rms_norm),
        liger_swiglu=noted("swiglu", llama.silu_gated),
        liger_rope=noted("rotation", rope),
    )
    monkeypatch.setitem(sys.modules, "liger_kernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers.functional", functional)
    return calls


@pytest.mark.parametrize(
    ("kernels", "counts"),
    [
        (("torch",), {}),
        (("norm",), {"norm": 5}),
        (("swiglu",), {"swiglu": 2}),
        (("rotation",), {"rotation": 2}),
        (("norm", "swiglu", "rotation"), {"norm": 5, "swiglu": 2, "rotation": 2}),
    ],
)
def test_an_arm_calls_its_kernels_and_makes_the_same_gradients(
    technique: ModuleType, calls: list[str], kernels: tuple[str, ...], counts: dict[str, int]
) -> None:
    model = llama.Llama(llama.LLAMA_SIZES["llama_toy"])
    batch = training.make_batch("llama_toy", 2)
    training.Loss(model)(*batch).backward()
    expected = training.gradients_of(model)
    names = [name for name, _ in model.named_parameters()]
    technique.use_kernels(model, kernels)
    assert [name for name, _ in model.named_parameters()] == names, "drawn in this order"
    model.zero_grad()
    training.Loss(model)(*batch).backward()
    assert {name: calls.count(name) for name in calls} == counts
    assert training.distance(training.gradients_of(model), expected) < 1e-6


def ungated(gate: Any, values: Any) -> Any:
    return torch.sigmoid(gate) * values


def norm_with_half_the_gradient_of_its_weight(state: Any, weight: Any, epsilon: float) -> Any:
    return rms_norm(state, weight / 2 + (weight / 2).detach(), epsilon)


def rotation_of_keys_alone(query: Any, key: Any, *rotation: Any) -> Any:
    return query, rope(query, key, *rotation)[1]


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("kernel", "wrong"),
    [
        ("liger_swiglu", ungated),
        ("liger_rms_norm", norm_with_half_the_gradient_of_its_weight),
        ("liger_rope", rotation_of_keys_alone),
    ],
)
def test_a_wrong_kernel_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, kernel: str, wrong: Any
) -> None:
    use = technique.use_kernels
    monkeypatch.setattr(technique, "use_kernels", lambda model, _: use(model, technique.KERNELS))
    assert not refused(technique)
    monkeypatch.setattr(sys.modules["liger_kernel.transformers.functional"], kernel, wrong)
    assert refused(technique)


def refused(technique: ModuleType) -> bool:
    """By its bounds, or its tolerance."""
    arm = technique.make("torch", TOY, 7, None)
    try:
        return bool(arm.error() > technique.TECHNIQUE["check"]["tolerance"])
    except Failed:
        return True


@pytest.mark.parametrize("name", ["norm", "swiglu", "rotation", "all"])
def test_kernels_of_the_library_need_a_gpu(technique: ModuleType, name: str) -> None:
    with pytest.raises(Exception, match="Liger's kernels need a GPU"):
        technique.make(name, TOY, 7, None)
