"""state/format: the weights of a model in files of several formats, written and restored."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpulift_files import resident_share
from gpulift_work.checkpoint import State, bytes_of, differing_bytes, sync_folder
from gpulift_work.samples import COLD_SHARE, cold, folder_for, note_of_cold
from gpulift_work.training import GPT_SIZES, Gpt
from gpulift_worker import Arm, Precondition, Skip

TECHNIQUE = {
    "question": "In which format are a model's weights saved and restored the fastest?",
    "expectation": (
        "GPT-2's 148 tensors are 124 M x 4 bytes = 498 MB. To return, which is into the page "
        "cache: torch.save 2.5 GB/s, 0.20 s; without its checksum 3.2 GB/s, 1.3; safetensors "
        "1.05; DCP, which serialises tensor by tensor in Python, 0.3. Past the cache the write "
        "lasts as long as the disk, 0.29 s at 1.7 GB/s: 0.7. To be durable all wait for the disk, "
        "0.33 s and less by what they wait for the processor: 1.2, 1.05, 1.1, DCP 0.45. Restored "
        "into weights that are there, cold: torch.load reads in small pieces, 1.15 s; without "
        "checksum the same, 1.0; a map or safetensors read ahead, 2 to 2.8; past the cache 0.35 s, "
        "3. Warm: torch.load copies twice, 0.28 s, a map and safetensors once, 0.12 s: 2.3; past "
        "the cache the disk again: 0.8. 10,000 tensors of 4 KiB are 41 MB, and 15 us a tensor in "
        "torch.save, 0.15 s; safetensors 3 us, 4; direct 5 us, 2.5; DCP 150 us, 0.1; restored "
        "about so, 20 us a tensor in torch.load, cold and warm alike."
    ),
    "predict": [
        {
            "case": {"tensors": "gpt2", "operation": "save_to_return"},
            "step_time_s": {"torch_save": [0.18, 0.22]},
            "speedup": {
                "no_checksum": [1.17, 1.43],
                "safetensors": [0.945, 1.155],
                "direct": [0.63, 0.77],
                "dcp": [0.27, 0.33],
            },
        },
        {
            "case": {"tensors": "gpt2", "operation": "save_to_durable"},
            "speedup": {
                "no_checksum": [1.08, 1.32],
                "safetensors": [0.945, 1.155],
                "direct": [0.99, 1.21],
                "dcp": [0.405, 0.495],
            },
        },
        {
            "case": {"tensors": "gpt2", "operation": "restore_cold"},
            "step_time_s": {"torch_save": [1.035, 1.265]},
            "speedup": {
                "no_checksum": [0.9, 1.1],
                "mapped": [2, 2.8],
                "safetensors": [2, 2.8],
                "direct": [2.7, 3.3],
            },
        },
        {
            "case": {"tensors": "gpt2", "operation": "restore_warm"},
            "step_time_s": {"torch_save": [0.252, 0.308]},
            "speedup": {
                "mapped": [2.07, 2.53],
                "safetensors": [2.07, 2.53],
                "direct": [0.72, 0.88],
            },
        },
        {
            "case": {"tensors": "small", "operation": "save_to_return"},
            "step_time_s": {"torch_save": [0.135, 0.165]},
        },
        {
            "case": {"tensors": "small"},
            "speedup": {"safetensors": [3.6, 4.4], "direct": [2.25, 2.75], "dcp": [0.09, 0.11]},
        },
    ],
    "found": (
        "GPT-2, one launch: to return torch.save takes 0.40 s, and 0.19 without its checksum, "
        "which is dearer than estimated: so safetensors has 1.7 and DCP 0.5. Restored warm it "
        "takes 0.18 s, not 0.28, and past the cache the disk gives 0.5 to 1.7 GB/s from window to "
        "window; why is not known. The small tensors are in no record."
    ),
    "arms": ["torch_save", "no_checksum", "mapped", "safetensors", "direct", "dcp"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {
        "tensors": ["small", "gpt2"],
        "operation": ["save_to_return", "save_to_durable", "restore_warm", "restore_cold"],
    },
    "check": {"meaning": "bytes of the restored weights that differ", "tolerance": 0},
}
SMALL = (10_000, (32, 32))  # their number, and the shape of each
SPACE = 6.5  # all arms' files are there at once
FILE = "state"  # of what is one file
STAGED_BYTES = 16 << 20  # that go past the page cache at once
DIRECT_BYTES = 4096  # what they must be a multiple of


@dataclass(frozen=True)
class Format:
    """How a state gets into a folder, and from there into tensors that are there."""

    save: Callable[[State, Path], object]
    restore: Callable[[Path, State], object]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step saves the weights, or restores them."""
    operation = str(point["operation"])
    saves = operation.startswith("save")
    if saves and arm == "mapped":
        raise Skip("a map is a way to read files alone, those of torch.save")
    chosen = format_of(arm)
    state = seeded_state(str(point["tensors"]), seed)
    folder = folder_for(arm, SPACE * bytes_of(state))
    arm_of = saving if saves else restoring
    made: dict[str, Any] = arm_of(chosen, state, folder, operation)
    return Arm(
        metrics=lambda: {"file_bytes": float(sum(one.stat().st_size for one in files_in(folder)))},
        bytes=bytes_of(state),
        versions=versions_of(arm),
        **made,
    )


