"""state/incremental: checkpoints that write all, what is trained, what changed, or all of it
compressed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from gpulift_files import evict
from gpulift_work.checkpoint import (
    State,
    bytes_of,
    copy_into,
    differing_bytes,
    state_of,
    sync_folder,
    write_file,
)
from gpulift_work.samples import folder_for
from gpulift_work.training import (
    Training,
    device_of,
    free_memory,
    make_optimizer,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm, cores

TECHNIQUE = {
    "question": "What do checkpoints save that write the trained or changed tensors alone, or "
    "compress?",
    "expectation": """
        A step is one durable save, and the removal of what it replaces. GPT-2, all trained: weights
        and two moments, 1.49 GB, full at 0.7 GB/s 2.1 s. trained_only writes the same;
        changed_only, too, and compares with a copy on the GPU, 450 waits, 10 ms: 0.95 to 1.02.
        Weights and moments are noise but for sign and exponent: Zstandard leaves 92 % and, with
        the bytes of one place side by side, 84 %, at 0.5 GB/s a core: on 15 cores 0.2 s ahead of
        the first byte written: zstd 0.9 to 1.02, planes_zstd 0.98 to 1.1. The last of twelve layers
        trained: 498 MB and moments of 28 MB each, full 0.8 s. trained_only writes 85 MB, 0.12 s, 6
        to 6.6; changed_only finds the same and waits 170 times, 5.4 to 6.4; compressed as before.
        Restored cold, from the disk to the device, at 1.5 GB/s: as many bytes in all but compressed
        files, since frozen weights are read from the file that has them. The toy of 0.1 M: flushes
        of 1 ms and 112 tensors in Python, 8 ms: trained_only 1.0 and, of one layer of two, 1.2 to
        1.6, changed_only 0.9 and 1.1 to 1.5, compressed, whose tensors are small, 0.7 to 1.
    """,
    "predict": [
        "model:gpt2/trained:all: trained_only 0.97-1.03, changed_only 0.95-1.02, zstd 0.9-1.02,"
        " planes_zstd 0.98-1.1",
        "model:gpt2/trained:last_layer: trained_only 6-6.6, changed_only 5.4-6.4, zstd 0.9-1.02,"
        " planes_zstd 0.98-1.1",
        "model:gpt_toy/trained:last_layer: trained_only 1.2-1.6, changed_only 1.1-1.5",
    ],
    "claims": ["incremental-checkpoints-less-output", "incremental-checkpoints-faster"],
    "arms": ["full", "trained_only", "changed_only", "zstd", "planes_zstd"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"], "trained": ["last_layer", "all"]},
    "check": {"meaning": "bytes of the restored state that differ", "tolerance": 0},
}
SPACE = 6.5  # a checkpoint of each arm is there, and one that is being written
CODEC, LEVEL = "zstd", 1

Part = dict[str, Any]  # what a file holds, by the tensors' names


class Saving(Protocol):
    """A manner of saving, each time into a file of its own."""

    def part_of(self, state: State) -> Part:
        """What is written of the state."""

    def restored(self, part: Part) -> State:
        """What was written, as it was."""


class Full:
    """Everything, as it is."""

    def __init__(self, training: Training) -> None:
        """Of this training."""

    def part_of(self, state: State) -> Part:
        """All."""
        return state

    def restored(self, part: Part) -> State:
        """The same."""
        return part


class TrainedOnly(Full):
    """What has gradients, and its moments: the rest is in the first file, as that of the model
    which is trained further."""

    def __init__(self, training: Training) -> None:
        parameters = training.model.named_parameters()
        self._frozen = {f"model.{name}" for name, one in parameters if not one.requires_grad}
        self._written = False

    def part_of(self, state: State) -> Part:
        """All but what is frozen, after the first time."""
        frozen = self._frozen if self._written else set()
        self._written = True
        return {name: one for name, one in state.items() if name not in frozen}


class ChangedOnly(Full):
    """What differs from a copy, on the same device, of what was saved before."""

    def __init__(self, _: Training) -> None:
        self._saved: State = {}

    def part_of(self, state: State) -> Part:
        """The changed tensors."""
        changed = {name: one for name, one in state.items() if not self._has(name, one)}
        for name, one in changed.items():
            if name in self._saved:
                self._saved[name].copy_(one)
            else:
                self._saved[name] = one.clone()
        return changed

    def _has(self, name: str, tensor: torch.Tensor) -> bool:
        return name in self._saved and torch.equal(bits_of(self._saved[name]), bits_of(tensor))


class Compressed:
    """Everything, each tensor's bytes compressed, several at once, beside its type and shape."""

    def __init__(self, _: Training | None = None) -> None:
        import pyarrow  # type: ignore[import-untyped]

        self._codec: Any = pyarrow.Codec(CODEC, LEVEL)
        self._threads = ThreadPoolExecutor(cores())

    def part_of(self, state: State) -> Part:
        """The compressed bytes."""
        return dict(zip(state, self._threads.map(self._packed, state.values()), strict=True))

    def restored(self, part: Part) -> State:
        """The tensors."""
        return dict(zip(part, self._threads.map(self._unpacked, part.values()), strict=True))

    def _packed(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype, list[int]]:
        content = self._ordered(bytes_of_tensor(tensor), tensor.itemsize)
        packed = np.frombuffer(self._codec.compress(content), np.uint8).copy()
        return torch.from_numpy(packed), tensor.dtype, list(tensor.shape)

    def _unpacked(self, packed: tuple[torch.Tensor, torch.dtype, list[int]]) -> torch.Tensor:
        content, dtype, shape = packed
        size = dtype.itemsize * math.prod(shape)
        flat = np.frombuffer(self._codec.decompress(content.numpy(), size), np.uint8)
        values = self._in_place(flat, dtype.itemsize)
        return torch.from_numpy(values).view(dtype).reshape(shape)

    def _ordered(self, content: Any, _: int) -> Any:
        return content

    def _in_place(self, content: Any, _: int) -> Any:
        return content.copy()


