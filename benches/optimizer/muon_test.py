"""optimizer/muon: which weights Muon has, how long its steps are, and a model that learns."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

if not hasattr(torch.optim, "Muon"):
    pytest.skip("torch has no Muon", allow_module_level=True)

from gpulift_work import courses  # noqa: E402

CPU = torch.device("cpu")
TOY = {"model": "gpt_bytes_toy"}


@pytest.fixture(name="short", autouse=True)
def short_trainings(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of a record's, of two seeds, at the middle rate."""
    monkeypatch.setattr(courses, "FACTORS", (1.0,))
    monkeypatch.setattr(technique, "UPDATES", {"gpt_bytes_toy": 100})
    monkeypatch.setattr(technique, "SEEDS", 2)


def test_muon_has_the_matrices_of_blocks_and_adamw_all_else(technique: ModuleType) -> None:
    training = technique.training_of("muon", "gpt_bytes_toy", CPU, 7)
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
    optimizer = technique.training_of("muon", "gpt_bytes_toy", CPU, 7).optimizer
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    assert [part.param_groups[0]["lr"] for part in optimizer.parts] == [0.5, 0.5]


def test_a_step_is_as_long_as_adamws(technique: ModuleType) -> None:
    lengths = []
    for arm in ("adamw", "muon"):
        training = technique.training_of(arm, "gpt_bytes_toy", CPU, 7)
        weight = training.model.h[0].c_fc.weight
        start = weight.detach().clone()
        training.step()
        lengths.append(float((weight.detach() - start).norm()))
    assert 0.1 < lengths[1] / lengths[0] < 1


def test_an_arm_learns_text_and_says_from_which(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "TARGETS", {"gpt_bytes_toy": 3.1})
    made = technique.make("adamw", TOY, 7, None)
    made.step()
    assert made.error() < 0.99
    metrics = made.metrics()
    assert metrics["updates_to_target"] < 100
    assert metrics["tokens_to_target"] == metrics["updates_to_target"] * 8 * 32
    assert made.notes["text_bytes"].isdigit()


def test_an_arm_that_learns_nothing_is_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "RATES", {"gpt_bytes_toy": 1e-9})
    assert not technique.make("adamw", TOY, 7, None).error() < 0.99