def saving(chosen: Format, state: State, folder: Path, operation: str) -> dict[str, Any]:
    """What is particular to an arm that saves."""
    durable = operation == "save_to_durable"

    def step() -> None:
        chosen.save(state, folder)
        if durable:
            sync(folder)

    def error() -> float:
        return restored_error(chosen, state, folder)

    def empty() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    return {
        "step": step,
        "error": error,
        "before": empty,
        "rest": lambda: sync(folder),  # or the disk would be busy in another arm's window
        "roof": "storage/write" if durable else "",
    }


def restoring(chosen: Format, state: State, folder: Path, operation: str) -> dict[str, Any]:
    """What is particular to an arm that restores."""
    chosen.save(state, folder)
    sync(folder)
    files = files_in(folder)
    targets = empty_like(state)
    is_cold = operation == "restore_cold"
    return {
        "step": lambda: chosen.restore(folder, targets),
        "error": lambda: float(differing_bytes(state, targets)),
        "roof": "storage/read" if is_cold else "",
        "notes": {"cold": note_of_cold(folder)} if is_cold else {},
        **(cold(files) if is_cold else warm(files)),
    }


def warm(files: list[Path]) -> dict[str, Any]:
    """What an arm says that reads these files, all of which are in memory when a window begins."""

    def read() -> None:
        for file in files:
            file.read_bytes()

    def absent_share() -> float | None:
        share = resident_share(files)
        return None if share is None else 1 - share

    remedy = "use Linux 6.5 or newer where cachestat is allowed, or files of your own"
    return {
        "before": read,
        "precondition": Precondition("absent_share", absent_share, COLD_SHARE, remedy),
    }


def seeded_state(tensors: str, seed: int) -> State:
    """Weights, each in memory of its own."""
    generator = np.random.default_rng(seed)
    return {
        name: torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
        for name, shape in shapes_of(tensors).items()
    }


def shapes_of(tensors: str) -> dict[str, tuple[int, ...]]:
    """By the tensors' names."""
    if tensors == "small":
        count, shape = SMALL
        return {f"part.{number:05}": shape for number in range(count)}
    with torch.device("meta"):
        model = Gpt(GPT_SIZES[tensors])
    return {name: tuple(one.shape) for name, one in model.state_dict().items()}


def empty_like(state: State) -> State:
    """The tensors that are restored into, whose pages are there."""
    return {name: torch.zeros_like(one) for name, one in state.items()}


def restored_error(chosen: Format, state: State, folder: Path) -> float:
    """Bytes that differ once what was saved is restored."""
    targets = empty_like(state)
    chosen.restore(folder, targets)
    return float(differing_bytes(state, targets))


def files_in(folder: Path) -> list[Path]:
    """All that the format wrote."""
    return sorted(one for one in folder.rglob("*") if one.is_file())


def sync(folder: Path) -> None:
    """Returns when files and names are on the disk."""
    for file in files_in(folder):
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)


def copy_into(found: State, targets: State) -> None:
    """As a module takes the state that it is given. Raises ValueError where the names differ."""
    if found.keys() != targets.keys():
        raise ValueError("the file holds other tensors")
    for name, target in targets.items():
        target.copy_(found[name])


def format_of(arm: str) -> Format:
    """The arm's own; imports what it needs."""
    if arm == "safetensors":
        return safetensors_format()
    if arm == "dcp":
        return dcp_format()
    if arm == "direct":
        return Format(save_direct, restore_direct)
    return torch_format(checksum=arm != "no_checksum", mapped=arm == "mapped")