class PlanesCompressed(Compressed):
    """The first bytes of all values, then their second ones: sign and exponent, which alone are no
    noise, are side by side."""

    def _ordered(self, content: Any, size: int) -> Any:
        return np.ascontiguousarray(content.reshape(-1, size).T).reshape(-1)

    def _in_place(self, content: Any, size: int) -> Any:
        return np.ascontiguousarray(content.reshape(size, -1).T).reshape(-1)


class Chain:
    """Files in a folder; what a newer one holds replaces what older ones do."""

    def __init__(self, folder: Path, saving: Saving) -> None:
        self._folder = folder
        self._saving = saving
        self._files: dict[Path, set[str]] = {}  # the names that count in each, the oldest first
        self._number = 0
        self.written_bytes = 0  # by the last save

    def save(self, state: State) -> None:
        """Returns when the state is durable, and files of which nothing counts are gone."""
        part = self._saving.part_of(state)
        self._number += 1
        file = self._folder / f"{self._number}.pt"
        partial = file.with_suffix(".partial")
        write_file(partial, part)
        partial.rename(file)
        sync_folder(self._folder)
        self.written_bytes = file.stat().st_size
        self._files = {one: names - part.keys() for one, names in self._files.items()}
        self._files[file] = set(part)
        for one in [one for one, names in self._files.items() if not names]:
            del self._files[one]
            one.unlink()

    def evict(self) -> None:
        """Out of memory, so that it is restored from the disk."""
        evict(self._files)

    def restore(self, targets: State) -> None:
        """The newest state, into tensors that are there, on whatever device."""
        state: State = {}
        for file, names in self._files.items():
            part = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            state.update(self._saving.restored({name: part[name] for name in names}))
        copy_into(state, targets)


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is a durable save; the training takes one step ahead of each."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(name, device, seed)
    if point["trained"] == "last_layer":
        freeze(training)
    training.step()  # an optimizer has no moments before its first step
    whole_bytes = bytes_of(state_of(training))
    chain = Chain(folder_for(arm, SPACE * whole_bytes), SAVINGS[arm](training))
    chain.save(state_of(training))

    def train() -> None:
        training.step()
        training.synchronize()

    def rest() -> None:
        training.loss = None
        training.optimizer.zero_grad(set_to_none=True)
        free_memory(device)  # or the arms' activations would not fit together

    return Arm(
        step=lambda: chain.save(state_of(training)),
        error=lambda: restored(chain, training)[0],
        synchronize=training.synchronize,
        before=train,
        rest=rest,
        metrics=lambda: {
            "checkpoint_bytes": float(chain.written_bytes),
            "restore_s": restored(chain, training)[1],
        },
        bytes=whole_bytes,
        roof="storage/write",
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
    )


def freeze(training: Training) -> None:
    """All but the last layer, which alone has moments."""
    training.model.requires_grad_(False)
    last = training.model.layers[-1]
    last.requires_grad_(True)
    training.optimizer = make_optimizer(training.model_name, list(last.parameters()))


def restored(chain: Chain, training: Training) -> tuple[float, float]:
    """Bytes that differ once the newest checkpoint is on the training's device again, and how long
    it took to get there from the disk."""
    state = state_of(training)
    targets = {name: torch.zeros_like(one) for name, one in state.items()}
    chain.evict()
    training.synchronize()
    start_s = monotonic()
    chain.restore(targets)
    training.synchronize()
    restore_s = monotonic() - start_s
    return float(differing_bytes(state, targets)), restore_s


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """To compare: as numbers, 0 and -0 would be the same, and what is none never."""
    flat = tensor.detach().flatten()
    return flat.view(torch.int32 if flat.itemsize == 4 else torch.uint8)


def bytes_of_tensor(tensor: torch.Tensor) -> Any:
    """On the host."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()


SAVINGS: dict[str, Callable[[Training], Saving]] = {
    "full": Full,
    "trained_only": TrainedOnly,
    "changed_only": ChangedOnly,
    "zstd": Compressed,
    "planes_zstd": PlanesCompressed,
}
