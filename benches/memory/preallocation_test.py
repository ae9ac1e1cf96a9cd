"""memory/preallocation: what a round is, and what the first step at the largest length leaves."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(name="batches")
def round_of_the_toy(technique: ModuleType) -> Any:
    """A round on the host."""
    from gpulift_work.training import Training

    return technique.Round(Training("gpt_toy", torch.device("cpu"), 7), 32)


def test_a_round_has_the_same_lengths_again_of_which_3_are_longer_than_all_before(
    technique: ModuleType,
) -> None:
    found = technique.lengths_of_round(1024)
    assert found == technique.lengths_of_round(1024)
    assert len(set(itertools.accumulate(found, max))) == 3
    assert len(found) == 12
    assert 1 <= min(found) < 256 < 768 < max(found) <= 1024


def test_a_round_trains_on_each_length(batches: Any) -> None:
    lengths = []
    batches.steps(lambda: lengths.append(batches.training.input.shape[1]))
    assert lengths == batches.lengths
    assert batches.training.target.shape == batches.training.input.shape


def test_the_longest_step_first_changes_no_weight_and_leaves_no_gradient(batches: Any) -> None:
    start = [one.clone() for one in batches.training.model.parameters()]
    batches.warm_up()
    assert batches.training.input.shape[1] == 32
    assert all(map(torch.equal, start, batches.training.model.parameters()))
    assert all(one.grad is None for one in batches.training.model.parameters())


def test_arms_that_took_other_steps_have_another_loss(batches: Any, technique: ModuleType) -> None:
    other = technique.Round(
        type(batches.training)("gpt_toy", torch.device("cpu"), 7), batches.whole[0].shape[1]
    )
    other.warm_up()
    batches.step()
    other.step()
    assert batches.value() == pytest.approx(other.value(), rel=1e-6)
    other.training.losses.clear()
    assert batches.value() != pytest.approx(other.value(), rel=1e-3)


@pytest.mark.parametrize(("expandable", "wanted"), [(True, False), (False, True)])
def test_a_setting_that_torch_did_not_take_fails(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, expandable: bool, wanted: bool
) -> None:
    segments = [{"is_expandable": expandable}]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: segments)
    technique.require_segments(expandable=expandable)
    with pytest.raises(technique.Failed, match="did not take"):
        technique.require_segments(expandable=wanted)


def test_every_arm_says_how_its_pool_grows() -> None:
    from gpulift_manifest import manifest_of

    script = Path(__file__).with_name("preallocation.py")
    manifest = manifest_of("memory/preallocation", script)
    assert manifest["gpus"] == 1
    for arm in manifest["arms"]:
        expected = f"expandable_segments:{arm == 'expandable_segments'}"
        assert set(manifest["environment"][arm].values()) == {expected}