def torch_format(*, checksum: bool, mapped: bool) -> Format:
    """torch's own: a ZIP archive, uncompressed."""

    def save(state: State, folder: Path) -> None:
        torch.serialization.set_crc32_options(checksum)
        torch.save(state, folder / FILE)

    def restore(folder: Path, targets: State) -> None:
        file = folder / FILE
        copy_into(torch.load(file, map_location="cpu", weights_only=True, mmap=mapped), targets)

    return Format(save, restore)


def safetensors_format() -> Format:
    """A header in JSON and bytes, read through a map."""
    from safetensors.torch import load_file, save_file

    return Format(
        lambda state, folder: save_file(state, folder / FILE),
        lambda folder, targets: copy_into(load_file(folder / FILE), targets),
    )


def dcp_format() -> Format:
    """torch.distributed.checkpoint, in a process alone."""
    from torch.distributed import checkpoint

    def save(state: State, folder: Path) -> None:
        writer = checkpoint.FileSystemWriter(folder, sync_files=False)  # as for all: sync() does
        checkpoint.save(state, storage_writer=writer, no_dist=True)

    def restore(folder: Path, targets: State) -> None:
        checkpoint.load(targets, storage_reader=checkpoint.FileSystemReader(folder), no_dist=True)

    warnings.filterwarnings("ignore", module="torch.distributed.checkpoint")
    return Format(save, restore)


def versions_of(arm: str) -> dict[str, str]:
    """Of what reads and writes the files."""
    found = {"torch": str(torch.__version__)}
    if arm == "safetensors":
        import safetensors

        found["safetensors"] = safetensors.__version__
    return found


# --- Past the page cache ---


def save_direct(state: State, folder: Path) -> None:
    """The tensors' bytes one after another, behind a header of their names and shapes."""
    with opened_direct(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        staged, filled, total = staging(), 0, 0
        for piece in [header_of(state), *map(bytes_in, state.values())]:
            total += len(piece)
            done = 0
            while done < len(piece):
                count = min(STAGED_BYTES - filled, len(piece) - done)
                staged[filled : filled + count] = piece[done : done + count]
                filled, done = filled + count, done + count
                if filled == STAGED_BYTES:
                    write_all(descriptor, staged)
                    filled = 0
        write_all(descriptor, staged[: -(-filled // DIRECT_BYTES) * DIRECT_BYTES])
        os.ftruncate(descriptor, total)


def restore_direct(folder: Path, targets: State) -> None:
    """Raises ValueError where the file holds other tensors, or ends too early."""
    header = header_of(targets)
    found_header = np.empty_like(header)
    with opened_direct(folder / FILE, os.O_RDONLY) as descriptor:
        staged, taken, there = staging(), 0, 0
        for piece in [found_header, *map(bytes_in, targets.values())]:
            done = 0
            while done < len(piece):
                if taken == there:
                    taken, there = 0, os.readv(descriptor, [staged])
                    if there == 0:
                        raise ValueError("the file ends too early")
                count = min(there - taken, len(piece) - done)
                piece[done : done + count] = staged[taken : taken + count]
                taken, done = taken + count, done + count
            if piece is found_header and not np.array_equal(found_header, header):
                raise ValueError("the file holds other tensors")


@contextlib.contextmanager
def opened_direct(file: Path, flags: int) -> Iterator[int]:
    """Its descriptor. Raises Skip where the file system has no O_DIRECT."""
    try:
        descriptor = os.open(file, flags | os.O_DIRECT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise Skip(
            f"the file system has no O_DIRECT: {error.strerror}",
            "name a folder on a local disk: --scratch DIR",
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def staging() -> Any:
    """Memory that begins with a page, as such reads and writes ask for."""
    return np.frombuffer(mmap.mmap(-1, STAGED_BYTES), np.uint8)


def header_of(state: State) -> Any:
    """Names and shapes, in the order of the bytes."""
    shapes = {name: list(one.shape) for name, one in state.items()}
    return np.frombuffer(json.dumps(shapes).encode(), np.uint8)


def bytes_in(tensor: torch.Tensor) -> Any:
    """Of a tensor, as an array that shares its memory."""
    return tensor.numpy().reshape(-1).view(np.uint8)


def write_all(descriptor: int, rows: Any) -> None:
    """Raises OSError where the disk takes less."""
    written_bytes = os.write(descriptor, rows) if len(rows) else 0
    if written_bytes != len(rows):
        raise OSError(f"{written_bytes} of {len(rows)} bytes written")
