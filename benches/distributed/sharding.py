"""distributed/sharding: each rank keeps a part of the model's state."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from functools import partial

import torch
from gpulift_work.distributed import Group, Replica, arm_of, flat, join
from gpulift_work.training import free_memory, make_optimizer
from gpulift_worker import Arm, Skip
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

TECHNIQUE = {
    "question": "What does it cost to keep a part of the optimizer's state, or of the whole model, "
    "on each GPU, and how much memory does it free?",
    "expectation": "State in FP32 is 16 bytes a parameter: 2.0 GB for GPT-2 (124 M), 12.4 for the "
    "large one (774 M); 8 of them are the optimizer's. On two H100 with NVLink ZeRO-1 halves these "
    "(1.0 and 6.2 to 0.5 and 3.1 GB) and sends updated weights on: one all-gather of 498 MB, 1.9 "
    "ms of 39, but in calls by parameter, 0.95. FSDP2 halves all and gathers each block's weights "
    "twice: 2 x 498 MB at 244 GB/s = 2 ms each way hidden behind the blocks, but its hooks and "
    "copies are launches: 0.86 for 12 small blocks, 0.93 to 1.0 for 36 larger ones. Without "
    "resharding after the forward pass one gather is saved, and the memory of the weights is back. "
    "With its state in the host's memory the optimizer runs on cores at some 20 GB/s of 28 bytes a "
    "parameter: 170 ms and 1.1 s a step: 0.2. Ranks on processors: copies beside a slow step, 0.8 "
    "to 0.9.",
    "predict": [
        {
            "case": {"model": "gpt2"},
            "on": "h100",
            "step_time_s": {"ddp": [0.0351, 0.0429]},
            "speedup": {
                "zero_1": [0.855, 1.045],
                "fsdp2": [0.774, 0.946],
                "fsdp2_offload": [0.18, 0.22],
            },
        },
        {
            "case": {"model": "gpt2_large"},
            "on": "h100",
            "speedup": {"fsdp2": [0.93, 1], "fsdp2_offload": [0.18, 0.22]},
        },
        {
            "case": {"model": "gpt_toy"},
            "speedup": {"zero_1": [0.8, 0.9], "fsdp2": [0.8, 0.9], "fsdp2_no_reshard": [0.8, 0.9]},
        },
    ],
    "found": "The toy's step of 17 ms on two cores is not slow beside its exchanges, one launch: "
    "Gloo takes 2.9 ms to all-reduce 0.4 MB. FSDP2 adds 34 ms, 23 without resharding (0.35 and "
    "0.44): 2.3 ms for each of the 15 or 10 exchanges of five groups, which is inferred, not "
    "traced.",
    "claims": ["sharded-state-saves-memory"],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["ddp", "zero_1", "fsdp2", "fsdp2_no_reshard", "fsdp2_offload"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"model": ["gpt2", "gpt2_large", "gpt_toy"]},
    "check": {
        "meaning": "weights after 3 steps in FP32 against one process that takes all ranks' rows, "
        "relative to their change",
        "tolerance": 1e-3,
    },
}
CHECKED_STEPS = 3
CHECKED_ROWS = 1  # of each rank
ADAMW_OPTIONS = ("lr", "betas", "weight_decay", "fused")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each of two ranks, or what it keeps of one."""
    name = str(point["model"])
    group = join("gloo" if name == "gpt_toy" else "nvlink", gpu)
    error = weight_error(arm, name, group, seed)  # ahead of the arm, which may need the memory
    gc.collect()  # what fully_shard() made holds itself, and would count as the arm's
    free_memory(group.device)
    replica = Replica(name, group, seed)
    SHARDINGS[arm](replica)
    return arm_of(replica, error=lambda: error)


def weight_error(arm: str, name: str, group: Group, seed: int) -> float:
    """How far the weights are from where one process alone would be, over how far it went."""
    alone = Replica(name, group, seed, drives_all=True)
    start = flat(weights_of(alone)).clone()
    train(alone)
    expected = flat(weights_of(alone))
    del alone
    free_memory(group.device)
    replica = Replica(name, group, seed)
    SHARDINGS[arm](replica)
    train(replica)
    found = flat(weights_of(replica))
    return float((found - expected).norm() / (expected - start).norm())


def train(replica: Replica) -> None:
    """A few steps in FP32."""
    given, target = replica.rows_of_own(CHECKED_ROWS)
    for _ in range(CHECKED_STEPS):
        replica.optimizer.zero_grad(set_to_none=True)
        replica.backward(given, target, bf16=False)
        replica.optimizer.step()


def weights_of(replica: Replica) -> list[torch.Tensor]:
    """Whole, on the replica's device, wherever their parts are."""
    return [
        one.detach().to(replica.device).full_tensor() if isinstance(one, DTensor) else one.detach()
        for one in replica.model.parameters()
    ]


def keep_all(replica: Replica) -> None:
    """All of the state on each rank."""
    replica.wrap(gradient_as_bucket_view=True)


def shard_optimizer(replica: Replica) -> None:
    """ZeRO's first stage (Rajbhandari et al., 2020): each rank updates a part of the weights."""
    replica.wrap(gradient_as_bucket_view=True)
    usual = replica.optimizer
    options = {key: usual.defaults[key] for key in ADAMW_OPTIONS}
    replica.optimizer = ZeroRedundancyOptimizer(
        list(replica.model.parameters()), optimizer_class=type(usual), **options
    )
    replica.can_be_silent = False  # its optimizer sends weights in any step


def shard_model(
    replica: Replica, *, reshard: bool = True, offload: OffloadPolicy | None = None
) -> None:
    """Each block by itself, and what is outside of blocks. Throws Skip where there is nothing to
    offload from."""
    if offload is not None and replica.device.type == "cpu":
        raise Skip("on processors the state lies in the host's memory anyway")
    policy = OffloadPolicy() if offload is None else offload
    blocks = replica.model.h
    assert isinstance(blocks, nn.ModuleList)
    for block in blocks:
        fully_shard(block, reshard_after_forward=reshard, offload_policy=policy)
    fully_shard(replica.model, reshard_after_forward=reshard, offload_policy=policy)
    replica.optimizer = make_optimizer(replica.name, list(replica.model.parameters()))
    replica.can_be_silent = False


SHARDINGS: Mapping[str, Callable[[Replica], None]] = {
    "ddp": keep_all,
    "zero_1": shard_optimizer,
    "fsdp2": shard_model,
    "fsdp2_no_reshard": partial(shard_model, reshard=False),
    "fsdp2_offload": partial(shard_model, offload=CPUOffloadPolicy()),
}
