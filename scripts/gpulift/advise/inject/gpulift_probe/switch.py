"""What a switch is: something of torch that is flipped between two training steps, and back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import nn

LOW_PRECISION = (torch.bfloat16, torch.float16)
AMPERE = (8, 0)  # the first with TF32 and BF16
NO_CUDA = "the step runs without CUDA"

_TORCH = os.path.dirname(torch.__file__) + os.sep
_PROBE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Files of torch that read or wait because the script told them to.
_ON_BEHALF = (_TORCH + "_tensor.py", _TORCH + "_tensor_str.py", _TORCH + "utils" + os.sep)


@dataclass
class Seen:
    """What one observed training step told."""

    device: torch.device
    modules: list[nn.Module]  # outermost ones that were called
    optimizers: list[torch.optim.Optimizer]
    operators: Mapping[str, int]  # by profiler's name; empty where the script profiles itself
    calls: Mapping[str, int]  # by the name that seen.py gives
    compiled: bool  # the script compiled something
    autocast: bool  # was active in a module's forward
    # Of the script: how often each calls what, and its share of the step outside of torch.
    lines: Mapping[str, Counter[str]] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)
    issued: int = 0  # outermost operators
    exchanges: Mapping[int, int] = field(default_factory=dict)  # passes of each wrapper by its id

    @property
    def on_cuda(self) -> bool:
        """Whether the parameters are on an NVIDIA GPU."""
        return bool(self.device.type == "cuda")

    def dtypes(self) -> set[torch.dtype]:
        """Floating-point types of all parameters."""
        return {one.dtype for one in self.parameters() if one.is_floating_point()}

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of all optimizers, then those of all modules, some of them twice."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                yield from group["params"]
        for module in self.modules:
            yield from module.parameters()

    def is_low_precision(self) -> bool:
        """Whether all products are in BF16 or FP16."""
        dtypes = self.dtypes()
        return self.autocast or (bool(dtypes) and dtypes <= set(LOW_PRECISION))

    def is_before_ampere(self) -> bool:
        """Whether the GPU is older than TF32 and BF16 are."""
        return self.on_cuda and torch.cuda.get_device_capability(self.device) < AMPERE


class Switch:
    """Base: `already` and `obstacle` say "" where they do not hold; `flip` uses what undoes itself.

    `keeps` says how much stays equal: "bits", the "step" within rounding, or the "work" alone.
    """

    name = ""
    label = ""
    keeps = "step"

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self._undo = contextlib.ExitStack()

    def state(self, seen: Seen) -> tuple[str, str]:
        """`tried`, `already on` or `not applicable`, and why."""
        if why := self.obstacle(seen):
            return "not applicable", why
        why = self.already(seen)
        return ("already on" if why else "tried"), why

    def obstacle(self, seen: Seen) -> str:
        """Why it cannot be flipped."""
        raise NotImplementedError

    def already(self, seen: Seen) -> str:
        """Why it is on without having been flipped."""
        return ""

    def flip(self) -> None:
        """Turns on what is off, and off what is on already."""
        raise NotImplementedError

    def back(self) -> None:
        """Leaves all as it was ahead of `flip`, however the window ended."""
        self._undo.close()

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute until `back`."""
        self._undo.callback(put(owner, name, value))


def put(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Sets an attribute, and gives what undoes that."""
    own = vars(owner)
    undo = (
        partial(setattr, owner, name, own[name]) if name in own else partial(delattr, owner, name)
    )
    setattr(owner, name, value)
    return undo


def script_line() -> tuple[CodeType, int] | None:
    """Where the script called the caller; None where torch or the probe did so for itself."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith(_ON_BEHALF):
        frame = frame.f_back
    own = frame.f_code.co_filename.startswith((_TORCH, _PROBE))
    return None if own else (frame.f_code, frame.f_lineno)
