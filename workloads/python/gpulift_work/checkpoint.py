"""Durable checkpoints of a training in PyTorch, for Python arms.

A state is tensors by name. Whatever the manner of saving, torch.save writes it, and it is on the
disk and has its name only when all of it is there: the checkpoint before stays until then.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from gpulift_work.training import Training

State = dict[str, torch.Tensor]
NAME = "checkpoint-"
PARTIAL = ".partial"


def state_of(training: Training) -> State:
    """Weights, moments and step counts, where the training has them: it goes on changing them."""
    state = {f"model.{name}": one for name, one in training.model.state_dict().items()}
    for index, moments in training.optimizer.state_dict()["state"].items():
        state.update({f"optimizer.{index}.{name}": one for name, one in moments.items()})
    return state


def bytes_of(state: State) -> int:
    """What the tensors hold."""
    return sum(int(one.nbytes) for one in state.values())


def shards_of(state: State, number: int) -> list[State]:
    """The state in so many parts of about the same size."""
    shards: list[State] = [{} for _ in range(number)]
    for name in sorted(state, key=lambda name: state[name].nbytes, reverse=True):
        min(shards, key=bytes_of)[name] = state[name]
    return shards


class Checkpoints:
    """The checkpoints in a folder, each a folder of so many files, which as many threads write."""

    def __init__(self, folder: Path, files: int = 1) -> None:
        self._folder = folder
        self._files = files
        self._threads = ThreadPoolExecutor(files)

    def write(self, state: State) -> None:
        """Returns when the state is durable; then those before are removed. Raises OSError in one
        line without a path: it goes into records."""
        try:
            self._write(state)
        except (OSError, RuntimeError) as error:
            reason = system_said(error)
            if reason is None:
                raise
            raise OSError(f"the checkpoint cannot be written: {reason}") from error

    def _write(self, state: State) -> None:
        earlier = self._whole()
        whole = self._folder / f"{NAME}{number_of(earlier[-1]) + 1 if earlier else 1}"
        partial = whole.with_suffix(PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir()
        shards = shards_of(state, self._files) if self._files > 1 else [state]
        files = [partial / f"{index}.pt" for index in range(len(shards))]
        list(self._threads.map(write_file, files, shards))
        sync_folder(partial)
        partial.rename(whole)
        sync_folder(self._folder)
        for one in earlier:
            shutil.rmtree(one)

    def _whole(self) -> list[Path]:
        """The oldest first."""
        whole = (one for one in self._folder.glob(f"{NAME}*") if one.suffix != PARTIAL)
        return sorted(whole, key=number_of)

    def load(self) -> State:
        """The newest one, on the host; nothing where there is none."""
        state: State = {}
        for folder in self._whole()[-1:]:
            for file in folder.iterdir():
                state.update(torch.load(file, map_location="cpu", weights_only=True))
        return state

    def bytes_on_disk(self) -> int:
        """Of all files in the folder."""
        return sum(one.stat().st_size for one in self._folder.rglob("*") if one.is_file())

    def remove(self) -> None:
        """All of them, and what a process that was killed left."""
        for one in self._folder.glob(f"{NAME}*"):
            shutil.rmtree(one)


def number_of(checkpoint: Path) -> int:
    """A later one has a higher number."""
    return int(checkpoint.name.removeprefix(NAME))


def write_file(path: Path, state: State) -> None:
    """Returns when it is on the disk."""
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Returns when the names in the folder are on the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def system_said(error: BaseException) -> str | None:
    """Why the system refused: torch raises an error of its own while it handles the system's."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__
    return None


def differing_bytes(state: State, found: State) -> int:
    """The bytes that are not the same; all of a tensor that only one of them has."""
    return sum(differing(state.get(name), found.get(name)) for name in state.keys() | found.keys())


def differing(one: torch.Tensor | None, other: torch.Tensor | None) -> int:
    """Bytes of two tensors that differ."""
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return max(bytes_of({"": each}) for each in (one, other) if each is not None)
    bits, others = (each.to(one.device).flatten().view(torch.uint8) for each in (one, other))
    return int((bits != others).sum())


class Saving(Protocol):
    """A manner of saving."""

    def save(self, state: State) -> None:
        """Returns when the training may change the state."""

    def wait(self) -> None:
        """Returns when what was saved is durable."""


class NoSaving:
    """Saves nothing."""

    def save(self, state: State) -> None:
        """Nothing."""

    def wait(self) -> None:
        """For nothing."""


class Synchronous:
    """Holds the training up until the state is durable."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints

    def save(self, state: State) -> None:
        """Straight from the device, tensor by tensor."""
        self._checkpoints.write(state)

    def wait(self) -> None:
        """For nothing: it is durable already."""


class Snapshot:
    """Copies the state to host buffers that it keeps, pinned for a GPU; a thread writes them."""

    def __init__(self, checkpoints: Checkpoints, state: State) -> None:
        self._checkpoints = checkpoints
        self._copies = {
            name: torch.empty_like(one, device="cpu", pin_memory=one.is_cuda)
            for name, one in state.items()
        }
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None

    def save(self, state: State) -> None:
        """Waits for the save before, which still needs the buffers, and for the copies."""
        self.wait()
        for name, one in state.items():
            self._copies[name].copy_(one, non_blocking=True)
        if any(one.is_cuda for one in state.values()):
            torch.cuda.current_stream().synchronize()
        self._writing = self._thread.submit(self._checkpoints.write, self._copies)

    def wait(self) -> None:
        """Raises what the thread met."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def make_saving(name: str, folder: Path, state: State) -> tuple[Saving, Checkpoints]:
    """The manner of this name, and where it puts its checkpoints."""
    checkpoints = Checkpoints(folder, files=4 if name == "sharded_4" else 1)
    manners: dict[str, Callable[[], Saving]] = {
        "none": NoSaving,
        "synchronous": lambda: Synchronous(checkpoints),
        "snapshot_thread": lambda: Snapshot(checkpoints, state),
        "sharded_4": lambda: Synchronous(checkpoints),
    }
    return manners[name](), checkpoints
