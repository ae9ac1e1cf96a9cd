"""What a model is called with, which tells whether a step can be taken once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from .saved import marks_of
from .seen import is_compiling
from .switch import put


class Inputs:
    """Marks of the tensors that these modules are called with, between `watch` and `stop`."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = {id(module) for module in modules}
        self._undo: Callable[[], None] = lambda: None
        self.marks: list[int] = []

    def watch(self) -> None:
        """From now on, none until now."""
        self.marks = []
        self._undo = put(nn.Module, "__call__", self._marking(nn.Module.__call__))

    def stop(self) -> None:
        """`marks` has all since `watch`: alike where tensors were the same."""
        self._undo()

    def _marking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            trains = not is_compiling() and torch.is_grad_enabled()
            if trains and id(module) in self._modules:
                for leaf in tree_leaves((args, kwargs)):
                    if isinstance(leaf, torch.Tensor):
                        self.marks += marks_of(leaf)
            return call(module, *args, **kwargs)

        return called
