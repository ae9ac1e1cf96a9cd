"""sparsity/pruning: which weights are left, and that products with others are found."""

from __future__ import annotations

import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

CPU = torch.device("cpu")


class Compressed(SimpleNamespace):
    """Stands for the library's tensor: the same products on a host."""

    def t(self) -> Any:
        return self.dense.t()

    def to_dense(self) -> Any:
        return self.dense.t().contiguous().t()  # by columns, as the library with fused transposes

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.dense


def larger_two(weight: Any) -> Any:
    """Of each four in a row."""
    assert weight.dtype == torch.bfloat16
    fours = weight.reshape(-1, 4)
    kept = fours.abs().topk(2, dim=1).indices
    mask = torch.zeros_like(fours).scatter_(1, kept, 1.0)
    return (fours * mask).view(weight.shape)


def compressed(pruned: Any, transposed: Any = None) -> Compressed:
    """Of rows, which is all that the library takes."""
    assert pruned.is_contiguous()
    if transposed is not None:
        assert transposed.is_contiguous()
        assert torch.equal(transposed.t(), pruned)
    return Compressed(dense=pruned)


@pytest.mark.parametrize("name", ["dense", "unstructured"])
def test_an_arm_trains_with_the_weights_that_are_left(technique: ModuleType, name: str) -> None:
    arm = technique.make(name, {"model": "gpt_toy", "task": "step"}, 7, None)
    arm.step()
    assert arm.error() < arm.tolerance


def test_pruned_weights_stay_zero_in_training(technique: ModuleType) -> None:
    training = technique.Training("gpt_toy", CPU, 7)
    technique.prune_anywhere(training)
    layers = technique.linears_of(training.model)
    zeros = [one.weight == 0 for one in layers.values()]
    assert len(zeros) == 8
    assert all(0.49 < float(one.float().mean()) < 0.51 for one in zeros)
    training.step()
    assert all(
        torch.equal(one.weight == 0, zero) for one, zero in zip(layers.values(), zeros, strict=True)
    )


def two_four(technique: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A toy in training, whose products are those of the host."""
    monkeypatch.setattr(technique, "two_of_four", larger_two)
    monkeypatch.setattr(technique, "compressed", compressed)
    training = technique.Training("gpt_toy", CPU, 7)
    training.bf16 = True
    technique.replace_linears(training.model, technique.TwoFourLinear)
    return training


def test_two_of_four_gives_the_gradients_of_what_is_left(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = two_four(technique, monkeypatch)
    whole = dict(training.model.state_dict())
    training.step()
    left = technique.weights_left(training.model)
    assert technique.error_of(training, training.step, left) < 0.03
    # Against all weights: the check tells them apart.
    assert technique.error_of(training, training.step, whole) > 0.1


def test_inference_keeps_what_is_left_alone(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = two_four(technique, monkeypatch)
    whole = dict(training.model.state_dict())
    given_up = [weakref.ref(one.weight) for one in technique.linears_of(training.model).values()]
    logits = technique.work_of("inference", training)
    assert [one() for one in given_up] == [None] * 8
    assert logits().shape == (8, 64)
    left = technique.weights_left(training.model)
    assert technique.error_of(training, logits, left) < 0.03
    assert technique.error_of(training, logits, whole) > 0.1


def of_other_places(pruned: Any, *_: Any) -> Compressed:
    """As if each four were read by another format."""
    return Compressed(dense=pruned.view(-1, 4).roll(1, dims=1).view(pruned.shape))


def test_weights_that_are_read_by_another_format_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = two_four(technique, monkeypatch)
    monkeypatch.setattr(technique, "compressed", of_other_places)
    training.step()
    left = technique.weights_left(training.model)
    with pytest.raises(technique.Failed, match=r"products of 256 rows .* off, of 256 rows 1"):
        technique.error_of(training, training.step, left)
    with pytest.raises(technique.Failed, match="not the one that was compressed"):
        technique.work_of("inference", training)


def test_products_that_are_wrong_for_a_whole_batch_alone_are_found(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = two_four(technique, monkeypatch)

    class WrongForAll(Compressed):
        """As a library is whose kernel for large products is wrong."""

        def t(self) -> Any:
            return WrongForAll(dense=self.dense.t())

        def __rmatmul__(self, other: Any) -> Any:
            found = other @ self.dense
            return found.roll(1, dims=0) if len(other) == training.input.numel() else found

    monkeypatch.setattr(technique, "compressed", lambda pruned, *_: WrongForAll(dense=pruned))
    monkeypatch.setattr("gpulift_work.compression.FEW_ROWS", 64)
    left = technique.weights_left(training.model)
    said = (
        r"h\.0\.\S+: products of 256 rows and weights of 192 x 64 are [01]\.\d+ off, of 64 rows 0"
    )
    with pytest.raises(technique.Failed, match=said):
        technique.error_of(training, training.step, left)


def test_what_a_machine_lacks_is_said(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(technique.Skip, match="a processor has no products"):
        technique.make("two_four", {"model": "gpt_toy", "task": "step"}, 7, None)
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: False)
    with pytest.raises(technique.Skip, match="torch has no cuSPARSELt"):
        technique.require_sparse_products(0)
