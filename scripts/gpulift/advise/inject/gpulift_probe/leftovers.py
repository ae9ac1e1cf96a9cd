"""Switches that leave out what costs a step and brings its result nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from .saved import instances
from .switch import Seen, Switch

COMPILED = "compiled graphs keep what they were traced with"
AGAIN, ANOMALY = "calls without gradients", "anomaly mode"
TRUE_CALL_EVERY = 100  # so that a loop that waits for another output ends


class Anomaly(Switch):
    """Autograd keeps no trace of each operator and looks for no NaN."""

    name = "anomaly"
    label = "no anomaly detection"
    keeps = "bits"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        return "" if seen.calls.get(ANOMALY) else "anomaly detection is off"

    def flip(self) -> None:
        """See base."""
        set_enabled = torch.set_anomaly_enabled
        self._undo.callback(
            set_enabled, torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        )
        set_enabled(False)
        self.put(torch, "set_anomaly_enabled", lambda *_: None)


class Fill(Switch):
    """Memory of new tensors stays as it was found."""

    name = "fill"
    label = "no filling of new tensors"
    keeps = "bits"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not torch.are_deterministic_algorithms_enabled():
            return "algorithms need not be deterministic"
        filled = getattr(torch.utils, "deterministic", None)
        return "" if filled and filled.fill_uninitialized_memory else "no new tensor is filled"

    def flip(self) -> None:
        """See base."""
        self._undo.callback(setattr, torch.utils.deterministic, "fill_uninitialized_memory", True)
        torch.utils.deterministic.fill_uninitialized_memory = False


class Deterministic(Switch):
    """Any algorithm will do."""

    name = "deterministic"
    label = "no deterministic algorithms"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        on = torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.deterministic
        if not on:
            return "algorithms need not be deterministic"
        return COMPILED if seen.compiled else ""

    def flip(self) -> None:
        """See base."""
        on = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        cudnn = torch.backends.cudnn
        self._undo.callback(torch.use_deterministic_algorithms, on, warn_only=warns)
        self._undo.callback(setattr, cudnn, "deterministic", cudnn.deterministic)
        torch.use_deterministic_algorithms(False)
        cudnn.deterministic = False


class Unwrapped(Switch):
    """A model that DataParallel hands to one device is called itself."""

    name = "data_parallel"
    label = "no DataParallel around one device"
    keeps = "bits"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        return "" if self._wrappers(seen) else "no DataParallel around one device"

    def flip(self) -> None:
        """See base."""
        for wrapper in self._wrappers(self.seen):
            self.put(wrapper, "forward", self._calling(wrapper.module))

    def _wrappers(self, seen: Seen) -> list[Any]:
        parts = (part for module in seen.modules for part in module.modules())
        wrappers = (part for part in parts if isinstance(part, nn.DataParallel))
        return [one for one in wrappers if len(one.device_ids or ()) < 2]

    def _calling(self, module: nn.Module) -> Callable[..., Any]:
        def moved(leaf: Any) -> Any:
            return leaf.to(self.seen.device) if isinstance(leaf, torch.Tensor) else leaf

        return lambda *args, **kwargs: module(*tree_map(moved, args), **tree_map(moved, kwargs))


class Unread(Switch):
    """Weights that no optimizer has get no gradients."""

    name = "unread"
    keeps = "bits"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self._weights = list(unread(seen))
        count = sum(weight.numel() for weight in self._weights)
        self.label = f"no gradients of {count:,} weights that no optimizer has"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not self._weights:
            return "an optimizer has all weights that get gradients"
        return COMPILED if seen.compiled else ""

    def flip(self) -> None:
        """See base."""
        for weight in self._weights:
            self._undo.callback(weight.requires_grad_, True)
            self._undo.callback(setattr, weight, "grad", weight.grad)
            weight.requires_grad_(False)
            weight.grad = None


def unread(seen: Seen) -> Iterator[nn.Parameter]:
    """Weights of called modules whose gradients were made, and that no optimizer there is has."""
    groups = (group for one in instances(torch.optim.Optimizer) for group in one.param_groups)
    own = {id(parameter) for group in groups for parameter in group["params"]}
    for module in seen.modules:
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.grad is not None and id(parameter) not in own:
                own.add(id(parameter))
                yield parameter


class SecondPass(Switch):
    """A trained model that is called without gradients, as for a metric, gives what it gave."""

    name = "second_pass"
    label = "no forward passes without gradients (upper bound)"
    keeps = "work"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        return "" if seen.calls.get(AGAIN) else "no trained model is called without gradients"

    def flip(self) -> None:
        """See base."""
        self.put(nn.Module, "__call__", self._stale(nn.Module.__call__))

    def _stale(self, call: Callable[..., Any]) -> Callable[..., Any]:
        modules = {id(module) for module in self.seen.modules if is_trained(module, self.seen)}
        outputs: dict[Any, tuple[int, Any]] = {}

        def stale(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() or id(module) not in modules:
                return call(module, *args, **kwargs)
            key = (id(module), module.training, *map(shape_of, tree_leaves((args, kwargs))))
            count, output = outputs.get(key, (0, None))
            if count % TRUE_CALL_EVERY == 0:
                output = call(module, *args, **kwargs)
            outputs[key] = count + 1, output
            return output

        return stale


def is_trained(module: nn.Module, seen: Seen) -> bool:
    """Whether an optimizer of the step has a weight of it."""
    groups = (group for optimizer in seen.optimizers for group in optimizer.param_groups)
    own = {id(parameter) for group in groups for parameter in group["params"]}
    return any(id(parameter) in own for parameter in module.parameters())


def shape_of(leaf: Any) -> Any:
    """Of a tensor; of all else its kind."""
    return leaf.shape if isinstance(leaf, torch.Tensor) else type(leaf)
