"""state/format: the weights of a model in files of several formats, written from a device and
loaded to one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpulift_work.checkpoint import State, bytes_of, copy_into, differing_bytes, sync_folder
from gpulift_work.llama import LLAMA_SIZES, Llama
from gpulift_work.samples import cold, folder_for, note_of_cold, warm
from gpulift_work.training import GPT_SIZES, Gpt, device_of, free_memory
from gpulift_worker import Arm, Skip
from torch.distributed import checkpoint as dcp

TECHNIQUE = {
    "question": "In which format do a model's weights get to the disk, and back to the GPU, the "
    "fastest?",
    "expectation": """
        GPT-2's 148 tensors are 124 M x 4 bytes = 498 MB, the Llama's 146 are 4.94 GB. save is from
        the device until files and names are flushed: 0.08 s from the GPU to pageable memory, 0.4 s
        into the page cache, half of it a checksum, and the disk, 0.7 s at 0.7 GB/s, of which a
        third goes on behind that: 0.95 s; without the checksum, and safetensors, which has none,
        0.8 s: 1.1 to 1.25; dcp pickles tensor by tensor: 0.85 to 1.05. load is until the weights of
        a model that is there on the device have their values. Warm: torch.load copies to the heap,
        0.12 s, and from there to the GPU at 8 GB/s, 0.06 s: 0.18 s. A map and safetensors copy to
        the GPU from the page cache, with page faults at 5 GB/s, 0.1 s: 1.5 to 2. dcp copies twice
        on the host: 0.6 to 0.9. Cold the disk is read at 1.5 GB/s, 0.33 s: read ahead of a map or
        by safetensors with the copies in between, 0.4 s; torch.load asks in small pieces, 0.6 to
        0.9 s: 1.4 to 2.2; dcp as slow as that: 0.7 to 1.1. The Llama takes ten times as long at the
        same ratios. 10,000 tensors of 4 KiB are 41 MB: 15 us a tensor in torch.save, 0.15 s, and
        0.06 s of the disk; loaded 20 us and a copy of 10 us, 0.3 s, where safetensors takes 3 and
        10: 1.8 to 2.6; dcp 150 us: 0.1 to 0.25. Without a GPU warm loads are copies in memory: a
        map and safetensors 1.5 to 2.3.
    """,
    "predict": [
        "tensors:gpt2/operation:save: no_checksum 1.1-1.25, safetensors 1.1-1.25, dcp 0.85-1.05",
        "tensors:llama_1b/operation:save: no_checksum 1.1-1.25, safetensors 1.1-1.25,"
        " dcp 0.85-1.05",
        "operation:load_warm/tensors:gpt2: mapped 1.5-2.3, safetensors 1.5-2.3, dcp 0.6-0.9",
        "operation:load_warm/tensors:llama_1b: mapped 1.5-2.0, safetensors 1.5-2.0, dcp 0.6-0.9",
        "operation:load_cold/tensors:gpt2: mapped 1.4-2.2, safetensors 1.4-2.2, dcp 0.7-1.1",
        "operation:load_cold/tensors:llama_1b: mapped 1.4-2.2, safetensors 1.4-2.2, dcp 0.7-1.1",
        "operation:load_warm/tensors:small: safetensors 1.8-2.6, dcp 0.1-0.25",
    ],
    "arms": ["torch_save", "no_checksum", "mapped", "safetensors", "dcp"],
    "l2": "by_size",
    "page_cache": "by_case",
    "sweep": {
        "tensors": ["small", "gpt2", "llama_1b"],
        "operation": ["save", "load_warm", "load_cold"],
    },
    "check": {"meaning": "bytes of the loaded weights that differ", "tolerance": 0},
}
SMALL = (10_000, (32, 32))  # their number, and the shape of each
SPACE = 4.5  # all arms' files are there at once
FILE = "state"  # of what is one file
# torch.save's files differ in how they are written in the one, in how they are read in the other.
OF_SAVE_ALONE, OF_LOAD_ALONE = "no_checksum", "mapped"


@dataclass(frozen=True)
class Format:
    """How a state gets into a folder, and from there into tensors that are on a device."""

    save: Callable[[State, Path], object]
    load: Callable[[Path, State], object]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step saves the weights, or loads them."""
    tensors, operation = str(point["tensors"]), str(point["operation"])
    if arm == (OF_LOAD_ALONE if operation == "save" else OF_SAVE_ALONE):
        raise Skip(f"torch_save does the same: {operation} is not where they differ")
    if tensors in LLAMA_SIZES and gpu is None:
        raise Skip("what 5 GB take is asked of a GPU's memory", "take gpt2, or a GPU")
    device = device_of(gpu)
    chosen = format_of(arm, device)
    state = seeded_state(tensors, seed, device)
    size = bytes_of(state)
    folder = folder_for(arm, SPACE * size)
    made: dict[str, Any]
    if operation == "save":
        made = saving(chosen, state, folder)
    else:
        chosen.save(state, folder)
        sync(folder)
        del state  # the arms of a case hold their weights at once
        made = loading(chosen, tensors, seed, device, folder)
        made.update(cold_of(folder) if operation == "load_cold" else warm(files_in(folder)))
    return Arm(
        metrics=lambda: {"file_bytes": float(sum(one.stat().st_size for one in files_in(folder)))},
        synchronize=lambda: synchronize(device),
        bytes=size,
        versions=versions_of(arm),
        **made,
    )


