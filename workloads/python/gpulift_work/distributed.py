"""Training on several ranks for Python arms: a group of processes, a replica of a model on each,
and what the exchange between them costs.

A link says what the ranks exchange through: `nvlink`, `host` (the GPUs exchange through the host's
memory), `gloo` (ranks on processors, over the loopback) or `any`, what NCCL finds best.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from gpulift_worker import TURN, Arm, Failed, Skip, cores
from torch.nn.parallel import DistributedDataParallel

from gpulift_work.llama import LLAMA_SIZES
from gpulift_work.training import (
    TEXT_SIZES,
    TWINS,
    Loss,
    Training,
    device_of,
    exact_model,
    free_memory,
    make_batch,
    mark_on,
    memory_of_step,
    set_up,
)

MODELS = {
    "nvlink": "gpt2",
    "host": "gpt2",
    "gloo": "resnet18",
}  # that a link is tried with
NETWORKS = {
    "nvlink": {"gpt": "gpt2", "resnet": "resnet50"},
    "host": {"gpt": "gpt2", "resnet": "resnet50"},
    "gloo": {"gpt": "gpt_baby", "resnet": "resnet18"},
}  # likewise, by kind
PAIR = 2  # ranks that every machine is asked for
CHECKED_ROWS = 2  # of each shard
CHECKED_LONG_ROWS = 1  # of 4096 tokens, whose FP32 activations take 20 GB
CHECKED_IMAGES = 8  # batch normalisation of fewer is badly conditioned
IMAGE_TOLERANCE = 2e-3  # of a deep network with batch normalisation: FP32 alone differs by 4e-4
RENDEZVOUS_S = 60
LOOPBACK = "127.0.0.1"
TIMED_GROUPS = 5
STEPS_OF_GROUP = {"cpu": 2, "cuda": 4}
NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED of <cuda.h>
NO_SHARED_MEMORY = "creating shared memory segment"  # of what NCCL says


@dataclass(frozen=True)
class Group:
    """A rank's place in its group, which exchanges by torch.distributed."""

    rank: int
    ranks: int
    device: torch.device
    threads: int

    @property
    def is_alone(self) -> bool:
        """Whether there is nobody to exchange with."""
        return self.ranks == 1


