"""A task on a card: device memory of the judge's, which the candidate maps too.

It goes over as a descriptor, since handles of legacy CUDA IPC do not pass between PID namespaces.
Inputs lie in memory of the judge alone until the clock runs, are copied from there on the device,
and outputs back, on the clock: what is written after that is not seen.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from gpulift.ground.errors import NOTHING_RAN, GpuliftError
from gpulift.judge.memory import Layout, Part

PINNED = DEVICE = DESCRIPTOR = 1
READ_AND_WRITE = 3
# On a card that nobody else is at work on, so many moments in a row are short.
QUIET_S, QUIET_MOMENTS, LEAST_MOMENT_S = 2.0, 10, 2e-4


class Arena:
    """Inputs and outputs of one side on the card, and the judge's own copies of them."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.torch = required_torch()
        self.torch.zeros(1, device="cuda")  # makes the context that the driver's calls are in
        driver, kind = ctypes.CDLL("libcuda.so.1"), _kind(self.torch)
        unit, self._handles, self._shared = ctypes.c_size_t(), [], []
        _checked(driver.cuMemGetAllocationGranularity(ctypes.byref(unit), kind, 0))
        self.size = -(-max(layout.size for layout in layouts) // unit.value) * unit.value
        for _ in range(2):
            handle, size = ctypes.c_uint64(), ctypes.c_size_t(self.size)
            _checked(driver.cuMemCreate(ctypes.byref(handle), size, kind, ctypes.c_uint64(0)))
            self._handles.append(handle)
            self._shared.append(_mapped(self.torch, driver, handle, self.size))
        self._own = [self.torch.empty_like(one) for one in self._shared]
        self._word = self.torch.empty(1, device="cuda")
        self._short_s = max(5 * median(self._moment() for _ in range(50)), LEAST_MOMENT_S)
        self.share = self.free() // 2  # of the card's memory, that one side may take

    def descriptors(self) -> list[int]:
        """By which another process maps inputs and outputs; whoever asks closes them."""
        driver, found = ctypes.CDLL("libcuda.so.1"), []
        for handle in self._handles:
            made, none = ctypes.c_int(), ctypes.c_uint64(0)
            export = driver.cuMemExportToShareableHandle
            _checked(export(ctypes.byref(made), handle, DESCRIPTOR, none))
            found.append(made.value)
        return found

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

    def free(self) -> int:
        """Bytes of the card's memory that nobody has."""
        return int(self.torch.cuda.mem_get_info()[0])

    def quiet(self) -> bool:
        """Waits until nothing else is at work on the card, for a while: a process that is stopped
        may have kernels that run on, between which and ours the card's time is shared."""
        until_s, short = time.monotonic() + QUIET_S, 0
        while short < QUIET_MOMENTS:
            short = short + 1 if self._moment() < self._short_s else 0
            if time.monotonic() > until_s:
                return False
        return True

    def _moment(self) -> float:
        """Seconds of the least that the card can do for us."""
        began_s = time.perf_counter()
        self._word.zero_()
        self.torch.cuda.synchronize()
        return time.perf_counter() - began_s

    def kept(self, size: int) -> bool:
        """Whether inputs are as they were published."""
        return bool(self.torch.equal(self._shared[0][:size], self._own[0][:size]))

    def collected(self, size: int) -> bytes:
        """What was there."""
        return bytes(self._own[1][:size].cpu().numpy())


class _Memory:
    """Device memory by its address, as torch takes it."""

    def __init__(self, address: int, size: int) -> None:
        about = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.__cuda_array_interface__ = about


def required_torch() -> Any:
    """Raises GpuliftError where no card can be used."""
    try:
        import torch
    except ImportError:
        raise GpuliftError("a task on a card needs torch, which is not installed") from None
    if not torch.cuda.is_available():
        raise GpuliftError("the task is for a card, and torch finds none here", NOTHING_RAN)
    return torch


def opened(torch: Any, descriptors: Sequence[int], size: int) -> list[Any]:
    """The judge's memory in the candidate's process; nothing where that is refused."""
    torch.zeros(1, device="cuda")
    driver, found = ctypes.CDLL("libcuda.so.1"), []
    for one in descriptors:
        handle, descriptor = ctypes.c_uint64(), ctypes.c_void_p(one)
        if driver.cuMemImportFromShareableHandle(ctypes.byref(handle), descriptor, DESCRIPTOR):
            return []
        found.append(_mapped(torch, driver, handle, size))
    return found


def views(torch: Any, arena: Any, parts: Sequence[Part]) -> list[Any]:
    """The arrays of a layout in an arena."""
    return [
        arena[at : at + size].view(getattr(torch, kind)).reshape(shape)
        for kind, shape, at, size in parts
    ]


def _kind(torch: Any) -> bytes:
    """CUmemAllocationProp of memory of this card that can be shared by a descriptor."""
    place = torch.cuda.current_device()
    return struct.pack("@iiiiP8x", PINNED, DESCRIPTOR, DEVICE, place, 0)


def _mapped(torch: Any, driver: ctypes.CDLL, handle: ctypes.c_uint64, size: int) -> Any:
    address, none, length = ctypes.c_uint64(), ctypes.c_uint64(0), ctypes.c_size_t(size)
    access = struct.pack("@iii", DEVICE, torch.cuda.current_device(), READ_AND_WRITE)
    reserved = ctypes.byref(address)
    _checked(driver.cuMemAddressReserve(reserved, length, ctypes.c_size_t(0), none, none))
    _checked(driver.cuMemMap(address, length, ctypes.c_size_t(0), handle, none))
    _checked(driver.cuMemSetAccess(address, length, access, ctypes.c_size_t(1)))
    return torch.as_tensor(_Memory(address.value, size), device="cuda")


def _checked(result: int) -> None:
    if result:
        raise GpuliftError(f"the card's driver refuses memory for the judge (error {result})")