def saving(chosen: Format, state: State, folder: Path) -> dict[str, Any]:
    """What is particular to an arm that saves."""

    def step() -> None:
        chosen.save(state, folder)
        sync(folder)

    def error() -> float:
        targets = empty_like(state)
        chosen.load(folder, targets)
        return float(differing_bytes(state, targets))

    def empty() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    return {"step": step, "error": error, "before": empty, "roof": "storage/write"}


def loading(
    chosen: Format, tensors: str, seed: int, device: torch.device, folder: Path
) -> dict[str, Any]:
    """What is particular to an arm that loads."""
    targets = empty_like(seeded_state(tensors, seed, device))

    def error() -> float:
        wrong_bytes = differing_bytes(seeded_state(tensors, seed, device), targets)
        free_memory(device)  # which the other arms need
        return float(wrong_bytes)

    return {"step": lambda: chosen.load(folder, targets), "error": error}


def cold_of(folder: Path) -> dict[str, Any]:
    """What an arm says of whose files none is in memory when a window begins."""
    return {
        "roof": "storage/read",
        "notes": {"cold": note_of_cold(folder)},
        **cold(files_in(folder)),
    }


def seeded_state(tensors: str, seed: int, device: torch.device) -> State:
    """Weights, each in memory of its own."""
    generator = torch.Generator(device).manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator, device=device)
        for name, shape in shapes_of(tensors).items()
    }


def shapes_of(tensors: str) -> dict[str, tuple[int, ...]]:
    """By the tensors' names."""
    if tensors == "small":
        count, shape = SMALL
        return {f"part.{number:05}": shape for number in range(count)}
    with torch.device("meta"):
        llama = tensors in LLAMA_SIZES
        model = Llama(LLAMA_SIZES[tensors]) if llama else Gpt(GPT_SIZES[tensors])
    return {name: tuple(one.shape) for name, one in model.state_dict().items()}


def empty_like(state: State) -> State:
    """The weights that are loaded into, whose pages are there."""
    return {name: torch.zeros_like(one) for name, one in state.items()}


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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


def format_of(arm: str, device: torch.device) -> Format:
    """The arm's own; imports what it needs."""
    if arm == "safetensors":
        return safetensors_format(device)
    if arm == "dcp":
        return Format(save_dcp, load_dcp)
    return torch_format(device, checksum=arm != "no_checksum", mapped=arm == "mapped")


def torch_format(device: torch.device, *, checksum: bool, mapped: bool) -> Format:
    """torch's own: a ZIP archive, uncompressed."""

    def save(state: State, folder: Path) -> None:
        torch.serialization.set_crc32_options(checksum)
        torch.save(state, folder / FILE)

    def load(folder: Path, targets: State) -> None:
        file = folder / FILE
        copy_into(torch.load(file, map_location=device, weights_only=True, mmap=mapped), targets)

    return Format(save, load)


def safetensors_format(device: torch.device) -> Format:
    """A header in JSON and bytes, read through a map."""
    from safetensors.torch import load_file, save_file

    return Format(
        lambda state, folder: save_file(state, folder / FILE),
        lambda folder, targets: copy_into(load_file(folder / FILE, device=str(device)), targets),
    )


def save_dcp(state: State, folder: Path) -> None:
    """torch.distributed.checkpoint, in a process alone."""
    writer = dcp.FileSystemWriter(folder, sync_files=False)  # as for all: sync() does
    dcp.save(state, storage_writer=writer, no_dist=True)


def load_dcp(folder: Path, targets: State) -> None:
    """Tensor by tensor, where they are."""
    dcp.load(targets, storage_reader=dcp.FileSystemReader(folder), no_dist=True)


def versions_of(arm: str) -> dict[str, str]:
    """Of what reads and writes the files."""
    found = {"torch": str(torch.__version__)}
    if arm == "safetensors":
        import safetensors

        found["safetensors"] = safetensors.__version__
    return found
