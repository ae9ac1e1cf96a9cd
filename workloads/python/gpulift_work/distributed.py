"""Training on several ranks for Python arms: a group of processes, a replica of a model on each,
and what the exchange between them costs.

A link says what the ranks exchange through: `nvlink`, `host` (the GPUs exchange through the host's
memory), `gloo` (ranks on processors, over the loopback) or `any`, what NCCL finds best. Between
several nodes, on which a launcher started the ranks, it is that of `gloo` or `fabric`, what NCCL
finds best there.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, Protocol

import torch
import torch.distributed as dist
from gpulift_worker import TURN, Arm, Failed, Skip, cores, nothing
from torch.nn.parallel import DistributedDataParallel

from gpulift_work.llama import LLAMA_SIZES
from gpulift_work.losses import LossOfHidden
from gpulift_work.losses import compiled as compiled_loss
from gpulift_work.nccl import log_transport, transport_in
from gpulift_work.resting import Resting
from gpulift_work.training import (
    TEXT_SIZES,
    TWINS,
    Training,
    compile_body,
    device_of,
    distance,
    exact_model,
    free_memory,
    keep_the_compiler_quiet,
    make_batch,
    mark_on,
    memory_of_step,
    require_compiler,
    set_up,
)

MODELS = {
    "nvlink": "gpt2",
    "host": "gpt2",
    "fabric": "gpt2",
    "gloo": "resnet18",
}  # that a link is tried with
PAIR = 2  # ranks that every machine is asked for
CHECKED_ROWS = 2  # of each shard
CHECKED_LONG_ROWS = 1  # of 4096 tokens, whose FP32 activations take 20 GB
CHECKED_IMAGES = 8  # batch normalisation of fewer is badly conditioned
IMAGE_TOLERANCE = 1e-2  # of a deep network with batch normalisation: FP32 alone, by cuDNN's choice
# of algorithms, differs by 4e-4 to 1.7e-3; a rank whose gradients are missing by 0.7
BF16_TOLERANCE = 0.25  # 0.044 of llama_1b, 0.009 of gpt2, 0.12 of 32 images of resnet18
RENDEZVOUS_S = 60
LATE_S = 20  # of a rank in an exchange between nodes: the case ends within half a minute
LOOPBACK = "127.0.0.1"
TIMED_GROUPS = 5
STEPS_OF_GROUP = {"cpu": 2, "cuda": 4}
LONG_STEPS_OF_GROUP = 1  # of thousands of tokens a row
FABRIC = "fabric"
NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED of <cuda.h>
NO_SHARED_MEMORY = "creating shared memory segment"  # of what NCCL says


@dataclass(frozen=True)
class Group:
    """A rank's place in its group, which exchanges by torch.distributed."""

    rank: int
    ranks: int
    device: torch.device
    threads: int
    transport: str = ""  # between nodes, as NCCL calls it

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
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    link = link if link == "gloo" or nodes() == 1 else FABRIC
    if link == "gloo":
        if ranks_here > max(PAIR, cores()):
            raise Skip(
                f"its {ranks_here} ranks need a core each, and there are {cores()}",
                "use a machine with more cores",
            )
        device = torch.device("cpu")
    elif gpu is None:
        raise Skip("its ranks need a GPU each", "use a machine with several GPUs")
    else:
        device = device_of(gpu)
        os.environ["NCCL_P2P_DISABLE"] = "1" if link == "host" else "0"
    set_up(device)
    log = log_transport() if link == FABRIC else None
    torch.set_num_threads(max(1, (cores() - 1) // ranks_here) if device.type == "cuda" else 1)
    if ranks > 1:
        with naming_what_is_too_small():
            start_group(device, backend)
        if device.type == "cuda":
            require_equal_gpus(device)
        if link == "nvlink":
            require_nvlink(device)
    TURN.wait()
    transport = "" if log is None else transport_in(log)
    return Group(rank, ranks, device, torch.get_num_threads(), transport)


def nodes() -> int:
    """On how many hosts the ranks of this arm are."""
    return int(os.environ.get("GPULIFT_NODES", "1"))


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
        timeout=timedelta(seconds=RENDEZVOUS_S if nodes() == 1 else LATE_S),
        device_id=device if backend == "nccl" else None,
    )
    atexit.register(dist.destroy_process_group)
    dist.all_reduce(torch.zeros(1, device=device))


def meeting_store() -> dist.TCPStore:
    """Through which ranks find each other. It asks nobody who he is, and torch would have it, Gloo
    and NCCL listen on all addresses or on that of this machine's name: here where ranks meet, and
    between nodes on all, by which these may know this one."""
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
        master_listen_fd=listening(*address).detach() if serves else None,
    )


