"""Switches of what runs a model: the precision of its products, and its compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .switch import Seen, Switch

_PROCESSOR = Path("/proc/cpuinfo")
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # the last on Arm


class Bf16(Switch):
    """Autocast around each outermost module, whose results are FP32 as without.

    The call is wrapped, since autocast entered in a hook would break a compiled module's graph.
    """

    name = "bf16"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.label = "autocast" if seen.autocast else "BF16 autocast"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not seen.modules:
            return "no module was called outside of compiled code"
        if seen.is_before_ampere():
            return "the GPU has no BF16"
        if seen.device.type == "cpu" and not has_native_bf16():
            return "the processor has no BF16"
        if not seen.autocast and seen.is_low_precision():
            return "all parameters are BF16 or FP16"
        if seen.compiled and seen.autocast:
            return "it is compiled with it"
        if seen.autocast and is_crowded(seen.device):
            return "without it the step would not fit"
        return ""

    def already(self, seen: Seen) -> str:
        """See base."""
        return "the script uses autocast" if seen.autocast else ""

    def flip(self) -> None:
        """See base."""
        on = not self.seen.autocast
        if not on:  # contexts that the script enters anywhere
            self.put(torch.autocast, "__enter__", _disabled(torch.autocast.__enter__))
        for module in self.seen.modules:
            name = "forward" if module._compiled_call_impl is None else "_compiled_call_impl"
            self.put(module, name, self._cast(getattr(module, name), on))

    def _cast(self, forward: Callable[..., Any], on: bool) -> Callable[..., Any]:
        device = self.seen.device.type

        @functools.wraps(forward)
        def cast(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device, dtype=torch.bfloat16, enabled=on):
                output = forward(*args, **kwargs)
            return _with_fp32(output) if on else output

        return cast


def is_crowded(device: torch.device) -> bool:
    """Whether a step in FP32, whose activations are twice as large, may not fit beside what is kept
    now."""
    if device.type != "cuda":
        return False
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    step_bytes = 2 * torch.cuda.max_memory_allocated(device)
    return bool(step_bytes + torch.cuda.memory_allocated(device) > total_bytes)


def _with_fp32(output: Any) -> Any:
    """Leaves a loss outside of the model to FP32; beside a loss of the model, that alone."""
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    has_loss = any(tensor.dim() == 0 for tensor in tensors)

    def to_fp32(leaf: Any) -> Any:
        is_bf16 = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bfloat16
        return leaf.float() if is_bf16 and has_loss == (leaf.dim() == 0) else leaf

    return tree_map(to_fp32, output)


def _disabled(enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def enter_disabled(context: Any) -> Any:
        enabled, context._enabled = context._enabled, False
        try:
            return enter(context)
        finally:
            context._enabled = enabled

    return enter_disabled


def has_native_bf16() -> bool:
    """Whether the processor multiplies BF16; without, autocast makes it slower."""
    try:
        flags = _PROCESSOR.read_text(encoding="utf-8").split()
    except OSError:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return not _BF16_FLAGS.isdisjoint(flags)


class Compile(Switch):
    """What the script compiles runs compiled."""

    name = "compile"
    label = "torch.compile"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not seen.compiled:
            return "the script compiles nothing"
        return "" if hasattr(torch.compiler, "set_stance") else "it needs torch 2.6"

    def already(self, seen: Seen) -> str:
        """See base."""
        return "the script compiles"

    def flip(self) -> None:
        """See base."""
        self._undo.enter_context(torch.compiler.set_stance("force_eager"))
