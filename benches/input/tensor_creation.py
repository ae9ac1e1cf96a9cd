"""input/tensor_creation: numbers that exist become a tensor, or are made where they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gpulift_work.malloc import faults_per_step, fix_malloc
from gpulift_work.training import device_of
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "What does a tensor that shares an array's memory save, or one made on the device?",
    "expectation": (
        "torch.tensor copies: 64 KiB in the cache in 3 us with 2 us of calls, 38.5 MB in 4 ms, and "
        "as malloc gives new memory above 32 MiB, with 9,408 page faults of 1 us: 13 ms. as_tensor "
        "and from_numpy share what is there, 0.5 to 1 us at any size: 5 times as fast, and 10,000 "
        "times. A list is read number by number, 30 ns each: 16,384 are 0.5 ms, 0.01 of the "
        "speed. To a device, the copy over the link is all: torch.tensor copies an array no second "
        "time on the host, so sharing is 1.0, at 64 KiB 15 us and at 10 GB/s from pageable memory "
        "3.9 ms; made there it takes a launch, 4 us, or 38.5 MB at 3 TB/s, 13 us: 4 and 300."
    ),
    "predict": [
        "to:host/bytes:65536: tensor 4.5-5.5 us, as_tensor 4.5-5.5, from_numpy 4.5-5.5,"
        " tensor_of_list 0.009-0.011",
        "to:host/bytes:38535168: tensor 11.7-14.3 ms, as_tensor 9000-11000, from_numpy 9000-11000",
        "to:device/bytes:65536: tensor 13.5-16.5 us, on_device 3.6-4.4",
        "to:device/bytes:38535168: tensor 3.51-4.29 ms, on_device 270-330",
        "to:device: as_tensor 0.9-1.1, from_numpy 0.9-1.1",
    ],
    "found": (
        "On the host a list takes 88 ns a number, not 30, 64 KiB take 3.2 us, not 5, and 38.5 MB "
        "18 to 19 ms, of which a page fault is 1.5 us, not 1; from_numpy takes 0.93 us in place of "
        "them. On a device arange takes 93 us for 38.5 MB on an H100 and an H200 alike, so that "
        "memory does not bound it: what does, and why copies took 22 us and 6.3 ms on hosts that "
        "others kept busy with 1.3 to 1.4 cores, is not known."
    ),
    "claims": ["as-tensor-faster", "create-on-device-faster"],
    "arms": ["tensor", "tensor_of_list", "as_tensor", "from_numpy", "on_device"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"to": ["host", "device"], "bytes": [65536, 38535168]},
    "check": {"meaning": "values that differ", "tolerance": 0},
}

SHARING = ("as_tensor", "from_numpy")
LONGEST_LIST = 100_000
VALUE_BYTES = 4


class Creation:
    """Makes the same tensor in each step. FP32 holds its values, 0 and on, exactly."""

    def __init__(self, arm: str, count: int, device: torch.device) -> None:
        self.array = np.arange(count, dtype=np.float32)
        self._create = CREATE[arm](self.array, device)
        self._device = device
        self._shares = arm in SHARING and device.type == "cpu"
        self._tensor: torch.Tensor | None = None

    def step(self) -> None:
        """The last tensor goes when the next one is there."""
        self._tensor = self._create()

    def wrong_values(self) -> float:
        """Of the last tensor. Raises RuntimeError where it shares memory, and should not."""
        if self._tensor is None:
            raise RuntimeError("no tensor was made")
        if self._tensor.dtype != torch.float32 or self._tensor.device.type != self._device.type:
            raise ValueError(f"the tensor is {self._tensor.dtype} on {self._tensor.device}")
        wrong = int((self._tensor.cpu().numpy() != self.array).sum())
        self.require_aliasing()
        return float(wrong)

    def require_aliasing(self) -> None:
        """What is written to the array is read in a tensor that shares it, and in no other."""
        assert self._tensor is not None
        kept = self.array[0].copy()
        self.array[0] = kept - 1
        seen = self._tensor[0].item() == kept - 1
        self.array[0] = kept
        if seen != self._shares:
            does = "shares" if seen else "does not share"
            raise RuntimeError(f"the tensor {does} the array's memory")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Tensors of FP32 on the host or on the GPU."""
    to_device = point["to"] == "device"
    if to_device and gpu is None:
        raise Skip("there is no GPU to make a tensor on", "use a GPU")
    if not to_device and arm == "on_device":
        raise Skip("the tensor is wanted on the host in this case")
    count = int(point["bytes"]) // VALUE_BYTES
    if arm == "tensor_of_list" and count > LONGEST_LIST:
        raise Skip(
            f"a list of {count} numbers takes a third of a gigabyte, and a step half a second"
        )
    malloc = fix_malloc()
    torch.set_num_threads(1)  # as in a worker process of a loader
    device = device_of(gpu) if to_device else torch.device("cpu")
    creation = Creation(arm, count, device)
    return Arm(
        step=creation.step,
        error=creation.wrong_values,
        synchronize=lambda: torch.cuda.synchronize(device) if to_device else None,
        metrics=lambda: {"faults_per_step": faults_per_step(creation.step)},
        items=1,
        item="tensor",
        notes={"device": device.type, "threads": "1", **malloc},
    )


def from_list(array: Any, device: torch.device) -> Callable[[], torch.Tensor]:
    """Of Python's numbers, which are there before the steps."""
    numbers = array.tolist()
    return lambda: torch.tensor(numbers, device=device)


def on_device(array: Any, device: torch.device) -> Callable[[], torch.Tensor]:
    """Of nothing."""
    return lambda: torch.arange(len(array), dtype=torch.float32, device=device)


CREATE: Mapping[str, Callable[[Any, torch.device], Callable[[], torch.Tensor]]] = {
    "tensor": lambda array, device: lambda: torch.tensor(array, device=device),
    "tensor_of_list": from_list,
    "as_tensor": lambda array, device: lambda: torch.as_tensor(array, device=device),
    "from_numpy": lambda array, device: lambda: torch.from_numpy(array).to(device),
    "on_device": on_device,
}
