"""Switches that leave out the script's waiting for the GPU, and torch's own functions that wait."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from .switch import NO_CUDA, Seen, Switch, script_line

# As they were ahead of any switch: what the probe itself waits and reads with.
synchronize = torch.cuda.synchronize
wait_event = torch.cuda.Event.synchronize
wait_stream = torch.cuda.Stream.synchronize
item = torch.Tensor.item

WAITS = (torch.cuda, torch.cuda.Stream, torch.cuda.Event)  # each has `synchronize`
READS = ("item", "tolist", "__float__", "cpu")
_TRUE_READ_EVERY = 100  # so that a loop that waits for a value ends


class Reads(Switch):
    """A line that reads one value of the GPU gets the value it got before, and does not wait.

    What torch reads for itself it still gets: a scaler's search for infinities, an optimizer's
    steps.
    """

    name = "reads"
    label = "no waiting for values read back (upper bound)"
    keeps = "work"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self._values: dict[object, Any] = {}
        self._counts: dict[object, int] = {}

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not seen.on_cuda:
            return NO_CUDA
        return "" if seen.calls.get("item") else "no value is read back"

    def flip(self) -> None:
        """See base."""
        for name in READS:
            self.put(torch.Tensor, name, self._stale(name, getattr(torch.Tensor, name)))

    def _stale(self, name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def stale(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            line = script_line()
            is_here = tensor.device.type == self.seen.device.type
            if line is None or not is_here or not is_read(name, tensor):
                return read(tensor, *args, **kwargs)
            key = (line, name, tensor.shape, tensor.dtype)
            count = self._counts[key] = self._counts.get(key, -1) + 1
            if count % _TRUE_READ_EVERY == 0:
                self._values[key] = read(tensor, *args, **kwargs)
            return copy.deepcopy(self._values[key])

        return stale


def is_read(name: str, tensor: Any) -> bool:
    """Whether a call of this name gives one value to the script, and none to autograd."""
    return tensor.numel() == 1 and not (name == "cpu" and tensor.requires_grad)


class Synchronize(Switch):
    """The script's own synchronisations do nothing."""

    name = "synchronize"
    label = "no torch.cuda.synchronize"
    keeps = "bits"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not seen.on_cuda:
            return NO_CUDA
        return "" if seen.calls.get("synchronize") else "the script synchronises nothing"

    def flip(self) -> None:
        """See base."""
        for owner in WAITS:
            self.put(owner, "synchronize", _only_torch_waits(owner.synchronize))


def _only_torch_waits(wait: Callable[..., None]) -> Callable[..., None]:
    def synchronize(*args: Any, **kwargs: Any) -> None:
        if script_line() is None:
            wait(*args, **kwargs)

    return synchronize
