"""Switches of optimizers: how they walk over parameters, and what zero_grad leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import _default_to_fused_or_foreach
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

from .switch import Seen, Switch

ZEROED = "zero_grad(set_to_none=False)"


class _GroupSwitch(Switch):
    """A setting of groups of parameters; groups that cannot have it stay as they are."""

    key = ""

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        groups = list(self._groups(seen))
        hindrances = [self._hindrance(optimizer, group) for optimizer, group in groups]
        if not groups:
            return "no optimizer of the script has it"
        if any(getattr(part, "sparse", False) for one in seen.modules for part in one.modules()):
            return "gradients are sparse"
        return hindrances[0] if all(hindrances) else ""

    def already(self, seen: Seen) -> str:
        """See base."""
        able = [group for _, group in self._able(seen)]
        if not able or not all(self._is_on(group) for group in able):
            return ""
        asked = any(group[self.key] for group in able)
        return "the script asks for it" if asked else "it is torch's default here"

    def flip(self) -> None:
        """See base."""
        on = not self.already(self.seen)
        for optimizer, group in self._able(self.seen):
            if self._is_on(group) != on:
                self._set(optimizer, group, on)

    def _groups(self, seen: Seen) -> Iterator[tuple[Any, dict[str, Any]]]:
        for optimizer in seen.optimizers:
            yield from ((optimizer, one) for one in optimizer.param_groups if self.key in one)

    def _able(self, seen: Seen) -> list[tuple[Any, dict[str, Any]]]:
        return [pair for pair in self._groups(seen) if not self._hindrance(*pair)]

    def _hindrance(self, optimizer: Any, group: dict[str, Any]) -> str:
        parameters = group["params"]
        if group.get("differentiable"):
            return "the optimizer is differentiable"
        if not all(one.is_floating_point() for one in parameters):
            return "parameters are complex"
        if any(one.grad is not None and one.grad.is_sparse for one in parameters):
            return "gradients are sparse"
        return ""

    def _is_on(self, group: dict[str, Any]) -> bool:
        return bool(group[self.key])

    def _set(self, optimizer: Any, group: dict[str, Any], on: bool) -> None:
        raise NotImplementedError

    def _put_item(self, items: Any, key: str, value: Any) -> None:
        self._undo.callback(items.__setitem__, key, items[key])
        items[key] = value


class Foreach(_GroupSwitch):
    """Parameters are updated in a few calls for all of them."""

    name = "foreach"
    label = "foreach optimizer"
    key = "foreach"

    def _hindrance(self, optimizer: Any, group: dict[str, Any]) -> str:
        if group.get("fused"):
            return "the fused one is on"
        if isinstance(group.get("lr"), torch.Tensor) and not group.get("capturable"):
            return "the learning rate is a tensor"
        return super()._hindrance(optimizer, group)

    def _is_on(self, group: dict[str, Any]) -> bool:
        # As torch's optimizers: a `fused` that was set, even to False, ends the default.
        if group["foreach"] is None and group.get("fused") is None:
            return bool(_default_to_fused_or_foreach(group["params"], False)[1])
        return super()._is_on(group)

    def _set(self, optimizer: Any, group: dict[str, Any], on: bool) -> None:
        self._put_item(group, "foreach", on)


class Fused(_GroupSwitch):
    """Parameters are updated by one kernel, which a scaler leaves the unscaling to."""

    name = "fused"
    label = "fused optimizer"
    key = "fused"

    def _hindrance(self, optimizer: Any, group: dict[str, Any]) -> str:
        devices = {one.device.type for one in group["params"]}
        if isinstance(optimizer, torch.optim.Adagrad) and devices != {"cpu"}:
            return "Adagrad has it on processors alone"
        if not devices <= set(_get_fused_kernels_supported_devices()):
            return "this torch has no such kernel for the device"
        return super()._hindrance(optimizer, group)

    def _set(self, optimizer: Any, group: dict[str, Any], on: bool) -> None:
        # Undone last, with the group as it was: moves also what the window made.
        self._undo.callback(_place_steps, optimizer, group, lambda *_: None)
        self._put_item(group, "fused", on or None)
        self._put_item(group, "foreach", False if on else None)
        if not isinstance(optimizer, torch.optim.Adagrad):
            self.put(optimizer, "_step_supports_amp_scaling", on)
        _place_steps(optimizer, group, self._undo.callback)


def _place_steps(optimizer: Any, group: dict[str, Any], undo: Callable[..., Any]) -> None:
    """Counts of steps are on the device where kernels read them, else on the processor."""
    for parameter in group["params"]:
        state = optimizer.state.get(parameter, {})
        step = state.get("step")
        on_device = group["fused"] or group.get("capturable")
        device = parameter.device if on_device else torch.device("cpu")
        if isinstance(step, torch.Tensor) and step.device != device:
            dtype = torch.float32 if group["fused"] else step.dtype
            state["step"] = step.to(device=device, dtype=dtype)
            undo(_return_step, state, step)


def _return_step(state: dict[str, Any], step: Any) -> None:
    step.copy_(state["step"])
    state["step"] = step


class SetToNone(Switch):
    """zero_grad frees gradients, so that the next ones need no addition."""

    name = "set_to_none"
    label = "zero_grad(set_to_none=True)"
    keeps = "bits"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        return "" if seen.calls.get(ZEROED) else "no zero_grad(set_to_none=False) was called"

    def flip(self) -> None:
        """See base."""
        for owner in (torch.optim.Optimizer, nn.Module):
            self.put(owner, "zero_grad", _freeing(owner.zero_grad))


def _freeing(zero_grad: Callable[..., None]) -> Callable[..., None]:
    def free(owner: Any, set_to_none: bool = True) -> None:
        zero_grad(owner, set_to_none=True)

    return free
