"""batch/large_batch_optimizer: the optimizers' rules, what a training is, and one that fails."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.shapes import PIXELS, SHAPES, draw  # noqa: E402

CPU = torch.device("cpu")
TOY = {"model": "conv_toy", "batch": 256, "equal": "samples"}


@pytest.fixture(name="short", autouse=True)
def short_trainings(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixteenth of a record's, of two seeds."""
    for name, value in (("SAMPLES", {"conv_toy": 1024}), ("SEEDS", 2), ("HELD_OUT", 512)):
        monkeypatch.setattr(technique, name, value)


# --- What it is made of ---


def seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


def test_images_are_those_of_their_seed() -> None:
    images, kinds = draw(8, seeded(7))
    assert images.shape == (8, 3, PIXELS, PIXELS)
    again, same = draw(8, seeded(7))
    assert torch.equal(images, again)
    assert torch.equal(kinds, same)
    assert not torch.equal(images, draw(8, seeded(8))[0])


def test_every_kind_comes_and_no_shape_is_another() -> None:
    assert set(draw(500, seeded(7))[1].tolist()) == set(range(10))
    axis = torch.linspace(-1.2, 1.2, 64)
    u, v = axis[None, :], axis[:, None]
    masks = [is_inside(u, v).float() for is_inside in SHAPES]
    assert all(0.05 < float(mask.mean()) < 0.8 for mask in masks)
    apart = [float((a - b).abs().mean()) for i, a in enumerate(masks) for b in masks[:i]]
    assert min(apart) > 0.03


# --- Its arms ---


def after_steps(technique: ModuleType, name: str, start: list[float], steps: int) -> Any:
    """A weight of one row whose gradient is always 1, 2."""
    weight = torch.nn.Parameter(torch.tensor([start]))
    optimizer = technique.OPTIMIZERS[name]([weight], 0.5)
    for _ in range(steps):
        weight.grad = torch.tensor([[1.0, 2.0]])
        optimizer.step()
    return weight.detach()[0]


def test_convolutions_may_use_tf32_as_torch_has_it(technique: ModuleType) -> None:
    technique.make("sgd", TOY, 7, None)
    assert torch.backends.cudnn.allow_tf32


def test_lars_moves_a_weight_by_a_share_of_its_norm(technique: ModuleType) -> None:
    weight = torch.tensor([3.0, 4.0])
    change = torch.tensor([1.0, 2.0]) + technique.DECAY * weight
    moved = 0.5 * technique.TRUST * 5 * change / change.norm()
    assert torch.allclose(after_steps(technique, "lars", [3.0, 4.0], 1), weight - moved)
    first, second = (after_steps(technique, "lars", [3.0, 4.0], steps) for steps in (1, 2))
    assert torch.allclose(first - second, 1.9 * moved, rtol=0.02)


def test_lamb_moves_a_weight_by_its_norm_whatever_the_gradients(technique: ModuleType) -> None:
    found = after_steps(technique, "lamb", [3.0, 4.0], 1)
    moved = torch.tensor([3.0, 4.0]) - found
    assert float(moved.norm()) == pytest.approx(0.5 * 5, rel=1e-3)
    assert float(moved[0]) == pytest.approx(float(moved[1]), rel=1e-3)  # as Adam's first step


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_biases_have_the_plain_rule_and_zeros_can_move(technique: ModuleType, name: str) -> None:
    assert after_steps(technique, name, [0.0, 0.0], 1).abs().min() > 0
    bias = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = technique.OPTIMIZERS[name]([bias], 0.5)
    bias.grad = torch.tensor([1.0, 2.0])
    optimizer.step()
    moved = torch.tensor([3.0, 4.0]) - bias.detach()
    wanted = [0.5, 1.0] if name == "lars" else [0.5, 0.5]
    assert torch.allclose(moved, torch.tensor(wanted), rtol=1e-3)


def test_only_the_scaled_rate_follows_the_batch(technique: ModuleType) -> None:
    rates = {
        arm: [technique.Trial(arm, "conv_toy", batch, 16, CPU).rate for batch in (64, 256)]
        for arm in ("sgd", "sgd_scaled", "lars")
    }
    assert rates["sgd"][0] == rates["sgd"][1] == rates["sgd_scaled"][0]
    assert rates["sgd_scaled"][1] == 4 * rates["sgd_scaled"][0]
    assert rates["lars"][0] == rates["lars"][1]


def test_a_training_takes_its_updates_and_is_the_same_again(technique: ModuleType) -> None:
    trial = technique.Trial("small_batch", "conv_toy", 64, 16, CPU)
    first, again, other = (trial.train(seed, 0.1) for seed in (7, 7, 8))
    assert first == again != other
    assert first.updates == tuple(range(1, 17))
    assert first.losses[-1] < first.losses[0] < 1.1 * math.log(10)


def test_an_arm_learns_and_tells_how_well(technique: ModuleType) -> None:
    arm = technique.make("small_batch", TOY, 7, None)
    arm.step()
    assert arm.items == 64
    assert arm.error() < 0.99
    metrics = arm.metrics()
    assert metrics["held_out_loss"] < 0.99 * math.log(10)
    assert (metrics["updates_to_target"], metrics["samples_to_target"]) == (16, 1024)
    assert metrics["reached_target_share"] == 0


@pytest.mark.parametrize(("equal", "updates"), [("samples", 4), ("updates", 16)])
def test_a_larger_batch_has_as_many_samples_or_updates(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, equal: str, updates: int
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(technique, "take_step", lambda *_: taken.append(1))
    technique.make("lars", TOY | {"equal": equal}, 7, None).error()
    assert len(taken) == (3 + 1) * updates  # at three rates, and with the other seed


@pytest.mark.parametrize("name", ["sgd_scaled", "lars", "lamb"])
def test_other_arms_take_the_batch_of_the_case(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, TOY, 7, None)
    arm.step()
    assert arm.items == 256


def test_an_arm_that_learns_nothing_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "take_step", lambda *_: None)
    assert not technique.make("small_batch", TOY, 7, None).error() < 0.99


def test_a_processor_trains_the_toy_alone(technique: ModuleType) -> None:
    with pytest.raises(technique.Skip, match="trainings of resnet18 take hours"):
        technique.make("lars", TOY | {"model": "resnet18"}, 7, None)
