"""convolution/depthwise: what replaces a convolution, how much work it is, and what is found."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

CPU = torch.device("cpu")
ARMS = ["dense", "grouped", "separable"]


@pytest.fixture(name="few_steps", autouse=True)
def fewer_steps(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a ResNet takes a while on a host."""
    monkeypatch.setattr(technique, "CHECKED_STEPS", 2)


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_has_the_losses_of_the_same_network(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, {"model": "resnet18"}, 7, None)
    arm.step()
    assert arm.error() < arm.tolerance == 1e-3
    assert arm.items == 32


def test_other_weights_are_found(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        technique,
        "exact_losses",
        lambda *_: technique_losses(technique, "grouped"),
    )
    arm = technique.make("separable", {"model": "resnet18"}, 7, None)
    arm.step()
    assert arm.error() > 0.03


def technique_losses(technique: ModuleType, arm: str) -> list[float]:
    training = technique.training_of(arm, "resnet18", CPU, 7)
    training.optimizer.param_groups[0]["lr"] = 0.5
    training.train_until(2)
    losses: list[float] = training.losses
    return losses


@pytest.mark.parametrize("name", ARMS[1:])
def test_a_replacement_has_the_same_shape(technique: ModuleType, name: str) -> None:
    dense = torch.nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False)
    other: Any = getattr(technique, name)(dense)
    given = torch.randn(2, 64, 9, 9)
    assert other(given).shape == dense(given).shape
    weights = sum(one.numel() for one in other.parameters())
    assert weights == {"grouped": 9 * 64 * 128 // 32, "separable": 9 * 64 + 64 * 128}[name]


def test_less_work_is_counted(technique: ModuleType) -> None:
    flops = {}
    for name in ARMS:
        training = technique.training_of(name, "resnet18", CPU, 7)
        kinds = [one for one in training.model.modules() if isinstance(one, torch.nn.Conv2d)]
        dense = [one for one in kinds if one.kernel_size == (3, 3) and one.groups == 1]
        assert len(dense) == (16 if name == "dense" else 0)
        flops[name] = technique.size_of(training)["forward_flops"]
    assert flops["grouped"] < flops["separable"] < flops["dense"] / 4
