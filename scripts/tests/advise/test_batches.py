"""Batches that are given again as they came."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe.batches import Batches  # noqa: E402
from torch.nn.utils import rnn  # noqa: E402

pytestmark = pytest.mark.world

LOADER = object()
Pair = namedtuple("Pair", ["x", "y"])


@dataclass(frozen=True)
class Graph:
    """As libraries have classes of their own for batches."""

    nodes: Any
    parts: dict[str, Any]


def numbers() -> Any:
    """1, 2."""
    return torch.tensor([1.0, 2.0])


def kept(*every: Any) -> Batches:
    """Those of one loader, playing."""
    batches = Batches()
    batches.notes = True
    for batch in every:
        batches.note(LOADER, batch)
    batches.notes, batches.playing = False, True
    return batches


def test_batches_come_in_turns() -> None:
    batches = kept(1, 2, 3)
    assert [batches.play(LOADER) for _ in range(4)] == [1, 2, 3, 1]
    batches.rewind()
    assert batches.play(LOADER) == 1


def test_what_is_not_kept_is_not_played() -> None:
    batches = Batches()
    batches.note(LOADER, 1)
    batches.playing = True
    assert not batches.plays(LOADER)
    batches.notes = True
    batches.note(LOADER, 1)
    assert batches.plays(LOADER)
    assert not batches.plays(object())
    batches.playing = False
    assert not batches.plays(LOADER)


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x,
        lambda x: [x, "text"],
        lambda x: (x, [x]),
        lambda x: Pair(x, 1),
        lambda x: {"x": x, "more": {"x": x}},
        lambda x: UserDict({"x": x}),
        lambda x: Graph(x, {"x": x}),
    ],
)
def test_what_was_written_to_comes_as_it_was(made: Any) -> None:
    batch = made(numbers())
    batches = kept(batch)
    played = batches.play(LOADER)
    assert type(played) is type(batch)
    assert tensor_of(played) is tensor_of(batch)
    assert not batches.copies
    for _ in range(2):
        tensor_of(played).mul_(0)
        played = batches.play(LOADER)
        assert tensor_of(played).equal(numbers())
    assert batches.copies
    again = batches.play(LOADER)
    assert tensor_of(again) is tensor_of(played)


def tensor_of(batch: Any) -> Any:
    """The first in it."""
    while not isinstance(batch, torch.Tensor):
        if isinstance(batch, Graph):
            batch = batch.nodes
        else:
            batch = batch["x"] if hasattr(batch, "keys") else batch[0]
    return batch


def test_what_was_written_to_ahead_of_the_first_replay() -> None:
    batch = {"x": numbers()}
    batches = kept(batch)
    batch.pop("x").mul_(0)
    assert batches.play(LOADER)["x"].equal(numbers())


def test_what_was_taken_out_is_there_again() -> None:
    batches = kept({"x": numbers(), "y": [1, 2]})
    for _ in range(2):
        batch = batches.play(LOADER)
        assert batch["y"] == [1, 2]
        batch.pop("x")
        batch["y"].clear()
        batch["z"] = 0
    assert set(batches.play(LOADER)) == {"x", "y"}


def test_objects_that_move_themselves() -> None:
    batches = kept(Graph(numbers(), {}))
    vars(batches.play(LOADER))["nodes"] = None
    assert batches.play(LOADER).nodes.equal(numbers())


def test_packed_sequences() -> None:
    batches = kept(rnn.pack_sequence([numbers(), numbers()[:1]]))
    played = batches.play(LOADER)
    assert isinstance(played, rnn.PackedSequence)
    assert played.data.tolist() == [1, 1, 2]


def test_tensors_without_versions() -> None:
    with torch.inference_mode():
        batches = kept(numbers())
    assert batches.play(LOADER).equal(numbers())


def test_pinned_copies_of_what_was_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    batches = kept(numbers())
    batches.play(LOADER).mul_(0)
    assert batches.play(LOADER).tolist() == [3, 4]  # a copy of a copy
