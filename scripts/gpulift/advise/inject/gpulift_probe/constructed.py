"""What has to be set ahead of a script's start: how its loaders and its model are made."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from .anchors import Anchors
from .said import PLAN
from .saved import instances
from .seen import is_compiling

_NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
_PROCESSES = Path("/proc")


def change_loaders(plan: dict[str, Any]) -> None:
    """Those that are made from now on get the plan's options, but for workers to which an iterable
    dataset deals out nothing: each would give all of its items.

    The batch is changed only where the script itself gives its size, to a DataLoader or to torch's
    sampler of batches, and once: libraries make loaders of what another has, whose size was changed
    already.
    """
    options, factor = plan.get("loader") or {}, plan.get("batch_factor")
    if not options and not factor:
        return
    construct = DataLoader.__init__
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def constructing(loader: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(loader, *args, **kwargs)
        values = bound.arguments
        dealt = is_dealt(values["dataset"], values.get("worker_init_fn"))
        _give(values, {k: v for k, v in options.items() if dealt or k != "num_workers"})
        if factor and type(loader) is DataLoader and values.get("batch_size"):
            values["batch_size"] = Size.of(values["batch_size"], factor)
        sampler: Any = values.get("batch_sampler")
        if factor and type(sampler) is BatchSampler:
            sampler.batch_size = Size.of(sampler.batch_size, factor)
        construct(*bound.args, **bound.kwargs)

    DataLoader.__init__ = constructing


class Size(int):
    """Of batches, as it was changed to; so is a rank's part of it."""

    @classmethod
    def of(cls, size: int, factor: float) -> Size:
        """So many times as large, at least 1, unless it was changed."""
        return size if isinstance(size, cls) else cls(max(1, int(size * factor)))

    def __floordiv__(self, ranks: int) -> Size:
        return Size(int(self) // ranks)


def is_dealt(dataset: Any, worker_init: Any) -> bool:
    """Whether each of several workers gives items of its own. An iterable dataset has to ask which
    worker it is in."""
    if not isinstance(dataset, IterableDataset) or worker_init is not None:
        return True
    methods = (one for kind in type(dataset).__mro__ for one in vars(kind).values())
    codes = (getattr(inspect.unwrap(one), "__code__", None) for one in methods if callable(one))
    return any(code and "get_worker_info" in code.co_names for code in codes)


def batch_of(loader: Any) -> int | None:
    """Items in a batch; None where nothing tells."""
    return loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)


def length_of(loader: Any) -> int | None:
    """Batches of an epoch; None where nothing tells."""
    try:
        return len(loader)
    except TypeError:
        return None


def is_sampled(loader: Any) -> bool:
    """Whether something of the script's own makes its batches, whose size only that knows."""
    sampler = getattr(loader.batch_sampler, "batch_sampler", loader.batch_sampler)  # one rank's
    return loader.batch_size is None and type(sampler) is not BatchSampler


def unset(plan: dict[str, Any], anchors: Anchors, compiled: bool) -> str:
    """Why what the plan asks for did not come about in this process; empty where it did."""
    loader, has_batch = anchors.source, bool(plan.get("batch_factor"))
    if loader is None and (plan.get("loader") or has_batch):
        return "no DataLoader in the training loop"
    for name, value in (plan.get("loader") or {}).items():
        if (own := getattr(loader, name, None)) != value:
            return f"the loader of the training has {name}={own} all the same"
    if has_batch and batch_of(loader) != plan["batch"]:
        return f"batches have {batch_of(loader)} items all the same"
    if plan.get("channels_last") and not any(one.ndim == 4 for one in _all_trained(anchors)):
        return "no weight has four dimensions"
    if plan.get("compile") and not compiled:
        return "no module that the script calls could be compiled"
    for name, value in plan.get("environment", {}).items():
        if os.environ.get(name) != value:
            return f"the script, or what starts it, sets {name} itself"
    return "" if _has_come(plan.get("arguments", ())) else "the process that trains does not get it"


def _all_trained(anchors: Anchors) -> list[nn.Parameter]:
    return [one for optimizer in anchors.optimizers.values() for one in _trained(optimizer)]


def _has_come(words: Iterable[str]) -> bool:
    """Whether a launcher passed them on: in arguments, or somewhere in the environment."""
    others = (f"{name}={value}" for name, value in os.environ.items() if name != PLAN)
    came = " ".join((*sys.argv, *others)).lower()
    return all(part.lower() in came for word in words for part in word.lstrip("-").split("="))


