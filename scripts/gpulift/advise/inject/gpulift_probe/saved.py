"""The state of a training, kept and put back: steps that are taken again begin alike."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

ROOM = 1.25  # that copies of the state and of gradients take, relative to the state
LEFT = 1 / 6  # of a GPU's memory, to the arms
LOT = 1 << 20  # numbers that are marked at a time, as it takes four times their memory

Entries = MutableMapping[Any, Any]


class Saved:
    """Parameters, buffers, random numbers, and what optimizers, scalers and schedules know."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._optimizers = list(optimizers)
        self._buffers = buffers()
        self._schedules = [vars(schedule) for schedule in instances(LRScheduler)]
        tensors = self._tensors()
        self.bytes = sum(bytes_of(tensor) for tensor in tensors)
        self.beside = fits(self.bytes, tensors)
        self._copies = [(tensor, kept(tensor, self.beside)) for tensor in tensors]
        self._entries = [
            (entries, {name: held(value) for name, value in entries.items()})
            for entries in self._containers()
        ]
        self._scalers = [(scaler, scaler.state_dict()) for scaler in scalers()]
        self._numbers = random_numbers()
        self._holds = False
        self._rates = [
            (group, {name: value for name, value in group.items() if is_rate(value)})
            for optimizer in self._optimizers
            for group in optimizer.param_groups
        ]
        for optimizer in self._optimizers:
            optimizer.register_step_pre_hook(self._hold_rates)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def restore(self) -> None:
        """All of it, in place; no switch may be flipped meanwhile. Until `release` learning rates
        stay, whatever the script counts its steps to."""
        for tensor, values in self._copies:
            tensor.copy_(values)
        for entries, values in self._entries:
            for name in set(entries.keys()) - set(values):
                del entries[name]
            for name, value in values.items():
                entries[name] = held(value)
        for scaler, state in self._scalers:
            scaler.load_state_dict(state)
        set_random_numbers(self._numbers)
        self._holds = True

    def release(self) -> None:
        """Learning rates are the script's own again."""
        self._holds = False

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def marks(self) -> list[int]:
        """Numbers that come of all bits of the state as it is now: alike where two states are the
        same, and hardly otherwise."""
        return [mark for tensor in self._tensors() for mark in marks_of(tensor)]

    def _hold_rates(self, *_: Any) -> None:
        if self._holds:
            for group, rates in self._rates:
                group.update(rates)

    def _containers(self) -> Iterator[Entries]:
        yield from (*self._buffers, *self._schedules)
        for optimizer in self._optimizers:
            yield from (optimizer.state, *optimizer.state.values(), *optimizer.param_groups)

    def _tensors(self) -> list[torch.Tensor]:
        """Each once."""
        tensors = [
            parameter
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        for entries in self._containers():
            tensors += [value for value in entries.values() if isinstance(value, torch.Tensor)]
        return list({id(tensor): tensor for tensor in tensors}.values())


def buffers() -> list[Entries]:
    """Of all modules that have some, as those of a batch norm."""
    every = (module.__dict__.get("_buffers") for module in instances(nn.Module))
    return [entries for entries in every if entries and all(map(has_numbers, entries.values()))]


def has_numbers(buffer: Any) -> bool:
    """Not so of a tensor that stands for one to come, or that a compiler thinks with."""
    plain = type(buffer) is torch.Tensor or is_traceable_wrapper_subclass(buffer)
    return buffer is None or (plain and not buffer.is_meta)


def instances(kind: type) -> Iterator[Any]:
    """Every object of a class that there is, without asking those that only pretend to be one."""
    return (thing for thing in gc.get_objects() if issubclass(type(thing), kind))


def scalers() -> list[Any]:
    """Those of mixed precision that scale."""
    kind: type = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    return [scaler for scaler in instances(kind) if scaler.is_enabled()]


def is_rate(value: Any) -> bool:
    """Numbers of a group, not its flags."""
    return type(value) in (int, float, tuple)


def fits(needed_bytes: int, tensors: list[torch.Tensor]) -> bool:
    """Whether copies can lie beside what they are of; else they lie in pinned memory."""
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
    if device is None:
        return True
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return bool(needed_bytes * ROOM + total_bytes * LEFT < free_bytes)


def kept(tensor: torch.Tensor, beside: bool) -> torch.Tensor:
    """A copy."""
    tensor = tensor.detach()
    if beside or not tensor.is_cuda:
        return tensor.clone()
    return torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor)


def held(value: Any) -> Any:
    """A list of its own; what is in it, and all else, as it is."""
    return list(value) if type(value) is list else value


def parts_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Those that a tensor of somebody's own class is made of."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from parts_of(getattr(tensor, name))
    else:
        yield tensor.to_dense() if tensor.layout is not torch.strided else tensor


def bytes_of(tensor: torch.Tensor) -> int:
    """Of its numbers."""
    return sum(part.numel() * part.element_size() for part in parts_of(tensor))


WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def marks_of(tensor: torch.Tensor) -> list[int]:
    """Sums of its numbers, taken for whole ones and weighted by their places."""
    sums = []
    for part in parts_of(tensor):
        numbers = torch.view_as_real(part) if part.is_complex() else part
        whole = numbers.detach().reshape(-1).view(WHOLE[numbers.element_size()])
        places = 2 * torch.arange(min(LOT, whole.numel()), device=whole.device) + 1
        sums += [(lot * places[: lot.numel()]).sum() for lot in whole.split(LOT)]
    return [int(total) for total in sums]


def random_numbers() -> dict[str, Any]:
    """Where every generator stands that a script may draw from."""
    numbers = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        numbers["numpy"] = sys.modules["numpy"].random.get_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        numbers["cuda"] = torch.stack(torch.cuda.get_rng_state_all())
    return numbers


def set_random_numbers(numbers: dict[str, Any]) -> None:
    """Has them stand there again."""
    random.setstate(numbers["python"])
    torch.set_rng_state(numbers["torch"])
    if "numpy" in numbers:
        sys.modules["numpy"].random.set_state(numbers["numpy"])
    if "cuda" in numbers:
        torch.cuda.set_rng_state_all(list(numbers["cuda"]))


def drawn_alike(numbers: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether as many numbers were drawn for tensors in both."""
    return all(
        torch.equal(numbers[name], others[name]) for name in ("torch", "cuda") if name in numbers
    )