def join(link: str, gpu: int | None, backend: str = "") -> Group:
    """Waits until all ranks of the arm are there, and until it is the arm's turn. Throws Skip where
    they cannot exchange by this link. `backend` where it is not the device's usual one."""
    rank, ranks = (
        int(os.environ.get("RANK", "0")),
        int(os.environ.get("WORLD_SIZE", "1")),
    )
    if link == "gloo":
        if ranks > max(PAIR, cores()):
            raise Skip(
                f"its {ranks} ranks need a core each, and there are {cores()}",
                "use a machine with more cores",
            )
        device = torch.device("cpu")
    elif gpu is None:
        raise Skip("its ranks need a GPU each", "use a machine with several GPUs")
    else:
        device = device_of(gpu)
        os.environ["NCCL_P2P_DISABLE"] = "1" if link == "host" else "0"
    set_up(device)
    torch.set_num_threads(max(1, (cores() - 1) // ranks) if device.type == "cuda" else 1)
    if ranks > 1:
        with naming_what_is_too_small():
            start_group(device, backend)
        if device.type == "cuda":
            require_equal_gpus(device)
        if link == "nvlink":
            require_nvlink(device)
    TURN.wait()
    return Group(rank, ranks, device, torch.get_num_threads())


def start_group(device: torch.device, backend: str) -> None:
    """Joins, and exchanges once: what NCCL lacks it says at the first exchange."""
    backend = backend or ("gloo" if device.type == "cpu" else "nccl")
    # Nobody reads such dumps, and who asks the first rank for them when it has ended prints a page.
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    dist.init_process_group(
        backend,
        store=meeting_store(),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=RENDEZVOUS_S),
        device_id=device if backend == "nccl" else None,
    )
    atexit.register(dist.destroy_process_group)
    dist.all_reduce(torch.zeros(1, device=device))


def meeting_store() -> dist.TCPStore:
    """Through which ranks find each other. It asks nobody who he is, and torch would have it, Gloo
    and NCCL listen on all addresses or on that of this machine's name: here where ranks meet."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if address[0] == LOOPBACK:
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, "lo")
    serves = os.environ["RANK"] == "0"
    return dist.TCPStore(
        *address,
        world_size=int(os.environ["WORLD_SIZE"]),
        is_master=serves,
        timeout=timedelta(seconds=RENDEZVOUS_S),
        master_listen_fd=socket.create_server(address).detach() if serves else None,
    )


@contextlib.contextmanager
def naming_what_is_too_small() -> Iterator[None]:
    """Throws Skip with what to do in place of NCCL's error for a small /dev/shm, which is 64 MiB in
    a container that asks for no more."""
    try:
        yield
    except dist.DistBackendError as error:
        if NO_SHARED_MEMORY not in str(error):
            raise
        raise Skip(
            "/dev/shm is too small for NCCL",
            "give the container more: --shm-size 1g, or an emptyDir with medium Memory",
        ) from error


def require_equal_gpus(device: torch.device) -> None:
    """Throws Skip where ranks have GPUs of different models: all would wait for the slower, and the
    record names one."""
    models: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(models, model_of(device))
    if len(set(models)) > 1:
        raise Skip(f"the GPUs of its ranks differ: {', '.join(models)}", "name equal ones: --gpus")


def model_of(device: torch.device) -> str:
    """What its maker calls it."""
    return str(torch.cuda.get_device_name(device))


def require_nvlink(device: torch.device) -> None:
    """Of two GPUs only those with NVLink between them have atomics on each other's memory."""
    devices: list[int | None] = [None] * dist.get_world_size()
    dist.all_gather_object(devices, device.index)
    driver = ctypes.CDLL("libcuda.so.1")
    for other in devices:
        atomics = ctypes.c_int(0)
        if other != device.index:
            driver.cuDeviceGetP2PAttribute(
                ctypes.byref(atomics), NATIVE_ATOMICS, device.index, other
            )
            if atomics.value == 0:
                raise Skip(
                    "there is no NVLink between the GPUs, or they may not use it",
                    "name GPUs that have it: nvidia-smi topo -m shows NV between them",
                )


class Replica(Training):
    """A rank's copy of a model: the same weights on each, other data. How gradients are exchanged
    is up to who makes it: by `forward` in the backward pass, or by `exchange` after it."""

    def __init__(
        self,
        name: str,
        group: Group,
        seed: int,
        *,
        batch: int | None = None,
        micro_batches: int = 1,
        drives_all: bool = False,
    ) -> None:
        """`batch`: rows of a shard, where they are not the twin's. `drives_all`: the shards of all
        ranks are this one's, as if it were alone."""
        self.name, self.seed, self.shards = name, seed, group.ranks
        self.own_shards = tuple(range(group.ranks)) if drives_all else (group.rank,)
        self.group = replace(group, ranks=1) if drives_all else group
        with group.device:  # a GPU draws 124 M weights at once, one core of its host in seconds
            super().__init__(name, group.device, seed, batch=batch)
        self.rows = len(self.input)
        self.input, self.target = self.rows_of_own(self.rows)
        if TWINS[name].channels_last:
            self.input = self.input.contiguous(memory_format=torch.channels_last)
        self.micro_batches = micro_batches
        self.forward: Any = Loss(self.model)
        self.exchange: Callable[[], object] | None = None
        self.exchanges_each = True  # micro-batch; else after the last alone
        self.is_exchanging = True
        self.can_be_silent = True  # step without an exchange

    def rows_of_shard(self, shard: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """So many rows of a shard's data; others for another number."""
        torch.manual_seed(self.seed + 1 + shard)
        given, target = make_batch(TWINS[self.name].model or self.name, rows)
        return given.to(self.device), target.to(self.device)

    def rows_of_own(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """So many of each shard that this rank has."""
        shards = [self.rows_of_shard(shard, rows) for shard in self.own_shards]
        given, target = (torch.cat(parts) for parts in zip(*shards, strict=True))
        return given, target

    def wrap(self, **options: Any) -> DistributedDataParallel:
        """Exchanges by torch's DistributedDataParallel from now on: gradients and no more, as other
        ways do. By itself it sends the means of batch norms, too."""
        if not self.group.is_alone:
            self.forward = DistributedDataParallel(self.forward, broadcast_buffers=False, **options)
        return self.forward

    def step(self) -> None:
        """As a training loop does, in as many micro-batches as were asked for."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(self.input, self.target, bf16=self.bf16)
        self.optimizer.step()

    def backward(self, given: torch.Tensor, target: torch.Tensor, *, bf16: bool) -> None:
        """Leaves the gradients of the mean loss over all ranks' rows."""
        parts = list(
            zip(
                given.chunk(self.micro_batches),
                target.chunk(self.micro_batches),
                strict=True,
            )
        )
        for place, (rows, wanted) in enumerate(parts):
            is_last = place == len(parts) - 1
            with self._exchanging(is_last or self.exchanges_each):
                with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
                    loss = self.forward(rows, wanted) / len(parts)
                loss.backward()
        self.loss = loss.detach()
        if self.exchange is not None and self.is_exchanging:
            self.exchange()

    def _exchanging(self, now: bool) -> AbstractContextManager[None]:
        silent = not (now and self.is_exchanging)
        by_forward = isinstance(self.forward, DistributedDataParallel)
        context: AbstractContextManager[None] = (
            self.forward.no_sync() if silent and by_forward else nullcontext()
        )
        return context

    def gradients(self) -> list[torch.Tensor]:
        """Of the last backward pass, in the order of the parameters."""
        return [one.grad for one in self.model.parameters() if one.grad is not None]

    def gradient_bytes(self) -> float:
        """That an exchange carries in FP32."""
        return float(4 * sum(one.numel() for one in self.model.parameters()))

    def state(self) -> list[torch.Tensor]:
        """Weights and moments."""
        moments = [one for state in self.optimizer.state.values() for one in state.values()]
        return [*(one.detach() for one in self.model.parameters()), *moments]


def gradient_error(replica: Replica) -> float:
    """Of an exchange in FP32: the gradients' distance from the exact ones of all ranks' rows,
    relative to their norm. Throws Failed where ranks hold other bits."""
    rows = checked_rows(replica)
    expected = exact_gradients(replica, rows)
    replica.optimizer.zero_grad(set_to_none=True)
    replica.backward(*replica.rows_of_own(rows), bf16=False)
    found = flat(replica.gradients())
    require_same_on_all_ranks(found, replica.group)
    return float((found.double() - expected).norm() / expected.norm())


def checked_rows(replica: Replica) -> int:
    """Of each shard, in a check."""
    rows = CHECKED_ROWS if replica.model_name in TEXT_SIZES else CHECKED_IMAGES
    rows = CHECKED_LONG_ROWS if replica.model_name in LLAMA_SIZES else rows
    return replica.micro_batches * rows


def exact_gradients(replica: Replica, rows: int) -> torch.Tensor:
    """Of so many rows of each shard, which each rank computes alone: in FP64, but of a Llama in
    FP32, since attention over 4096 tokens that keeps its scores would not fit."""
    kind = torch.float32 if replica.model_name in LLAMA_SIZES else torch.float64
    exact = exact_model(replica, kind)
    for shard in range(replica.shards):
        given, target = replica.rows_of_shard(shard, rows)
        for part, wanted in zip(
            given.chunk(replica.micro_batches),
            target.chunk(replica.micro_batches),
            strict=True,
        ):
            part = part.to(kind) if part.is_floating_point() else part
            loss = exact(part, wanted) / (replica.shards * replica.micro_batches)
            loss.backward()
    return flat([one.grad for one in exact.model.parameters() if one.grad is not None])


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """All elements in one row."""
    return torch.cat([one.reshape(-1) for one in tensors])


def require_same_on_all_ranks(found: torch.Tensor, group: Group) -> None:
    """Throws Failed on each rank whose bits differ from rank 0's."""
    if group.is_alone:
        return
    first = found.clone()
    dist.broadcast(first, 0)
    if not torch.equal(first, found):
        raise Failed(f"rank {group.rank} does not hold what rank 0 holds after the exchange")


def arm_of(
    replica: Replica,
    *,
    error: Callable[[], float] | None = None,
    tolerance: float | None = None,
) -> Arm:
    """The arm that trains a replica on each rank, with what the exchange cost."""
    group = replica.group
    items, item = len(replica.input) * group.ranks, "image"
    if replica.model_name in TEXT_SIZES:
        items, item = items * TEXT_SIZES[replica.model_name].tokens, "token"
    on_gpu = group.device.type == "cuda"
    return Arm(
        step=replica.step,
        error=error or (lambda: gradient_error(replica)),
        tolerance=tolerance,
        synchronize=replica.synchronize,
        mark=replica.mark if on_gpu else None,
        # The replicas of all arms are alive: what one caches between its windows, others need.
        rest=lambda: free_memory(group.device),
        notes={
            "model": f"{replica.name}, {replica.rows} rows a shard",
            "device": group.device.type,
            "torch_threads": str(group.threads),
        },
        versions=library_versions(on_gpu),
        metrics=lambda: {**memory_of_step(replica), **exchange_metrics(replica)},
        items=items,
        item=item,
    )


def tolerance_of(name: str) -> float | None:
    """Of a model's gradients, where it is not the technique's."""
    return IMAGE_TOLERANCE if (TWINS[name].model or name) == "resnet50" else None


def idle_arm(group: Group) -> Arm:
    """That of a rank whose GPU another one drives."""
    return Arm(
        step=lambda: None,
        error=lambda: 0.0,
        synchronize=lambda: torch.cuda.synchronize(group.device),
        mark=lambda: mark_on(group.device),
    )


def library_versions(on_gpu: bool) -> dict[str, str]:
    """Of what exchanges."""
    found = {"torch": str(torch.__version__)}
    if on_gpu:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def exchange_metrics(replica: Replica) -> dict[str, float]:
    """What of the exchange training does not hide: the step less the same step without it, below 0
    where noise has more than that; and the gradients in one all-reduce with nothing beside it, in
    bytes over the link as nccl-tests counts them."""
    group = replica.group
    if group.is_alone or not replica.can_be_silent:
        return {}
    exposed_s, without_s = times_with_and_without(replica)
    buffer = torch.zeros(int(replica.gradient_bytes() / 4), device=group.device)
    alone_s = time_of(lambda: dist.all_reduce(buffer), replica)
    bus_bytes = replica.gradient_bytes() * 2 * (group.ranks - 1) / group.ranks
    return {
        "exposed_communication_s": exposed_s,
        "step_without_exchange_s": without_s,
        "gradient_bytes": replica.gradient_bytes(),
        "all_reduce_s": alone_s,
        "all_reduce_bus_bytes_per_s": bus_bytes / alone_s,
    }


def times_with_and_without(replica: Replica) -> tuple[float, float]:
    """What the exchange adds to a step, and the step without it. Groups of both take turns, so that
    clocks that drift move both: the difference is a few per cent of either."""
    added_s, without_s = [], []
    for _ in range(TIMED_GROUPS):
        with_s = time_of_group(replica.step, replica)
        replica.is_exchanging = False
        without_s.append(time_of_group(replica.step, replica))
        replica.is_exchanging = True
        added_s.append(with_s - without_s[-1])
    for tensor in replica.state():
        dist.broadcast(tensor, 0)  # or ranks would train on from different weights
    return statistics.median(added_s), statistics.median(without_s)


def time_of(work: Callable[[], object], replica: Replica) -> float:
    """Of one call, in seconds: the median of several groups."""
    return statistics.median(time_of_group(work, replica) for _ in range(TIMED_GROUPS))


def time_of_group(work: Callable[[], object], replica: Replica) -> float:
    """Of one call of a group that all ranks begin together, in seconds: by marks in the GPU's queue
    where there is one. A call ahead of them fills the queue, as the steps of a window find it."""
    calls = STEPS_OF_GROUP[replica.device.type]
    replica.synchronize()
    dist.barrier()
    work()
    time_s = measured_on(replica.device)
    for _ in range(calls):
        work()
    return time_s() / calls


def measured_on(device: torch.device) -> Callable[[], float]:
    """What has passed when the call's result is called, and all before it is done, in seconds."""
    if device.type == "cpu":
        start_s = monotonic()
        return lambda: monotonic() - start_s
    start = mark_on(device)

    def seconds() -> float:
        end = mark_on(device)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3  # milliseconds

    return seconds
