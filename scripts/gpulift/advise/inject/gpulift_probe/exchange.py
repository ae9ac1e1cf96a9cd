"""What ranks exchange at a step: of it each switch leaves out some, or does it another way."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .switch import Seen, Switch

NO_WRAPPER = "no DistributedDataParallel around several ranks"
OPTIONS = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters")
FULL_BYTES = 4  # of a gradient in FP32


def wrappers(seen: Seen) -> Iterator[Any]:
    """Modules whose gradients DistributedDataParallel exchanges, each once."""
    parts = (part for module in seen.modules for part in module.modules())
    every = {id(part): part for part in parts if isinstance(part, DistributedDataParallel)}
    return (one for one in every.values() if one.process_group.size() > 1)


class NoExchange(Switch):
    """Each rank takes its steps by itself: what they take then is the rank's own."""

    name = "exchange"
    label = "no exchange of gradients (upper bound)"
    keeps = "work"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        return "" if any(wrappers(seen)) else NO_WRAPPER

    def flip(self) -> None:
        """See base. The script's own no_sync() puts back what it found."""
        for wrapper in wrappers(self.seen):
            self.put(wrapper, "require_backward_grad_sync", False)


class Accumulating(Switch):
    """Of several passes ahead of a step of the optimizer the last alone exchanges."""

    name = "no_sync"
    label = "no_sync() in accumulation"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not any(wrappers(seen)):
            return NO_WRAPPER
        more = any(seen.exchanges.get(id(one), 0) > 1 for one in wrappers(seen))
        return "" if more else "gradients are exchanged once a step"

    def flip(self) -> None:
        """See base."""
        for wrapper in wrappers(self.seen):
            if (count := self.seen.exchanges.get(id(wrapper), 0)) > 1:
                passes: list[None] = []  # since the last step of an optimizer
                hook = register_optimizer_step_pre_hook(lambda *_, passes=passes: passes.clear())
                self._undo.callback(hook.remove)
                self.put(wrapper, "forward", _last_exchanges(wrapper, count, passes))


def _last_exchanges(wrapper: Any, count: int, passes: list[None]) -> Callable[..., Any]:
    """Its forward pass, which is what decides of the backward pass behind it."""
    forward = wrapper.forward

    @functools.wraps(forward)
    def passed(*args: Any, **kwargs: Any) -> Any:
        if not (torch.is_grad_enabled() and wrapper.require_backward_grad_sync):
            return forward(*args, **kwargs)
        passes.append(None)
        wrapper.require_backward_grad_sync = len(passes) % count == 0
        try:
            return forward(*args, **kwargs)
        finally:
            wrapper.require_backward_grad_sync = True

    return passed


class Reshard(Switch):
    """Weights that were gathered for the forward pass stay for the backward pass."""

    name = "reshard"
    label = "reshard_after_forward=False"
    keeps = "bits"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        return "" if any(_resharding(seen)) else "no module reshards its weights behind its forward"

    def flip(self) -> None:
        """See base."""
        for module in _resharding(self.seen):
            self._undo.callback(module.set_reshard_after_forward, True, recurse=False)
            module.set_reshard_after_forward(False, recurse=False)


def _resharding(seen: Seen) -> list[Any]:
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # of a torch that is older, or without ranks
        return []
    parts = (part for module in seen.modules for part in module.modules())
    every = {id(part): part for part in parts if isinstance(part, FSDPModule)}
    return [one for one in every.values() if _reshards(one)]


def _reshards(module: Any) -> bool:
    group = module._get_fsdp_state()._fsdp_param_group
    return group is not None and group.post_forward_mesh_info is not None


def change_wrappers(plan: dict[str, Any]) -> None:
    """Those that are made from now on get the plan's options, and exchange what it says."""
    options, halved = plan.get("ddp") or {}, plan.get("bf16_gradients")
    if not (options or halved):
        return
    construct = DistributedDataParallel.__init__
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def constructing(wrapper: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(wrapper, *args, **kwargs)
        bound.arguments.update(options)
        construct(*bound.args, **bound.kwargs)
        if halved:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

            wrapper.register_comm_hook(None, bf16_compress_hook)

    DistributedDataParallel.__init__ = constructing


def facts(seen: Seen) -> dict[str, Any]:
    """Of the wrapper with the most weights; empty without one."""
    every = [(sum(map(_bytes_of, one.parameters())), one) for one in wrappers(seen)]
    if not every:
        return {}
    size, wrapper = max(every, key=lambda pair: pair[0])
    bucket_mb = wrapper.bucket_bytes_cap / 2**20
    values = (bucket_mb, *(bool(getattr(wrapper, name)) for name in OPTIONS[1:]))
    short = all(weight.element_size() < FULL_BYTES for weight in wrapper.parameters())
    return {
        **dict(zip(OPTIONS, values, strict=True)),
        "gradients_mb": size / 2**20,
        "hooked": bool(getattr(wrapper, "_comm_hooks", ())),
        "short": short,
    }


def unset(plan: dict[str, Any], seen: Seen) -> str:
    """Why what the plan asks for did not come about; empty where it did."""
    found = facts(seen)
    for name, value in (plan.get("ddp") or {}).items():
        if found.get(name) != value:
            return f"the wrapper of the training has {name}={found.get(name)} all the same"
    if plan.get("bf16_gradients") and not found.get("hooked"):
        return "the wrapper of the training exchanges them as they are all the same"
    return ""


def _bytes_of(weight: torch.Tensor) -> int:
    return weight.numel() * weight.element_size() if weight.requires_grad else 0
