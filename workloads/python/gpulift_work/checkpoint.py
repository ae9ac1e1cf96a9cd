"""Durable checkpoints of a training in PyTorch, for Python arms.

A state is tensors by name. However it is saved, its files are flushed, and it has its name only
when all of it is on the disk; then the checkpoint before it is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed.checkpoint as dcp

if TYPE_CHECKING:
    from gpulift_work.training import Training

State = dict[str, torch.Tensor]
NAME = "checkpoint-"
PARTIAL = ".partial"
FILE = "state.pt"  # of what is one file
METADATA = ".metadata"  # of DCP's, without which the others are not read

warnings.filterwarnings("ignore", module="torch.distributed.checkpoint")


def state_of(training: Training) -> State:
    """Weights, moments and step counts, where the training has them: it goes on changing them."""
    state = {f"model.{name}": one for name, one in training.model.state_dict().items()}
    for index, moments in training.optimizer.state_dict()["state"].items():
        state.update({f"optimizer.{index}.{name}": one for name, one in moments.items()})
    return state


def bytes_of(state: State) -> int:
    """What the tensors hold."""
    return sum(int(one.nbytes) for one in state.values())


def on_host(state: State) -> State:
    """A copy."""
    return {name: one.detach().to("cpu", copy=True) for name, one in state.items()}


def copy_into(found: State, targets: State) -> None:
    """As a module takes the state that it is given. Raises ValueError where the names differ."""
    if found.keys() != targets.keys():
        raise ValueError("the file holds other tensors")
    for name, target in targets.items():
        target.copy_(found[name])


class Checkpoints:
    """A folder of the newest whole checkpoint, and of one that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.durable_s = 0.0  # when the last one was, on the steady clock

    def begin(self) -> Path:
        """A folder for the next one's files."""
        newest = self.newest()
        number = 1 if newest is None else number_of(newest) + 1
        partial = self.folder / f"{NAME}{number}{PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        partial.mkdir()
        return partial

    def finish(self, partial: Path) -> None:
        """Of files that are on the disk: names them, and removes the checkpoint before."""
        earlier = self._whole()
        sync_folder(partial)
        partial.rename(partial.with_suffix(""))
        sync_folder(self.folder)
        self.durable_s = monotonic()
        for one in earlier:
            shutil.rmtree(one)

    def newest(self) -> Path | None:
        """None where there is none."""
        return max(self._whole(), key=number_of, default=None)

    def files(self) -> list[Path]:
        """Of the newest one."""
        newest = self.newest()
        return [] if newest is None else sorted(newest.iterdir())

    def _whole(self) -> list[Path]:
        return [one for one in self.folder.glob(f"{NAME}*") if one.suffix != PARTIAL]


def number_of(checkpoint: Path) -> int:
    """A later one has a higher number."""
    return int(checkpoint.name.removeprefix(NAME))


class Manner(Protocol):
    """A manner of saving and of restoring."""

    checkpoints: Checkpoints

    def save(self, state: State) -> None:
        """Returns when the training may change the state."""

    def wait(self) -> None:
        """Returns when what was saved is durable, and raises what went wrong."""

    def restore(self, targets: State) -> None:
        """The newest checkpoint, into tensors that are there, on whatever device."""


class TorchSave:
    """torch.save, which the training waits for."""

    def __init__(self, folder: Path) -> None:
        self.checkpoints = Checkpoints(folder)

    def save(self, state: State) -> None:
        """Straight from the device, tensor by tensor."""
        partial = self.checkpoints.begin()
        write_file(partial / FILE, state)
        self.checkpoints.finish(partial)

    def wait(self) -> None:
        """For nothing: it is durable already."""

    def load(self) -> State:
        """The newest one, on the host; nothing where there is none."""
        found: State = {}
        for file in self.checkpoints.files():
            found.update(torch.load(file, map_location="cpu", weights_only=True))
        return found

    def restore(self, targets: State) -> None:
        """By way of the host."""
        copy_into(self.load(), targets)


class Dcp:
    """torch.distributed.checkpoint in a process alone, which the training waits for."""

    def __init__(self, folder: Path, *, pinned: bool = False) -> None:
        """`pinned`: copies for async_save are in pinned memory, which is kept."""
        self.checkpoints = Checkpoints(folder)
        self._writer = DcpWriter(self.checkpoints, pinned=pinned)

    def save(self, state: State) -> None:
        """The next tensors are copied from the device while some are written."""
        dcp.save(state, **self._to_next())

    def wait(self) -> None:
        """For nothing: it is durable already."""

    def restore(self, targets: State) -> None:
        """Tensor by tensor."""
        dcp.load(targets, checkpoint_id=self.checkpoints.newest(), no_dist=True)

    def _to_next(self) -> dict[str, Any]:
        partial = self.checkpoints.begin()
        return {"checkpoint_id": partial, "storage_writer": self._writer, "no_dist": True}


class DcpAsync(Dcp):
    """Its async_save: a copy in the host's memory, which a thread writes."""

    _writing: Future[Any] | None = None

    def save(self, state: State) -> None:
        """Waits for the save before, which needs the copies, and for the new copies."""
        self.wait()
        self._writing = dcp.async_save(state, **self._to_next())

    def wait(self) -> None:
        """Raises what the thread met."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


class DcpWriter(dcp.FileSystemWriter):  # type: ignore[misc]
    """Flushes its files, and hands what is whole to the checkpoints, on whatever thread."""

    def __init__(self, checkpoints: Checkpoints, *, pinned: bool) -> None:
        super().__init__(checkpoints.folder, sync_files=True, cache_staged_state_dict=pinned)
        self._checkpoints = checkpoints

    def finish(self, metadata: Any, results: Any) -> None:
        """The last that torch does of a save: of its metadata it flushes what Python has handed on
        by then, and the last of it Python hands on when the file is closed."""
        super().finish(metadata, results)
        with (Path(self.path) / METADATA).open("rb") as file:
            os.fsync(file.fileno())
        self._checkpoints.finish(Path(self.path))


def write_file(path: Path, state: Any) -> None:
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


@contextlib.contextmanager
def written_or_said() -> Iterator[None]:
    """Raises OSError in one line without a path, which goes into records, where the system refuses
    to write: torch raises errors of its own then."""
    try:
        yield
    except (OSError, RuntimeError, dcp.CheckpointException) as error:
        reason = system_said(error)
        if reason is None:
            raise
        raise OSError(f"the checkpoint cannot be written: {reason}") from error


def system_said(error: BaseException | None) -> str | None:
    """Why it refused, by the error or those that it was raised for."""
    if error is None:
        return None
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner = [one for one, _ in getattr(error, "failures", {}).values()]
    causes = [*inner, error.__cause__ or error.__context__]
    return next(filter(None, map(system_said, causes)), None)


def differing_bytes(state: State, found: State) -> int:
    """The bytes that are not the same; all of a tensor that only one of them has."""
    return sum(differing(state.get(name), found.get(name)) for name in state.keys() | found.keys())


def differing(one: torch.Tensor | None, other: torch.Tensor | None) -> int:
    """Bytes of two tensors that differ."""
    if one is None or other is None or one.shape != other.shape or one.dtype != other.dtype:
        return max(bytes_of({"": each}) for each in (one, other) if each is not None)
    bits, others = (each.to(one.device).flatten().view(torch.uint8) for each in (one, other))
    return int((bits != others).sum())
