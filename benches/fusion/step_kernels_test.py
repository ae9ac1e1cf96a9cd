"""fusion/step_kernels: kernels take the place of torch's, with the same weights."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import llama, training  # noqa: E402

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


def test_a_wrong_kernel_is_found(
    technique: ModuleType, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use = technique.use_kernels

    def use_wrong(model: Any, kernels: tuple[str, ...]) -> None:
        use(model, ("swiglu",))
        for layer in model.layers:
            layer.mlp.gated = lambda gate, values: torch.sigmoid(gate) * values

    arm = technique.make("torch", TOY, 7, None)
    assert arm.error() <= arm.tolerance
    monkeypatch.setattr(technique, "use_kernels", use_wrong)
    wrong = technique.make("torch", TOY, 7, None)
    assert wrong.error() > wrong.tolerance
    assert not calls


@pytest.mark.parametrize("name", ["norm", "swiglu", "rotation", "all"])
def test_kernels_of_the_library_need_a_gpu(technique: ModuleType, name: str) -> None:
    with pytest.raises(Exception, match="Liger's kernels need a GPU"):
        technique.make(name, TOY, 7, None)
