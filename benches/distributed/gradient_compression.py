"""distributed/gradient_compression: gradients in fewer bits or numbers, or weights less often."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as nnf
from gpulift_work.distributed import (
    Group,
    Replica,
    arm_of,
    exact_gradients,
    flat,
    join,
    require_same_on_all_ranks,
    time_of,
)
from gpulift_work.llama import LLAMA_SIZES
from gpulift_work.training import Loss, distance, require_gpu_for
from gpulift_worker import Arm, Skip
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.utils import (
    average_parameters_or_parameter_groups,
)

TECHNIQUE = {
    "question": "What is it worth to exchange gradients in fewer bits or numbers, or weights less "
    "often, and what does it cost in exactness?",
    "expectation": """
        A step is 4 updates of a replica on each of two GPUs. GPT-2, 27 ms an update on an H100,
        exchanges 498 MB in FP32 through torch's DistributedDataParallel. Through the host, 26 GB/s,
        19 ms, of which the backward pass hides 12: 34 ms. BF16: 9.6 ms, hidden but for the last
        bucket, and two casts of 498 MB: 29 ms, 1.17. INT8 by blocks of 256 with a scale each, all
        gathered: 127 MB received, 5 ms; some 40 bytes of passes a gradient, 5 GB, 2 ms beside the
        backward pass: 1.15. PowerSGD of rank 4 sends 1 %, but multiplies and orthogonalises 50
        matrices in small kernels, 2,500 launches more: the host needs 60 ms: 0.4 to 0.6. Weights
        averaged after every fourth update: 19 ms and four passes over 498 MB, with nothing beside
        them, so 5.5 an update: 32 ms, 1.06; after every 100th it would be 1.25. Over NVLink, 1.5
        ms, there is nothing to save: BF16 0.98, INT8 0.93, PowerSGD 0.4, averages 1.0. Over TCP on
        the loopback at 2 GB/s, as 25 Gbit/s Ethernet has (all_reduce_bus_bytes_per_s says it): 250
        ms, 260 an update; BF16 1.9, INT8 3, averages 2.9, PowerSGD 3.5, as of a link so slow even
        its launches are little. llama_1b, 180 ms and 4.9 GB: host 190 ms, of which 100 are hidden,
        270: BF16 1.35, INT8 1.35, averages 1.15, PowerSGD 1.2. Exactness: BF16 is half a unit of 8
        bits off, 0.2 %; INT8 half a unit of 127 of each block's largest, 0.7 %; PowerSGD sends
        later what it leaves out; averages are of weights that went apart for 4 updates. In 200
        updates of a small GPT none loses more than 2 % of how far the loss falls.
    """,
    "predict": [
        "model:gpt2/link:host @h200: fp32 34-42 ms, bf16_hook 1.02-1.12, int8 0.89-1.0,"
        " powersgd_4 0.42-0.55, local_steps 1.1-1.3",
        "model:gpt2/link:host @h100: fp32 115-155 ms, bf16_hook 1.08-1.27, int8 1.05-1.27,"
        " powersgd_4 0.35-0.7, local_steps 1.0-1.15",
        "model:gpt2/link:nvlink @h100: fp32 104-124 ms, bf16_hook 0.94-1.01, int8 0.85-0.98,"
        " powersgd_4 0.3-0.55, local_steps 0.97-1.06",
        "model:gpt2/link:tcp @h100: bf16_hook 1.6-2.0, int8 2.3-3.7, powersgd_4 2.0-5.0,"
        " local_steps 2.3-3.3",
        "model:llama_1b/link:host @h100: fp32 900-1250 ms, bf16_hook 1.15-1.5, int8 1.1-1.5,"
        " powersgd_4 0.9-1.45, local_steps 1.0-1.3",
    ],
    "found": """
        Two H200s, GPT-2, on a host that needs 29 ms to issue an update of 27, so that what a hook
        launches shows in whole. Through the host, three launches, 36 ms an update, four of which
        are a step (the range of 34 to 42 ms was said of an update): BF16 1.07, INT8 0.99, averages
        1.19, PowerSGD 0.45 to 0.63, as fast as the host is. Averaged updates have no hook. Over
        NVLink, one launch, an update takes 29 ms: 0.92, 0.84, 1.08 and 0.38. PowerSGD launches
        13,910 kernels a step in place of 3,988.
    """,
    "claims": [
        "gradient-compression-faster",
        "int8-gradients-faster",
        "low-rank-gradients-faster",
    ],
    "whole_steps": True,
    "spans_hosts": True,
    "arms": ["fp32", "bf16_hook", "int8", "powersgd_4", "local_steps"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {
        "model": ["gpt2", "llama_1b", "gpt_toy"],
        "link": ["host", "nvlink", "tcp", "gloo"],
    },
    "check": {
        "meaning": "gradients against those of all ranks' rows in FP64 (llama_1b: FP32), relative; "
        "of PowerSGD, which sends later what an exchange leaves out, the mean of 128 of a small "
        "GPT; of local steps the averaged weights' distance from the mean of all ranks', relative "
        "to how far this rank's were from it",
        "tolerance": 1e-5,
    },
}
TOLERANCES = {
    "bf16_hook": 5e-3,  # half a unit of 8 bits, and more
    "int8": 0.03,  # 0.009 of a small GPT's
    "powersgd_4": 0.2,  # 0.7 where what was left out is not sent later
    "local_steps": 1e-3,
}
PERIOD = 4  # updates in a step of each arm, between two averages of local steps
BLOCK = 256  # gradients with a scale
LARGEST_INT8 = 127
SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # of a block of zeros
MATRIX_RANK = 4
FIRST_COMPRESSED = 2  # update: in the first, DistributedDataParallel sorts its buckets
EXCHANGES = 128
SEEDS = 2
LOSS_UPDATES = 50 * PERIOD + 1  # the averager averages in the first of a period
SMALL_MODEL = "gpt_toy"


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Replicas that exchange in the arm's way, a period of updates each step."""
    name, link = str(point["model"]), str(point["link"])
    require_gpu_for(name, None if link == "gloo" else gpu)
    if link == "tcp" and name in LLAMA_SIZES:
        raise Skip("5 GB take seconds over TCP", "take gpt2")
    replica = Exchanging(arm, name, join_by(link, gpu), seed)
    made = arm_of(
        replica,
        exchanging=lambda _: WAYS[arm](replica),
        error=partial(ERRORS[arm], replica) if arm in ERRORS else None,
        tolerance=TOLERANCES.get(arm),
    )

    def metrics() -> dict[str, float]:
        costs = {**made.metrics(), **replica.cost_of_average()}
        return costs if arm == "fp32" else {**costs, "lost_share": lost_share(replica)}

    return replace(made, step=replica.period, metrics=metrics, items=PERIOD * made.items)


