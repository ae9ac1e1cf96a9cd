"""distributed/checkpoint_sharded: a sharded training's checkpoint by one rank, or by all."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gpulift_files import disk_facts
from gpulift_work.checkpoint import (
    State,
    TorchSave,
    bytes_of,
    differing_bytes,
    state_of,
    sync_folder,
)
from gpulift_work.distributed import Group, join, library_versions
from gpulift_work.training import (
    GPT_SIZES,
    TWINS,
    Training,
    free_memory,
    make_batch,
    make_optimizer,
    memory_of_step,
)
from gpulift_worker import Arm, Skip, scratch
from torch.distributed.checkpoint.staging import AsyncStager, BlockingAsyncStager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

TECHNIQUE = {
    "question": "How long does a durable checkpoint hold up a training whose state is in shards: "
    "gathered and written by one rank, written by all, or written behind the training?",
    "expectation": "A step is one save, the training steps until the next, and the wait until it "
    "is durable, which the next save begins with. GPT-2 by FSDP2: "
    "124 M x (4 + 4 + 4) bytes = 1.49 GB, half on each of two GPUs. rank0_gathers: 0.75 GB over "
    "NVLink 3 ms, through the host 29 ms; to pageable memory at 6 GB/s 0.25 s; to the disk at "
    "1.1 GB/s 1.35 s: 1.6 s. dcp_sharded: each rank copies and writes 0.75 GB, to the same disk: "
    "1.35 to 1.5 s: blocked 1.0 to 1.3 times shorter. dcp_async: 0.75 GB into pinned memory that "
    "is kept, 15 ms, and 40 ms for plans of 450 tensors: blocked 10 to 30 times shorter. With 20 "
    "steps of some 50 ms: 2.6 s, 2.4 to 2.5 s, and 1.45 to 1.6 s, since the disk needs longer than "
    "they take, and plans are made in Python: 1.05 and 1.6 to 1.8. "
    "The toy on processors: 1.3 MB; plans of 85 tensors, 20 to 40 ms, cost more than the disk: "
    "gathering is as fast or faster.",
    "predict": [
        "link:nvlink @h200: rank0_gathers 3.2-4.4 s, dcp_sharded 1.05-1.3, dcp_async 1.4-1.75",
        "link:nvlink: rank0_gathers 2.34-2.86 s, dcp_sharded 0.945-1.155, dcp_async 1.55-1.85",
        "link:host: dcp_sharded 0.945-1.155, dcp_async 1.55-1.85",
    ],
    "found": "In three launches on two H200s: rank0_gathers 3.0 to 3.8 s, where 2.86 was "
    "predicted at most. In the first the disk took 0.61 GB/s of one process and 1.03 of two, not "
    "1.1, and 20 steps 1.4 s, not 1.0: their host has 1,000 launches a step to issue. Written by "
    "all 1.08 to 1.21, behind the training 1.5 to 1.8; blocked 1.7 and 22 times shorter.",
    "whole_steps": True,
    "spans_hosts": True,
    "arms": ["rank0_gathers", "dcp_sharded", "dcp_async"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"link": ["nvlink", "host", "gloo"]},
    "check": {
        "meaning": "bytes of the state at the call that differ once it is restored, on as many "
        "ranks and on one",
        "tolerance": 0,
    },
}
MODEL_OF = {"nvlink": "gpt2", "host": "gpt2", "fabric": "gpt2", "gloo": "gpt_toy"}
STEPS = {"gpt2": 20, "gpt_toy": 5}  # of training between two saves
SAVES = 3  # of which the metrics are the median


class Sharded(Training):
    """A replica whose weights, gradients and moments are in shards, one on each rank."""

    def __init__(self, name: str, group: Group, seed: int) -> None:
        with group.device:  # which draws the weights sooner than one core of its host
            super().__init__(name, group.device, seed)
        torch.manual_seed(seed + 1 + group.rank)
        self.input, self.target = (
            one.to(group.device) for one in make_batch(name, TWINS[name].batch)
        )
        mesh = init_device_mesh(group.device.type, (group.ranks,))
        for block in self.model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = make_optimizer(name, list(self.model.parameters()))
        self.group = group


class Manner(Protocol):
    """A manner of saving on all ranks."""

    def save(self, state: State) -> None:
        """Returns when the training may change the state."""

    def wait(self) -> None:
        """Returns when what was saved is durable."""

    def load_shards(self, like: State) -> State:
        """What was saved, in shards like these."""

    def load_whole(self, like: State) -> State:
        """What was saved, on one rank, which has whole tensors like these."""


class RankZeroGathers:
    """One rank has room for all, and writes it."""

    def __init__(self, folder: Path, group: Group) -> None:
        self._group = group
        self._saved = TorchSave(folder)

    def save(self, state: State) -> None:
        """Tensor by tensor, which the other ranks take part in; then they wait."""
        gathered: State = {}
        for name, one in state.items():
            tensor = whole(one)
            if self._group.rank == 0:
                gathered[name] = tensor.cpu()
        if self._group.rank == 0:
            self._saved.save(gathered)
        dist.barrier()

    def wait(self) -> None:
        """For nothing: it is durable already."""

    def load_shards(self, like: State) -> State:
        """Each rank reads all, and takes its part."""
        found = self._saved.load()
        return {name: part_of(found[name], one) for name, one in like.items() if name in found}

    def load_whole(self, like: State) -> State:
        """As it is."""
        return self._saved.load()


class DcpSharded:
    """Each rank writes its shards."""

    def __init__(self, folder: Path, group: Group) -> None:
        self._folder = folder / "checkpoint-1"
        self._parent = folder

    def save(self, state: State) -> None:
        """Into files that torch flushes, in a folder that it makes."""
        dcp.save(state, checkpoint_id=self._folder)
        self._sync_names()

    def _sync_names(self) -> None:
        sync_folder(self._folder)
        sync_folder(self._parent)

    def wait(self) -> None:
        """For nothing: it is durable already."""

    def load_shards(self, like: State) -> State:
        """Of the files each rank reads what it needs."""
        found = {name: torch.zeros_like(one) for name, one in like.items()}
        dcp.load(found, checkpoint_id=self._folder)
        return found

    def load_whole(self, like: State) -> State:
        """The shards of all ranks in whole tensors, with no other rank."""
        found = {name: torch.zeros_like(one) for name, one in like.items()}
        dcp.load(found, checkpoint_id=self._folder, no_dist=True)
        return found


class DcpAsync(DcpSharded):
    """Copies the shards to the host's memory, and a thread of each rank writes them."""

    def __init__(self, folder: Path, group: Group) -> None:
        super().__init__(folder, group)
        # Of its own: the thread's messages must not mix with the training's, and need processors.
        self._group = dist.new_group(backend="gloo")
        on_gpu = group.device.type == "cuda"
        # Pinned, which only CUDA can, and kept for the next save.
        self._stager: AsyncStager | None = (
            BlockingAsyncStager(cache_staged_state_dict=True) if on_gpu else None
        )
        self._writing: Future[Any] | None = None

    def save(self, state: State) -> None:
        """Waits for the save before, which still needs the copies."""
        self.wait()
        self._writing = dcp.async_save(
            state,
            checkpoint_id=self._folder,
            process_group=self._group,
            async_stager=self._stager,
        )

    def wait(self) -> None:
        """Raises what the thread met."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
            self._sync_names()


MANNERS: Mapping[str, Callable[[Path, Group], Manner]] = {
    "rank0_gathers": RankZeroGathers,
    "dcp_sharded": DcpSharded,
    "dcp_async": DcpAsync,
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A save, the training steps after it, which change what is being saved, and the wait."""
    link = str(point["link"])
    group = join(link, gpu)
    name = MODEL_OF[link]
    training = Sharded(name, group, seed)
    training.step()  # an optimizer has no moments before its first step
    state = state_of(training)
    folder = folder_for(arm, sum(one.numel() * one.element_size() for one in state.values()), group)
    manner = MANNERS[arm](folder, group)
    expected = {key: one.clone() for key, one in state.items()}

    def step() -> None:
        manner.save(state_of(training))
        for _ in range(STEPS[name]):
            training.step()
        training.synchronize()
        manner.wait()

    def error() -> float:
        wrong_bytes = wrongly_restored(manner, expected, group)
        expected.clear()
        free_memory(group.device)
        return float(wrong_bytes)

    def metrics() -> dict[str, float]:
        return {**memory_of_step(training), **cost_of_save(training, manner, folder)}

    on_gpu = group.device.type == "cuda"
    return Arm(
        step=step,
        error=error,
        synchronize=training.synchronize,
        before=lambda: remove(folder, group),  # or it would be removed within the window
        versions=library_versions(on_gpu),
        notes={
            "model": f"{name}, {len(training.input)} rows a rank",
            "device": group.device.type,
            "torch_threads": str(group.threads),
        },
        metrics=metrics,
        items=STEPS[name] * TWINS[name].batch * GPT_SIZES[name].tokens * group.ranks,
        item="token",
    )


