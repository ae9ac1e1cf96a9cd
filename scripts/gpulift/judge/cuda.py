"""A task on a card: device memory of the judge's, which the candidate opens through CUDA IPC.

Inputs lie in memory of the judge alone until the clock runs, are copied from there on the device,
and outputs back, within the timed part: what is written after that is not seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gpulift.ground.errors import NOTHING_RAN, GpuliftError
from gpulift.judge.memory import Layout, Part
from gpulift.judge.roofs import ABOVE, TRIES, Roofs

HANDLE = 64  # bytes of CUipcMemHandle
LAZY_PEERS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
EDGE = 8192
COPIED = 1 << 30


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = (("reserved", ctypes.c_char * HANDLE),)


class Foreign:
    """Device memory by its address, as torch takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            **{"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3},
        }


class Arena:
    """Inputs and outputs of one side on the card, and the judge's own copies of them."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.torch = required_torch()
        self.torch.cuda.init()
        self.torch.zeros(1, device="cuda")  # makes the context that the driver's calls are in
        self.size = max(layout.size for layout in layouts)
        self.handles: list[str] = []
        self._shared = [self._allocated() for _ in range(2)]
        self._own = [self.torch.empty_like(one) for one in self._shared]

    def _allocated(self) -> Any:
        driver, address, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), Handle()
        _checked(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(self.size)))
        if driver.cuIpcGetMemHandle(ctypes.byref(handle), address) == 0:
            self.handles.append(bytes(handle).hex())
        return self.torch.as_tensor(Foreign(address.value, self.size), device="cuda")

    def stage(self, inputs: bytes, poison: bytes) -> None:
        """Before the clock runs: to where the candidate cannot read, and poison to its outputs."""
        for target, content in ((self._own[0], inputs), (self._shared[1], poison)):
            held = self.torch.frombuffer(bytearray(content), dtype=self.torch.uint8)
            target[: len(content)].copy_(held)
        self.torch.cuda.synchronize()

    def publish(self, size: int) -> None:
        """On the clock."""
        self._shared[0][:size].copy_(self._own[0][:size])
        self.torch.cuda.synchronize()

    def collect(self, size: int) -> None:
        """On the clock: what comes later is not seen."""
        self._own[1][:size].copy_(self._shared[1][:size])
        self.torch.cuda.synchronize()

    def collected(self, size: int) -> bytes:
        """What was there."""
        return bytes(self._own[1][:size].cpu().numpy())


def required_torch() -> Any:
    """Raises GpuliftError where no card can be used."""
    try:
        import torch
    except ImportError:
        raise GpuliftError("a task on a card needs torch, which is not installed") from None
    if not torch.cuda.is_available():
        raise GpuliftError("the task is for a card, and torch finds none here", NOTHING_RAN)
    return torch


def opened(torch: Any, handles: Sequence[bytes], size: int) -> list[Any]:
    """The judge's memory in the candidate's process; nothing where that is refused."""
    torch.zeros(1, device="cuda")
    driver, found = ctypes.CDLL("libcuda.so.1"), []
    for content in handles:
        address, handle = ctypes.c_uint64(), Handle.from_buffer_copy(content)
        if driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, LAZY_PEERS):
            return []
        found.append(torch.as_tensor(Foreign(address.value, size), device="cuda"))
    return found


def views(torch: Any, arena: Any, parts: Sequence[Part]) -> list[Any]:
    """The arrays of a layout in an arena."""
    return [
        arena[at : at + size].view(getattr(torch, kind)).reshape(shape)
        for kind, shape, at, size in parts
    ]


def measured() -> Roofs:
    """Of the card: twice the best of a copy and of a product in half precision."""
    torch = required_torch()
    source = torch.ones(COPIED, dtype=torch.uint8, device="cuda")
    factor = torch.ones(EDGE, EDGE, dtype=torch.float16, device="cuda")
    copied = _best(torch, source.clone)
    multiplied = _best(torch, lambda: factor @ factor)
    return Roofs(ABOVE * 2 * COPIED / copied, ABOVE * 2 * EDGE**3 / multiplied)


def _best(torch: Any, step: Any) -> float:
    times = []
    for _ in range(TRIES):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        step()
        ended.record()
        torch.cuda.synchronize()
        times.append(began.elapsed_time(ended) / 1e3)
    return float(min(times))


def _checked(result: int) -> None:
    if result:
        raise GpuliftError(f"the card's driver refuses memory for the judge (error {result})")
