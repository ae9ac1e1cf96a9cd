"""Batches that a loader gave once, given again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch


class Batches:
    """Keeps the batches of some steps of each dataset, and hands them out in turns."""

    def __init__(self) -> None:
        self.notes = False  # whether what comes is kept
        self.playing = False
        self.copies = False  # the script writes into its batches
        self._kept: dict[int, list[Kept]] = {}
        self._next: dict[int, int] = {}

    def note(self, dataset: Any, batch: Any) -> None:
        """Keeps it, where batches are kept now."""
        if self.notes:
            self._kept.setdefault(id(dataset), []).append(Kept(batch))

    def plays(self, dataset: Any) -> bool:
        """Whether it is asked for batches that were kept."""
        return self.playing and id(dataset) in self._kept

    def rewind(self) -> None:
        """The next batch is the first."""
        self._next.clear()

    def play(self, dataset: Any) -> Any:
        """The next one of that dataset."""
        kept = self._kept[id(dataset)]
        place = self._next.get(id(dataset), 0)
        self._next[id(dataset)] = (place + 1) % len(kept)
        batch, copied = kept[place].batch()
        self.copies |= copied
        return batch


class Kept:
    """A batch as it came from the loader. Scripts take parts out of dictionaries and write into
    tensors: they get containers of their own, and tensors once theirs were written to."""

    def __init__(self, batch: Any) -> None:
        self._batch = rebuilt(batch, same)
        self._pristine = rebuilt(batch, cloned)
        self._versions = versions(batch)

    def batch(self) -> tuple[Any, bool]:
        """To be handed out, and whether it had to be copied for that."""
        written = versions(self._batch) != self._versions
        if written:
            self._batch = rebuilt(self._pristine, cloned)
            self._versions = versions(self._batch)
        return rebuilt(self._batch, same), written


def same(tensor: torch.Tensor) -> torch.Tensor:
    """As it is."""
    return tensor


def cloned(tensor: torch.Tensor) -> torch.Tensor:
    """Pinned as the tensor is."""
    clone = tensor.clone()
    return clone.pin_memory() if tensor.device.type == "cpu" and tensor.is_pinned() else clone


def versions(batch: Any) -> list[int]:
    """How often each tensor was written to."""
    counts: list[int] = []

    def count(tensor: torch.Tensor) -> torch.Tensor:
        counts.append(0 if tensor.is_inference() else tensor._version)
        return tensor

    rebuilt(batch, count)
    return counts


def rebuilt(batch: Any, of_tensor: Callable[[torch.Tensor], Any]) -> Any:
    """Its containers anew, with what `of_tensor` makes of each tensor."""
    if isinstance(batch, torch.Tensor):
        return of_tensor(batch)
    if isinstance(batch, tuple):
        parts = [rebuilt(part, of_tensor) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if isinstance(batch, list):
        return [rebuilt(part, of_tensor) for part in batch]
    if isinstance(batch, Mapping):
        made = copy.copy(batch)
        for key, part in batch.items():
            made[key] = rebuilt(part, of_tensor)  # type: ignore[index]
        return made
    if hasattr(batch, "__dict__") and not callable(batch):  # of a class of somebody's own
        made = copy.copy(batch)
        for name, part in vars(batch).items():
            vars(made)[name] = rebuilt(part, of_tensor)
        return made
    return batch
