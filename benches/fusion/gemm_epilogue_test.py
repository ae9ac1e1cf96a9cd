"""The Python arms of fusion/gemm_epilogue: bias and GELU are part of what they make."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402

POINT = {"shape": "48x130x72"}
TOLERANCE = 0.0115  # twice that of bf16: workloads/matmul_type.cpp


@pytest.fixture(name="eager")
def without_a_compiler(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """eager: what is compiled runs as it is."""
    monkeypatch.setattr(technique, "require_kernels_of", lambda arm, device: None)
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", ["torch", "compiled"])
def test_a_step_is_that_of_double_precision(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, POINT, 7, None)
    arm.step()
    error = arm.error()
    assert 0 < error <= TOLERANCE
    arm.step()
    assert arm.error() == error


@pytest.mark.parametrize("wrong", ["no bias", "no GELU"])
def test_what_is_left_out_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    functional = torch.nn.functional

    def partly(rows: Any, weights: Any, bias: Any) -> Any:
        product = functional.linear(rows, weights, None if wrong == "no bias" else bias)
        return product if wrong == "no GELU" else functional.gelu(product, approximate="tanh")

    monkeypatch.setattr(technique, "forward_of", lambda arm, device: partly)
    arm = technique.make("torch", POINT, 7, None)
    arm.step()
    assert arm.error() > TOLERANCE


@pytest.mark.usefixtures("idle_graphs")
def test_a_graph_that_multiplies_nothing_is_found(technique: ModuleType) -> None:
    arm = technique.make("torch", POINT, 7, None)
    arm.step()
    assert not arm.error() <= TOLERANCE


def test_buffers_take_turns_and_the_latest_is_checked(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped: list[Any] = []

    class Replay:
        def __init__(self, begin: Any, _device: Any) -> None:
            self.work, self.results = begin(), ()

        def step(self) -> None:
            self.results = self.work()
            stepped.append(self)

    sizes: list[int] = []

    def three_sets(_device: Any, size: int) -> int:
        sizes.append(size)
        return 3

    monkeypatch.setattr(technique, "sets_beyond_cache", three_sets)
    monkeypatch.setattr(technique, "Replay", Replay)
    arm = technique.make("torch", POINT, 7, None)
    for _ in range(4):
        arm.step()
    assert sizes == [2 * (48 * 72 + 130 * 72 + 48 * 130)], "operands and result, as in C++"
    assert len(set(stepped)) == 3
    assert all(one is not other for one, other in pairwise(stepped))
    assert len({one.results[0].data_ptr() for one in stepped}) == 3
    assert arm.error() <= TOLERANCE
    stepped[1].results[0].detach().fill_(torch.nan)
    assert arm.error() <= TOLERANCE, "another's"
    stepped[3].results[0].detach().fill_(torch.nan)
    assert not arm.error() <= TOLERANCE


def test_a_step_is_that_of_a_training(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def replay(begin: Any, _device: Any) -> Any:
        begun.append(begin())
        return SimpleNamespace(step=begun[0], results=())

    monkeypatch.setattr(technique, "Replay", replay)
    technique.make("torch", POINT, 7, None)
    (made,) = begun[0]()
    product = made.grad_fn._saved_self
    assert product.shape == made.shape, "what GELU was taken of is kept"
    ((linear, _),) = made.grad_fn.next_functions
    sources = [source for source, _ in linear.next_functions]
    assert len(sources) == 3, "bias, rows and weights"
    assert None not in sources, "each has a gradient"


def test_torchs_own_call_has_the_same_operands_and_keeps_nothing(technique: ModuleType) -> None:
    shapes = (130, 72), (48, 72), (48,)
    rows, weights, bias = (torch.randn(shape).requires_grad_() for shape in shapes)
    made = technique.in_one_call(rows, weights, bias)
    assert not made.requires_grad
    torch.testing.assert_close(made, technique.layer(rows, weights, bias), atol=1e-3, rtol=0)


def test_torchs_own_call_is_left_out_where_it_is_another_function(technique: ModuleType) -> None:
    with pytest.raises(Skip, match="error function"):
        technique.make("addmm_activation", POINT, 7, None)
