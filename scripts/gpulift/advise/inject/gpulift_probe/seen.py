"""Watches one training step: what ran, what was called, and what could be said of that."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .host import Host
from .leftovers import AGAIN, ANOMALY, is_trained
from .optimizers import ZEROED
from .switch import Seen, put, script_line
from .waits import READS, WAITS, is_read

__all__ = ["Observer", "Seen"]

COPIES = "copies from pageable memory"
COPIED_BYTES = "bytes from pageable memory"

Function = Callable[..., Any]

# torch 2.2 has the other alone; both are constants to a compiler that comes across them.
is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling


class Observer:
    """Watches from `begin` to `end`, which may be called when an optimizer's step has ended."""

    def begin(self) -> None:
        """Starts to watch, all counts at zero."""
        self._modules: dict[int, nn.Module] = {}
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._calls: Counter[str] = Counter()
        self._lines: dict[str, Counter[str]] = {}
        self._without: list[nn.Module] = []  # called without gradients
        self._exchanges: Counter[int] = Counter()
        self._depth = 0
        self._autocast = False
        self._undo = contextlib.ExitStack()
        self._wrap(nn.Module, "__call__", self._module_called)
        for name in READS:
            self._wrap(torch.Tensor, name, functools.partial(self._reading, name))
        for owner in WAITS:
            self._wrap(owner, "synchronize", functools.partial(self._calling, "synchronize"))
        for owner in (torch, torch.linalg):
            name = "norm" if owner is torch else "vector_norm"
            self._wrap(owner, name, functools.partial(self._calling, "norm"))
        self._wrap(torch.Tensor, "zero_", functools.partial(self._calling, "zero_"))
        for owner in (torch.optim.Optimizer, nn.Module):
            self._wrap(owner, "zero_grad", self._zeroing)
        for name in ("to", "cuda"):
            self._wrap(torch.Tensor, name, self._copying)
        # Not a hook behind steps: torch may be walking over those right now.
        self._undo.callback(register_optimizer_step_pre_hook(self._stepping).remove)
        self._profiles = _starts_profiler()
        self._began_s = time.perf_counter()  # as the profiler's own mark, which takes its time
        self._host = Host()

    def end(self) -> Seen:
        """Stops to watch."""
        threads = torch.autograd._disable_profiler_legacy() if self._profiles else []
        spans = [span for thread in threads for span in _spans(thread, self._began_s)]
        host = self._host.end(spans)
        self._undo.close()
        seen = Seen(
            device=torch.device("cpu"),
            modules=list(self._modules.values()),
            optimizers=list(self._optimizers.values()),
            operators=Counter(event.name() for one in threads for event in one if _begins(event)),
            calls=dict(self._calls),
            compiled=_has_compiled(),
            autocast=self._autocast,
            lines=self._lines,
            host=host if spans else {},  # else what is torch's own is not known
            issued=len(spans),
            exchanges=self._exchanges,
        )
        if again := sum(is_trained(module, seen) for module in self._without):
            self._calls[AGAIN] = again
            seen.calls = dict(self._calls)
        devices = (parameter.device for parameter in seen.parameters())
        seen.device = next((one for one in devices if one.type != "cpu"), seen.device)
        return seen

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Function], Function]) -> None:
        self._undo.callback(put(owner, name, wrapper(getattr(owner, name))))

    def _module_called(self, call: Function) -> Function:
        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return call(module, *args, **kwargs)
            # Parts of a module are called in backward where it is checkpointed.
            if not self._depth and torch._C._current_graph_task_id() < 0:
                self._modules[id(module)] = module
                if not torch.is_grad_enabled():
                    self._without.append(module)
                if torch.is_anomaly_enabled():
                    self._calls[ANOMALY] += 1
            if isinstance(module, DistributedDataParallel) and torch.is_grad_enabled():
                self._exchanges[id(module)] += module.require_backward_grad_sync
            self._autocast |= torch._C._is_any_autocast_enabled()
            self._depth += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return called

    def _reading(self, name: str, read: Function) -> Function:
        def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if tensor.device.type != "cpu" and is_read(name, tensor):
                self._count("item", script_line())
            return read(tensor, *args, **kwargs)

        return counted

    def _calling(self, name: str, call: Function) -> Function:
        @functools.wraps(call)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self._count(name, script_line())
            return call(*args, **kwargs)

        return counted

    def _count(self, name: str, line: tuple[CodeType, int] | None) -> None:
        if line is not None:
            self._calls[name] += 1
            place = f"{os.path.basename(line[0].co_filename)}:{line[1]}"
            self._lines.setdefault(name, Counter())[place] += 1

    def _zeroing(self, zero_grad: Function) -> Function:
        def counted(owner: Any, set_to_none: bool = True) -> None:
            if not set_to_none:
                self._calls[ZEROED] += 1
            zero_grad(owner, set_to_none=set_to_none)

        return counted

    def _copying(self, copy: Function) -> Function:
        def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            copied = copy(tensor, *args, **kwargs)
            leaves = tensor.device.type == "cpu" and copied.device.type != "cpu"
            if leaves and not tensor.is_pinned():
                self._calls[COPIES] += 1
                self._calls[COPIED_BYTES] += tensor.numel() * tensor.element_size()
            return copied

        return counted

    def _stepping(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizers[id(optimizer)] = optimizer


def _starts_profiler() -> bool:
    """Not where the script has one, which could not start."""
    scripts = torch.profiler.profile
    if torch.autograd._profiler_enabled() or any(type(one) is scripts for one in gc.get_objects()):
        return False
    # The later ones, also for processors alone, attach CUPTI, which stays and slows every launch.
    off, options = [False] * 5, torch._C._profiler._ExperimentalConfig()
    config = torch.autograd.ProfilerConfig(torch.autograd.ProfilerState.CPU, *off, options)
    torch.autograd._enable_profiler_legacy(config)
    return True


def _begins(event: Any) -> bool:
    return bool(event.kind() == "push")


def _spans(thread: Any, began_s: float) -> Iterator[tuple[float, float]]:
    """From when to when each outermost operator ran."""
    depth, first_s = 0, 0.0
    for event in thread:
        if event.kind() not in ("push", "pop"):
            continue
        now_s = began_s + thread[0].cpu_elapsed_us(event) / 1e6
        if _begins(event):
            first_s = now_s if depth == 0 else first_s
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                yield first_s, now_s


def _has_compiled() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
