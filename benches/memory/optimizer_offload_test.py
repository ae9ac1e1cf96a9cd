"""memory/optimizer_offload: the host's weights are the GPU's after each step, or it is found."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ARMS = ["on_gpu", "offloaded", "overlapped"]
TOLERANCE = 1e-3


def make(technique: ModuleType, name: str) -> Any:
    """An arm on the host: its copies are then beside the weights."""
    return technique.arm_of(name, "gpt_toy", 7, torch.device("cpu"), 1)


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_takes_adamws_steps(technique: ModuleType, name: str) -> None:
    arm = make(technique, name)
    arm.step()
    assert arm.error() < TOLERANCE


@pytest.mark.parametrize("name", ARMS[1:])
def test_weights_that_do_not_come_back_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arm = make(technique, name)
    monkeypatch.setattr(technique.HostOptimizer, "bring_up", lambda self, place: None)
    arm.step()
    assert arm.error() == pytest.approx(1, rel=1e-3)


def test_gradients_that_arrive_too_late_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = make(technique, "offloaded")
    right = technique.send_down
    late: dict[int, Any] = {}

    def send_the_last(parameter: Any, copy: Any) -> None:
        now = parameter.grad.clone()
        right(parameter, copy)
        copy.grad.copy_(late.get(id(copy), torch.zeros_like(now)))
        late[id(copy)] = now

    monkeypatch.setattr(technique, "send_down", send_the_last)
    arm.step()
    assert arm.error() > 0.1


def test_the_overlapped_arm_sends_gradients_while_the_backward_pass_runs(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    right = technique.send_down

    def noted(parameter: Any, copy: Any) -> None:
        sent.append(parameter)
        right(parameter, copy)

    monkeypatch.setattr(technique, "send_down", noted)
    training = technique.Training("gpt_toy", torch.device("cpu"), 7)
    parameters = list(training.model.parameters())
    training.optimizer = technique.OverlappedHostOptimizer(
        "gpt_toy", parameters, torch.device("cpu")
    )
    training.make_gradients()
    assert len(sent) == len(parameters)
    assert sent[0] is not parameters[0]  # the last layers come first
