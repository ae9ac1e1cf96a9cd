"""precision/training_step: its arms train alike, in their own formats, and count their work."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

TOY = {"model": "gpt_toy"}
ARMS = ["tf32", "bf16"]


@pytest.fixture(name="switches", autouse=True)
def switches_that_are_put_back() -> Iterator[Any]:
    """torch.backends: a process has one arm, and tests have many."""
    yield torch.backends
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


def test_an_arm_counts_its_tokens(technique: ModuleType) -> None:
    arm = technique.make("bf16", TOY, 7, None)
    assert (arm.items, arm.item, arm.roof) == (8 * 32, "token", "")
    assert arm.metrics() == {}, "the host counts no memory of a device"


@pytest.mark.parametrize("name", ARMS)
def test_steps_without_an_update_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(technique.Training, "step", technique.Training.make_gradients)
    monkeypatch.setattr(technique, "reference_losses", lambda *_: exact_losses(technique))
    arm = technique.make(name, TOY, 7, None)
    arm.step()
    assert arm.error() > 2 * technique.TECHNIQUE["check"]["tolerance"]


def exact_losses(technique: ModuleType) -> list[float]:
    training = technique.Training("gpt_toy", torch.device("cpu"), 7, plain=True)
    for _ in range(technique.CHECKED_STEPS):
        training.make_gradients()
        training.optimizer.step()
        training.record()
    losses: list[float] = training.losses
    return losses


@pytest.mark.parametrize("name", ARMS)
def test_autocast_is_the_one_difference(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, switches: Any, name: str
) -> None:
    kinds, allowed = set(), []
    linear = torch.nn.Linear.forward
    reference = technique.reference_losses

    def noted(layer: Any, given: Any) -> Any:
        found = linear(layer, given)
        kinds.add(found.dtype)
        return found

    def looked(*given: Any) -> Any:
        allowed.append((switches.cuda.matmul.allow_tf32, switches.cudnn.allow_tf32))
        return reference(*given)

    monkeypatch.setattr(technique, "reference_losses", looked)
    arm = technique.make(name, TOY, 7, None)
    allowed.append((switches.cuda.matmul.allow_tf32, switches.cudnn.allow_tf32))
    assert allowed == [(False, False), (True, True)]
    assert not switches.cudnn.benchmark
    monkeypatch.setattr(torch.nn.Linear, "forward", noted)
    arm.step()
    assert kinds == {torch.bfloat16 if name == "bf16" else torch.float32}


def test_work_is_that_of_the_arms_in_cpp(technique: ModuleType) -> None:
    found = {name: technique.flops_of_step(name) for name in technique.TECHNIQUE["sweep"]["model"]}
    assert found["gpt2"] == 7.001333563392e12
    assert found["resnet50_128"] == 3.110281936896e12
    assert found["gpt_toy"] == counted_flops(technique, "gpt_toy")


def test_work_is_what_torch_counts(technique: ModuleType) -> None:
    pytest.importorskip("torchvision")
    per_image = technique.flops_of_step("resnet50_128") / technique.TWINS["resnet50_128"].batch
    assert per_image == counted_flops(technique, "resnet50_128", batch=1)


def counted_flops(technique: ModuleType, name: str, batch: int | None = None) -> int:
    """Of a step without data."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        training = technique.Training(name, torch.device("meta"), 7, plain=True, batch=batch)
        training.loss_of(training.input, training.target).backward()
    return int(counter.get_total_flops())


def test_a_card_without_the_formats_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type="cuda"))
    with pytest.raises(Exception, match="the GPU has no TF32 and no BF16"):
        technique.make("tf32", {"model": "gpt2"}, 7, 0)


@pytest.mark.parametrize("name", ["gpt2", "resnet50_128"])
def test_real_sizes_need_a_gpu(technique: ModuleType, name: str) -> None:
    with pytest.raises(Exception, match=f"a training step of {name} takes seconds on a processor"):
        technique.make("bf16", {"model": name}, 7, None)
