"""How far gradients are from those of another step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe.gradients import Gradients  # noqa: E402
from torch import nn  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

from tests.advise import steps  # noqa: E402

pytestmark = pytest.mark.world


@pytest.fixture(name="gradients")
def _gradients() -> Iterator[Gradients]:
    """Behind each step of any optimizer, as anchors have it."""
    made = Gradients()
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: made.look(optimizer))
    yield made
    hook.remove()


class Training:
    """Two weights, one of which has no gradient, and an optimizer."""

    def __init__(self, **options: Any) -> None:
        self.weight = nn.Parameter(torch.zeros(2))
        idle = nn.Parameter(torch.zeros(2))
        self.optimizer = torch.optim.SGD([self.weight, idle], lr=0.1, **options)

    def step(self, *gradient: float) -> None:
        """With that gradient."""
        self.weight.grad = torch.tensor(gradient)
        self.optimizer.step()


def test_relative_to_the_first_step(gradients: Gradients) -> None:
    training = Training()
    gradients.keep()
    training.step(3.0, 4.0)
    for gradient, distance in (((3.0, 4.0), 0.0), ((3.0, 4.5), 0.1), ((0.0, 0.0), 1.0)):
        gradients.compare()
        training.step(*gradient)
        assert gradients.distance() == pytest.approx(distance)
    gradients.stop()
    training.step(9.0, 9.0)  # of nobody's interest
    assert gradients.distance() == pytest.approx(1.0)


def test_gradients_that_are_no_numbers(gradients: Gradients) -> None:
    training = Training()
    gradients.keep()
    training.step(3.0, 4.0)
    gradients.compare()
    training.step(math.nan, 4.0)
    distance = gradients.distance()
    assert distance is not None
    assert math.isnan(distance)


def test_no_gradients(gradients: Gradients) -> None:
    training = Training()
    gradients.keep()
    training.optimizer.step()
    gradients.compare()
    training.step(3.0, 4.0)
    assert gradients.distance() is None


def test_sparse_ones(gradients: Gradients) -> None:
    rows = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(rows.parameters(), lr=0.1)
    for look, factor in ((gradients.keep, 1.0), (gradients.compare, 1.5)):
        look()
        optimizer.zero_grad()
        (rows(torch.tensor([1, 1])) * factor).sum().backward()
        optimizer.step()
    assert gradients.distance() == pytest.approx(0.5)


def test_of_one_that_unscales_itself(gradients: Gradients) -> None:
    parameter = nn.Parameter(torch.ones(1))
    """A fused kernel leaves its gradients unscaled."""
    for look, options in ((gradients.keep, {}), (gradients.compare, {"fused": True})):
        look()
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        optimizer = torch.optim.SGD([parameter], lr=0.1, **options)
        steps.scaled(scaler, optimizer, parameter, 1.0)
    assert gradients.distance() == 0


def test_of_one_that_makes_them_by_a_closure(gradients: Gradients) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def closed(factor: float) -> Callable[[], Any]:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = (parameter * factor).sum()
            loss.backward()
            return loss

        return closure

    for look, factor in ((gradients.keep, 1.0), (gradients.compare, 1.5)):
        look()
        optimizer.step(closed(factor))
    assert gradients.distance() == pytest.approx(0.5)