def join_by(link: str, gpu: int | None) -> Group:
    """By TCP, NCCL reaches neither the other GPU's memory nor what processes share."""
    if link != "tcp":
        return join(link, gpu)
    os.environ |= {"NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}
    return join("host", gpu)


class Exchanging(Replica):
    """A replica that exchanges in an arm's way."""

    def __init__(self, arm: str, name: str, group: Group, seed: int) -> None:
        super().__init__(name, group, seed)
        self.arm = arm
        self.averager: PeriodicModelAverager | None = None

    def step(self) -> None:
        """An update, and where it is due an average."""
        super().step()
        if self.averager is not None:
            self.averager.average_parameters(self.model.parameters())

    def period(self) -> None:
        """As many updates as lie between two averages."""
        for _ in range(PERIOD):
            self.step()

    def cost_of_average(self) -> dict[str, float]:
        """Of weights, in seconds: an update has a share of it that the period decides."""
        if self.averager is None:
            return {}
        self.step()  # what has no gradient is not averaged
        average = partial(average_parameters_or_parameter_groups, process_group=dist.group.WORLD)
        return {"average_s": time_of(lambda: average(self.model.parameters()), self)}


def small_replica(arm: str, group: Group, seed: int) -> Exchanging:
    """Of a GPT that is checked in place of a large model."""
    replica = Exchanging(arm, SMALL_MODEL, group, seed)
    WAYS[arm](replica)
    return replica


def error_of_mean(replica: Exchanging) -> float:
    """Of many exchanges of the same gradients of a small GPT. Throws Failed where ranks hold other
    bits."""
    small = small_replica(replica.arm, replica.group, replica.seed)
    expected = exact_gradients(small, small.rows)
    total = torch.zeros_like(expected)
    for place in range(FIRST_COMPRESSED + EXCHANGES):
        small.optimizer.zero_grad(set_to_none=True)
        small.backward(small.input, small.target, bf16=False)
        if place >= FIRST_COMPRESSED:
            found = flat(small.gradients())
            require_same_on_all_ranks(found, small.group)
            total += found
    return distance(total / EXCHANGES, expected)


def error_of_average(replica: Exchanging) -> float:
    """Of the weights after an update behind which they are averaged. Throws Failed where ranks hold
    other bits."""
    assert replica.averager is not None
    while replica.averager.step % PERIOD:
        replica.step()
    Replica.step(replica)
    own = weights_of(replica)
    mean = own.double()
    dist.all_reduce(mean)
    mean /= replica.group.ranks
    apart = float((own - mean).norm())
    replica.averager.average_parameters(replica.model.parameters())
    found = weights_of(replica)
    require_same_on_all_ranks(found, replica.group)
    return float((found - mean).norm()) / apart


def weights_of(replica: Replica) -> torch.Tensor:
    """All in one row, which later updates do not change."""
    return flat([one.detach() for one in replica.model.parameters()])


def lost_share(replica: Exchanging) -> float:
    """Of how far the loss of a small GPT falls with gradients in FP32, from the same weights on the
    same rows: what the arm's exchange costs."""
    shares = []
    for seed in range(replica.seed, replica.seed + SEEDS):
        first, exact = losses("fp32", replica.group, seed)
        _, found = losses(replica.arm, replica.group, seed)
        shares.append((found - exact) / (first - exact))
    return statistics.fmean(shares)


def losses(arm: str, group: Group, seed: int) -> tuple[float, float]:
    """Of all ranks' rows, before the first and after the last update."""
    small = small_replica(arm, group, seed)
    first = loss_of_all(small)
    for _ in range(LOSS_UPDATES):
        small.step()
    return first, loss_of_all(small)


def loss_of_all(replica: Replica) -> float:
    """The mean over all shards."""
    loss = Loss(replica.model)
    shards = (replica.rows_of_shard(shard, replica.rows) for shard in range(replica.shards))
    return statistics.fmean(loss(rows, target).item() for rows, target in shards)


def exchange_whole(replica: Exchanging) -> None:
    """As DistributedDataParallel does by itself."""
    replica.wrap(gradient_as_bucket_view=True)


def exchange_halves(replica: Exchanging) -> None:
    """Casts each bucket, exchanges it, casts it back."""
    wrapped = replica.wrap(gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)


def exchange_bytes(replica: Exchanging) -> None:
    """Each bucket in INT8. torch's own hooks have one scale a bucket, or a loop over blocks."""
    wrapped = replica.wrap(gradient_as_bucket_view=True)
    wrapped.register_comm_hook(None, lambda _, bucket: gather_int8(bucket))


def gather_int8(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of all ranks' gradients, each rounded to multiples of its block's scale."""
    gradients = bucket.buffer()
    blocks = nnf.pad(gradients, (0, -len(gradients) % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True).div_(LARGEST_INT8).clamp_(min=SMALLEST_SCALE)
    rounded = (blocks / scales).round_().to(torch.int8)
    message = torch.cat([rounded, scales.view(torch.int8)], dim=1)
    ranks = dist.get_world_size()
    gathered = message.new_empty((ranks * len(blocks), BLOCK + scales.itemsize))
    work = dist.all_gather_into_tensor(gathered, message, async_op=True)

    def mean(_: object) -> torch.Tensor:
        rounded, scales = gathered[:, :BLOCK], gathered[:, BLOCK:].contiguous()
        decoded = rounded * scales.view(torch.float32)
        return decoded.view(ranks, -1).mean(0)[: len(gradients)]

    return work.get_future().then(mean)


def exchange_factors(replica: Exchanging) -> None:
    """Each matrix of a bucket as a product of two of a low rank (Vogels et al., 2019)."""
    state = powerSGD_hook.PowerSGDState(
        process_group=None,
        matrix_approximation_rank=MATRIX_RANK,
        start_powerSGD_iter=FIRST_COMPRESSED,
    )
    wrapped = replica.wrap(gradient_as_bucket_view=True)
    wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def average_weights(replica: Exchanging) -> None:
    """No gradients at all, and after each period the mean of all ranks' weights."""
    replica.averager = PeriodicModelAverager(PERIOD)
    replica.can_be_silent = False


WAYS: Mapping[str, Callable[[Exchanging], None]] = {
    "fp32": exchange_whole,
    "bf16_hook": exchange_halves,
    "int8": exchange_bytes,
    "powersgd_4": exchange_factors,
    "local_steps": average_weights,
}
ERRORS: Mapping[str, Callable[[Exchanging], float]] = {
    "powersgd_4": error_of_mean,
    "local_steps": error_of_average,
}