def folder_for(arm: str, state_bytes: int, group: Group) -> Path:
    """An empty folder of this arm, for all ranks, on a disk that holds one checkpoint of each of
    the three arms and one more."""
    folder = scratch()
    if disk_facts(folder)["in_memory"]:
        raise Skip("the scratch folder is in memory", "name one on a disk: --scratch DIR")
    needed_bytes = 4 * state_bytes
    if shutil.disk_usage(folder).free < needed_bytes:
        raise Skip(
            f"the disk of the scratch folder has less than {needed_bytes / 1e6:.0f} MB free",
            "free some space, or name another disk: --scratch DIR",
        )
    own = folder / arm
    if group.rank == 0:
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
    dist.barrier()
    return own


def remove(folder: Path, group: Group) -> None:
    """All that is in the folder, once each rank has written, ahead of the first that does again."""
    dist.barrier()
    if group.rank == 0:
        for one in folder.iterdir():
            shutil.rmtree(one)
    dist.barrier()


def wrongly_restored(manner: Manner, expected: State, group: Group) -> int:
    """Bytes of this rank's shards, and on rank 0 also of whole tensors read by it alone."""
    shards = {name: own_part(one) for name, one in manner.load_shards(expected).items()}
    wrong_bytes = differing_bytes({name: own_part(one) for name, one in expected.items()}, shards)
    wholes = {name: whole(one).cpu() for name, one in expected.items()}
    if group.rank == 0:
        wrong_bytes += differing_bytes(wholes, manner.load_whole(wholes))
    dist.barrier()
    return wrong_bytes


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor, of which each rank may have a part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def part_of(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A whole tensor in shards like those of another."""
    if not isinstance(like, DTensor):
        return tensor.to(like.device)
    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def cost_of_save(training: Sharded, manner: Manner, folder: Path) -> dict[str, float]:
    """How long the call blocks, how long until the state is durable, and how much that is; with no
    training beside it."""
    blocked_s, durable_s = [], []
    for _ in range(SAVES):
        remove(folder, training.group)
        training.synchronize()
        start_s = monotonic()
        manner.save(state_of(training))
        training.synchronize()
        blocked_s.append(monotonic() - start_s)
        manner.wait()
        durable_s.append(monotonic() - start_s)
    dist.barrier()  # each rank's files are there
    written_bytes = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    shard_bytes = bytes_of({name: own_part(one) for name, one in state_of(training).items()})
    return {
        "blocked_s": statistics.median(blocked_s),
        "durable_s": statistics.median(durable_s),
        "checkpoint_bytes": float(written_bytes),
        "shard_bytes": float(shard_bytes),
        "write_bytes_per_s": written_bytes / statistics.median(durable_s),
    }