def _give(values: dict[str, Any], options: dict[str, Any]) -> None:
    has_cuda = torch.cuda.is_available()
    values.update({k: v for k, v in options.items() if k != "pin_memory" or has_cuda})
    if not values.get("num_workers"):
        for name in _NEED_WORKERS:
            values.pop(name, None)


def search_algorithms(plan: dict[str, Any]) -> None:
    """Of convolutions, ahead of the first: torch keeps what it took once for each shape."""
    if plan.get("cudnn_search"):
        torch.backends.cudnn.benchmark = True


def copy_unwaited(plan: dict[str, Any]) -> None:
    """Copies from pinned memory do not wait for the GPU, where the script leaves that open.

    A pinned tensor that the script writes to again behind a copy may be copied with what it wrote.
    """
    if not (plan.get("loader") or {}).get("pin_memory"):
        return
    for name in ("to", "cuda"):
        copy = _unwaited(getattr(torch.Tensor, name))
        # A compiler that walked into it would break its graph at torch's own.
        torch.compiler.allow_in_graph(copy)
        setattr(torch.Tensor, name, copy)


def _unwaited(copy: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(copy)
    def copying(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        is_said = "non_blocking" in kwargs or any(isinstance(value, bool) for value in args)
        if not is_said and _is_pinned(tensor):
            kwargs["non_blocking"] = True
        return copy(tensor, *args, **kwargs)

    return copying


def _is_pinned(tensor: Any) -> bool:
    # A loader's forked process must not ask CUDA.
    is_plain = type(tensor) is torch.Tensor and tensor.is_cpu
    return is_plain and torch.cuda.is_initialized() and bool(tensor.is_pinned())


def change_first_step(plan: dict[str, Any], optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """What takes the model, once there is one: behind its first step."""
    optimizers = list(optimizers)
    if plan.get("channels_last"):
        _to_channels_last(optimizers)
    if plan.get("compile"):
        _compile(optimizers)


def _to_channels_last(optimizers: list[torch.optim.Optimizer]) -> None:
    """All weights of four dimensions, and what optimizers know of them.

    A convolution takes the format of its weight: the first converts the script's batches at each
    step, and what follows stays in it. A script that hands over such batches saves that copy.
    """
    for module in instances(nn.Module):
        for parameter in (module.__dict__.get("_parameters") or {}).values():
            if parameter is not None:
                _convert(parameter)
    for optimizer in optimizers:
        for parameter in _trained(optimizer):
            _convert(parameter)
            state = optimizer.state.get(parameter, {})
            state.update({name: _channels_last(value) for name, value in state.items()})


def _convert(parameter: nn.Parameter) -> None:
    parameter.data = _channels_last(parameter.data)
    if parameter.grad is not None:
        parameter.grad = _channels_last(parameter.grad)


def _channels_last(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 4:
        return value.to(memory_format=torch.channels_last)
    return value


def _compile(optimizers: list[torch.optim.Optimizer]) -> None:
    """Modules that the script calls and that are trained, each when it is called next.

    Those inside of them belong to their graphs. What the script runs outside of a module's call
    stays as it is, such as the training step of a LightningModule around the model that it calls;
    so does a module of which the script compiled some part.
    """
    waiting = {id(parameter) for optimizer in optimizers for parameter in _trained(optimizer)}
    called: set[int] = set()
    call = nn.Module.__call__

    def calling(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not is_compiling() and id(module) not in called:
            called.add(id(module))
            _compile_if_trained(module, waiting)
            if not waiting and nn.Module.__call__ is calling:
                nn.Module.__call__ = call
        return call(module, *args, **kwargs)

    nn.Module.__call__ = calling


def _compile_if_trained(module: nn.Module, waiting: set[int]) -> None:
    own = {id(parameter) for parameter in module.parameters()}
    if not waiting.isdisjoint(own):
        waiting.difference_update(own)
        if not any(map(_is_compiled, module.modules())):
            module.compile()


def _is_compiled(module: nn.Module) -> bool:
    from torch._dynamo import OptimizedModule

    return isinstance(module, OptimizedModule) or module._compiled_call_impl is not None


def _trained(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def host_bytes() -> int:
    """Of this process and all that it started; what they share counts once, where Linux says."""
    parents = {}
    for folder in _PROCESSES.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text("utf-8", "replace")
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    tree = [os.getpid()]
    for process in tree:
        tree += [child for child, parent in parents.items() if parent == process]
    return sum(map(_bytes_of, tree))


def _bytes_of(process: int) -> int:
    folder = _PROCESSES / str(process)
    try:
        lines = (folder / "smaps_rollup").read_text("ascii").splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except OSError:  # of an older kernel, or it has ended
        pass
    try:
        return int((folder / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