def listening(address: str, port: int) -> socket.socket:
    """At the address, and between nodes at all, of IPv4 and IPv6."""
    if nodes() == 1:
        return socket.create_server((address, port))
    has_both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_both else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=has_both)


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
        self.micro_batches = micro_batches
        self.is_compiled = False
        self.forward: Any = self.loss_of
        self.exchange: Callable[[], object] | None = None
        self.exchanges_each = True  # micro-batch; else after the last alone
        self.is_exchanging = True
        self.can_be_silent = True  # step without an exchange

    def rows_of_shard(self, shard: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """So many rows of a shard's data; others for another number."""
        torch.manual_seed(self.seed + 1 + shard)
        inputs, targets = make_batch(self.model_name, rows)
        return inputs.to(self.device), targets.to(self.device)

    def rows_of_own(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """So many of each shard that this rank has."""
        shards = [self.rows_of_shard(shard, rows) for shard in self.own_shards]
        inputs, targets = (torch.cat(parts) for parts in zip(*shards, strict=True))
        if TWINS[self.name].channels_last:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs, targets

    def compile(self) -> None:
        """By torch.compile, ahead of wrap(): of a language model the layers and the loss, of images
        the whole. What is compiled ends its backward pass all at once, so torch cuts it where
        buckets of DistributedDataParallel end; layers that are compiled by themselves need no cut.
        Throws Skip where there is no compiler."""
        require_compiler(self.device)
        keep_the_compiler_quiet()
        self.is_compiled = True
        if self.model_name in TEXT_SIZES:
            compile_body(self.model)
            self.loss_of = LossOfHidden(self.model, compiled_loss())
        else:
            self.loss_of.compile()
        torch._dynamo.config.optimize_ddp = self.model_name not in LLAMA_SIZES
        self.forward = self.loss_of

    def wrap(self, **options: Any) -> DistributedDataParallel:
        """Exchanges by torch's DistributedDataParallel from now on: gradients and no more, as other
        ways do. By itself it sends the means of batch norms, too."""
        if not self.group.is_alone:
            self.forward = DistributedDataParallel(self.loss_of, broadcast_buffers=False, **options)
        return self.forward

    def step(self) -> None:
        """As a training loop does, in as many micro-batches as were asked for."""
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(self.input, self.target, bf16=self.bf16)
        self.optimizer.step()

    def backward(self, inputs: torch.Tensor, targets: torch.Tensor, *, bf16: bool) -> None:
        """Leaves the gradients of the mean loss over all ranks' rows."""
        parts = list(
            zip(
                inputs.chunk(self.micro_batches),
                targets.chunk(self.micro_batches),
                strict=True,
            )
        )
        for index, (part, wanted) in enumerate(parts):
            is_last = index == len(parts) - 1
            with self._exchanging(is_last or self.exchanges_each):
                with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
                    loss = self.forward(part, wanted) / len(parts)
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
        return [each.grad for each in self.model.parameters() if each.grad is not None]

    def gradient_bytes(self) -> float:
        """That an exchange carries in FP32."""
        return float(4 * sum(parameter.numel() for parameter in self.model.parameters()))

    def state(self) -> list[torch.Tensor]:
        """Weights and moments."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*(parameter.detach() for parameter in self.model.parameters()), *moments]


class RestingReplica(Resting):
    """A replica that leaves a GPU's memory to the case's other arms while it rests. `exchanging`
    makes it exchange, by wrap() or otherwise, and does so anew when the weights are back."""

    training: Replica

    def __init__(self, replica: Replica, exchanging: Callable[[Replica], object]) -> None:
        super().__init__(replica.name, replica.device, replica.seed, replica)
        self.exchanging = exchanging
        exchanging(replica)

    def rest(self) -> None:
        self.training.forward = self.training.loss_of  # DistributedDataParallel holds its buckets
        gc.collect()  # and may hold itself
        super().rest()

    def begin(self) -> None:
        super().begin()
        self.exchanging(self.training)

    def wake(self) -> None:
        was_resting = self.resting
        super().wake()
        if was_resting:
            self.training.step()  # the second, for which DistributedDataParallel sorts its buckets


def gradient_error(replica: Replica) -> float:
    """Of an exchange, the gradients' distance from the exact ones of all ranks' rows, relative to
    their norm: in FP32, but of what is compiled on the rows and in the precision that it is
    compiled for. Throws Failed where ranks hold other bits."""
    rows = replica.rows if replica.is_compiled else checked_rows(replica)
    expected = exact_gradients(replica, rows)
    replica.optimizer.zero_grad(set_to_none=True)
    replica.backward(*replica.rows_of_own(rows), bf16=checked_in_bf16(replica))
    gradients = flat(replica.gradients())
    require_same_on_all_ranks(gradients, replica.group)
    return distance(gradients, expected)


def checked_rows(replica: Replica) -> int:
    """Of each shard, in a check."""
    rows = CHECKED_ROWS if replica.model_name in TEXT_SIZES else CHECKED_IMAGES
    rows = CHECKED_LONG_ROWS if replica.model_name in LLAMA_SIZES else rows
    return replica.micro_batches * rows


def checked_in_bf16(replica: Replica) -> bool:
    """Else in FP32."""
    return replica.bf16 and replica.is_compiled


def exact_gradients(replica: Replica, rows: int) -> torch.Tensor:
    """Of so many rows of each shard, which each rank computes alone: in FP64, but FP32 where that
    is exact beside BF16, and of a Llama, since attention over 4096 tokens that keeps its scores
    would not fit. Rows of tokens, of which none depends on another, one by one for the same
    reason."""
    in_single = checked_in_bf16(replica) or replica.model_name in LLAMA_SIZES
    kind = torch.float32 if in_single else torch.float64
    exact = exact_model(replica, kind)
    parts = rows if replica.model_name in TEXT_SIZES else replica.micro_batches
    for shard in range(replica.shards):
        inputs, targets = replica.rows_of_shard(shard, rows)
        for part, wanted in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            part = part.to(kind) if part.is_floating_point() else part
            (exact(part, wanted) / (replica.shards * parts)).backward()
    return flat([each.grad for each in exact.model.parameters() if each.grad is not None])


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    """All elements in one row."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def require_same_on_all_ranks(held: torch.Tensor, group: Group) -> None:
    """Throws Failed on each rank whose bits differ from rank 0's."""
    if group.is_alone:
        return
    first = held.clone()
    dist.broadcast(first, 0)
    if not torch.equal(first, held):
        raise Failed(f"rank {group.rank} does not hold what rank 0 holds after the exchange")


def arm_of(
    replica: Replica,
    *,
    exchanging: Callable[[Replica], object] | None = None,
    error: Callable[[], float] | None = None,
    tolerance: float | None = None,
) -> Arm:
    """The arm that trains a replica on each rank, with what the exchange cost. With `exchanging`,
    which makes it exchange, it rests between its windows, as must what does not fit the GPU beside
    the case's other arms."""
    group = replica.group
    items, item = len(replica.input) * group.ranks, "image"
    if replica.model_name in TEXT_SIZES:
        items, item = items * TEXT_SIZES[replica.model_name].tokens, "token"
    on_gpu = group.device.type == "cuda"
    # The replicas of all arms are alive: what one caches between its windows, others need.
    rest: Callable[[], object] = partial(free_memory, group.device)
    wake: Callable[[], object] = nothing
    if exchanging is not None:
        resting = RestingReplica(replica, exchanging)
        rest, wake = resting.rest, resting.wake

    def error_awake() -> float:
        wake()
        return (error or partial(gradient_error, replica))()

    def metrics_awake() -> dict[str, float]:
        wake()
        free_memory(group.device)  # of the check
        return {**memory_of_step(replica), **exchange_metrics(replica)}

    return Arm(
        step=replica.step,
        error=error_awake,
        tolerance=tolerance_of(replica) if tolerance is None else tolerance,
        synchronize=replica.synchronize,
        mark=replica.mark if on_gpu else None,
        rest=rest,
        wake=wake,
        notes={
            "model": f"{replica.name}, {replica.rows} rows a shard",
            "device": group.device.type,
            "torch_threads": str(group.threads),
            **({"nccl_transport": group.transport} if group.transport else {}),
        },
        versions=library_versions(on_gpu),
        metrics=metrics_awake,
        items=items,
        item=item,
    )


def tolerance_of(replica: Replica) -> float | None:
    """Of gradient_error(), where it is not the technique's."""
    if checked_in_bf16(replica):
        return BF16_TOLERANCE
    return IMAGE_TOLERANCE if replica.model_name == "resnet50" else None


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
    versions = {"torch": str(torch.__version__)}
    if on_gpu:
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions


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
    calls = LONG_STEPS_OF_GROUP if replica.model_name in LLAMA_SIZES else 0
    added_s, without_s = [], []
    for _ in range(TIMED_GROUPS):
        with_s = time_of_group(replica.step, replica, calls)
        replica.is_exchanging = False
        without_s.append(time_of_group(replica.step, replica, calls))
        replica.is_exchanging = True
        added_s.append(with_s - without_s[-1])
    for tensor in replica.state():
        dist.broadcast(tensor, 0)  # or ranks would train on from different weights
    return statistics.median(added_s), statistics.median(without_s)


class Timed(Protocol):
    """What works on a device."""

    device: torch.device

    def synchronize(self) -> None:
        """Waits for the device."""


def time_of(work: Callable[[], object], timed: Timed) -> float:
    """Of one call, in seconds: the median of several groups."""
    return statistics.median(time_of_group(work, timed) for _ in range(TIMED_GROUPS))


def time_of_group(work: Callable[[], object], timed: Timed, calls: int = 0) -> float:
    """Of one call of a group that all ranks begin together, in seconds: by marks in the GPU's queue
    where there is one. A call ahead of them fills the queue, as the steps of a window find it."""
    calls = calls or STEPS_OF_GROUP[timed.device.type]
    timed.synchronize()
    dist.barrier()
    work()
    time_s = measured_on(timed.device)
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
