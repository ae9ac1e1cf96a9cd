"""Switches that are settings of the whole process: products, convolutions, attention, threads."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from .switch import LOW_PRECISION, NO_CUDA, Seen, Switch

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_TOPOLOGY = Path("/sys/devices/system/cpu")
_UNKNOWN = "which operators run is not known"


def _convolves(seen: Seen) -> bool:
    return any("convolution" in operator for operator in seen.operators)


class _Precision:
    """What an older setting and, from torch 2.9 on, newer ones say.

    Written as the script does: torch raises where the older is read after a newer was written.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], *newer: Any) -> None:
        self._read, self._write = read, write
        self._newer = [owner for owner in newer if hasattr(owner, "fp32_precision")]

    def older(self) -> Any:
        """None where the script uses the newer settings."""
        try:
            return self._read()
        except RuntimeError:
            return None

    def is_tf32(self) -> bool:
        """Whether TF32 is allowed."""
        older = self.older()
        if older is None:
            return bool(self._newer[0].fp32_precision == "tf32")
        return older not in (False, "highest")

    def allow(self, on: bool, undo: ExitStack) -> None:
        """Allows TF32, or does not."""
        for owner in self._newer:
            undo.callback(setattr, owner, "fp32_precision", owner.fp32_precision)
        older = self.older()
        if older is not None:
            undo.callback(self._write, older)
            names = ("highest", "high")
            self._write(on if isinstance(older, bool) else names[on])
        else:
            for owner in self._newer:
                owner.fp32_precision = "tf32" if on else "ieee"


def _products() -> _Precision:
    return _Precision(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        torch.backends.cuda.matmul,
        getattr(torch.backends.mkldnn, "matmul", None),
    )


def _convolutions() -> _Precision:
    cudnn = torch.backends.cudnn
    return _Precision(
        lambda: cudnn.allow_tf32,
        lambda value: setattr(cudnn, "allow_tf32", value),
        getattr(cudnn, "conv", None),
        getattr(cudnn, "rnn", None),
    )


class Tf32(Switch):
    """FP32 products of matrices and convolutions with operands rounded to TF32."""

    name = "tf32"
    label = "TF32 products"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not seen.on_cuda:
            return NO_CUDA
        if seen.is_before_ampere():
            return "the GPU has no TF32"
        if seen.is_low_precision():
            return "all products are in BF16 or FP16"
        if seen.compiled and self.already(seen):
            return "it is compiled with it"
        known = seen.operators and not seen.compiled
        if known and not _convolves(seen) and not any(one in seen.operators for one in _PRODUCTS):
            return "no product of matrices and no convolution ran"
        return ""

    def already(self, seen: Seen) -> str:
        """See base."""
        on = _products().is_tf32()
        # What surely runs no convolution gains nothing by cuDNN's setting.
        if _convolves(seen) or seen.compiled or not seen.operators:
            on = on and _convolutions().is_tf32()
        return "it is allowed" if on else ""

    def flip(self) -> None:
        """See base."""
        on = not self.already(self.seen)
        with warnings.catch_warnings():  # some versions ask for the newer settings
            warnings.simplefilter("ignore")
            _products().allow(on, self._undo)
            _convolutions().allow(on, self._undo)


class Attention(Switch):
    """One back end of scaled_dot_product_attention ahead of all others."""

    backend = ""  # as in torch.backends.cuda.enable_*_sdp
    place = ""  # as torch orders them
    operator = ""
    takes_fp32 = False

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if not seen.on_cuda:
            return NO_CUDA
        if not hasattr(torch._C, "_set_sdp_priority_order"):
            return "it needs torch 2.6"
        if not seen.operators:
            return _UNKNOWN
        if seen.compiled:
            return "compiled graphs keep the back end that they were traced with"
        taken = ATTENTION.intersection(seen.operators)
        if not taken:
            return "no scaled_dot_product_attention ran"
        if taken == {self.operator}:
            return "attention takes it already"
        if not self.takes_fp32 and not seen.autocast and not seen.dtypes() & set(LOW_PRECISION):
            return "it takes BF16 and FP16 alone"
        return ""

    def flip(self) -> None:
        """See base."""
        enabled = getattr(torch.backends.cuda, f"{self.backend}_sdp_enabled")()
        enable = getattr(torch.backends.cuda, f"enable_{self.backend}_sdp")
        self._undo.callback(enable, enabled)
        enable(True)
        # Where this one refuses, the script's own is taken, and its step is what it was.
        order = torch._C._get_sdp_priority_order()
        self._undo.callback(torch._C._set_sdp_priority_order, order)
        own = int(getattr(torch._C._SDPBackend, self.place))
        torch._C._set_sdp_priority_order([own, *(other for other in order if other != own)])


class CudnnAttention(Attention):
    """See base."""

    name = "attention_cudnn"
    label = "attention by cuDNN"
    backend = "cudnn"
    place = "CUDNN_ATTENTION"
    operator = "aten::_scaled_dot_product_cudnn_attention"


class FlashAttention(Attention):
    """See base."""

    name = "attention_flash"
    label = "flash attention"
    backend = "flash"
    place = "FLASH_ATTENTION"
    operator = "aten::_scaled_dot_product_flash_attention"


class EfficientAttention(Attention):
    """See base."""

    name = "attention_efficient"
    label = "memory-efficient attention"
    backend = "mem_efficient"
    place = "EFFICIENT_ATTENTION"
    operator = "aten::_scaled_dot_product_efficient_attention"
    takes_fp32 = True


ATTENTION = {
    "aten::_scaled_dot_product_attention_math",
    *(one.operator for one in (CudnnAttention, FlashAttention, EfficientAttention)),
}


class Threads(Switch):
    """All physical cores where fewer are used, else half of the threads."""

    name = "threads"

    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        now, cores = torch.get_num_threads(), physical_cores()
        self.threads = cores if now < cores else now // 2
        self.label = f"torch.set_num_threads({self.threads}), {now} as it is"

    def obstacle(self, seen: Seen) -> str:
        """See base."""
        if seen.device.type != "cpu":
            return "the step runs on the GPU"
        return "" if self.threads else "there is one core"

    def flip(self) -> None:
        """See base."""
        self._undo.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(self.threads)


def physical_cores() -> int:
    """Cores that this process may use; threads of one core count once."""
    cores = set()
    for cpu in _usable_cpus():
        siblings = _TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        try:
            cores.add(siblings.read_text(encoding="ascii"))
        except OSError:
            cores.add(str(cpu))
    return len(cores)


def _usable_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
