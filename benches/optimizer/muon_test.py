"""optimizer/muon: which weights Muon has, what the tokens can teach, and a model that learns."""

from __future__ import annotations

import math
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

if not hasattr(torch.optim, "Muon"):
    pytest.skip("torch has no Muon", allow_module_level=True)

from gpulift_work.chains import SUCCESSORS, Chain  # noqa: E402

CPU = torch.device("cpu")
TOY = {"model": "gpt_toy"}


@pytest.fixture(name="short", autouse=True)
def short_trainings(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a record's, of two seeds."""
    monkeypatch.setattr(technique, "STEPS", {"gpt_toy": 30})
    monkeypatch.setattr(technique, "SEEDS", 2)


def test_muon_has_the_matrices_of_blocks_and_adamw_all_else(technique: ModuleType) -> None:
    training = technique.training_of("muon", "gpt_toy", CPU, 7)
    rest, muon = training.optimizer.parts
    counts = [len(part.param_groups[0]["params"]) for part in (rest, muon)]
    assert sum(counts) == len(list(training.model.parameters()))
    assert counts[1] == 2 * 4
    start = [one.detach().clone() for one in training.model.parameters()]
    training.step()
    moved = zip(training.model.named_parameters(), start, strict=True)
    assert all(not torch.equal(one, old) for (_, one), old in moved)
    training.optimizer.zero_grad()
    assert all(one.grad is None for one in training.model.parameters())


def test_a_rate_is_that_of_both_parts(technique: ModuleType) -> None:
    optimizer = technique.training_of("muon", "gpt_toy", CPU, 7).optimizer
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    assert [part.param_groups[0]["lr"] for part in optimizer.parts] == [0.5, 0.5]


def test_a_step_is_as_long_as_adamws(technique: ModuleType) -> None:
    lengths = []
    for arm in ("adamw", "muon"):
        training = technique.training_of(arm, "gpt_toy", CPU, 7)
        weight = training.model.h[0].c_fc.weight
        start = weight.detach().clone()
        training.step()
        lengths.append(float((weight.detach() - start).norm()))
    assert 0.1 < lengths[1] / lengths[0] < 1


@pytest.mark.parametrize("arm", ["adamw", "muon"])
def test_an_arm_learns_but_not_what_is_not_there(technique: ModuleType, arm: str) -> None:
    made = technique.make(arm, TOY, 7, None)
    made.step()
    assert made.error() < 0.99
    metrics = made.metrics()
    assert metrics["entropy"] - 0.1 < metrics["held_out_loss"] < math.log(64)
    assert metrics["steps_to_target"] <= 30


def test_an_arm_that_learns_nothing_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "RATES", {"gpt_toy": 1e-9})
    assert not technique.make("adamw", TOY, 7, None).error() < 0.99


def test_tokens_follow_the_chain_as_often_as_it_says() -> None:
    chain = Chain(64, 7, torch.device("cpu"))
    tokens = chain.draw(50, 200, torch.Generator().manual_seed(3))
    assert torch.equal(tokens, chain.draw(50, 200, torch.Generator().manual_seed(3)))
    first, then = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
    follows = (chain.next[first] == then[:, None]).any(dim=1)
    assert bool(follows.all())
    likeliest = float((chain.next[first, 0] == then).double().mean())
    assert likeliest == pytest.approx(float(chain.likely[0]), abs=0.02)


def test_the_entropy_is_that_of_the_successors() -> None:
    chances = [1 / n for n in range(1, SUCCESSORS + 1)]
    chances = [one / sum(chances) for one in chances]
    expected = -sum(one * math.log(one) for one in chances)
    assert Chain(32, 1, torch.device("cpu")).entropy == pytest.approx(expected)
