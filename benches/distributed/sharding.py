"""distributed/sharding: each rank keeps a part of the model's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from gpulift_work.distributed import PAIR, join
from gpulift_work.llama import Layer
from gpulift_work.sharded import LARGEST_NORM, Sharded, sharded_arm
from gpulift_work.training import make_optimizer
from gpulift_worker import Arm, Skip
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    OffloadPolicy,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer

TECHNIQUE = {
    "question": "What do the ways of keeping a part of a model's state on each GPU cost, and how "
    "much memory do they free?",
    "expectation": """
        Weights, gradients and AdamW's moments in FP32 are 16 bytes a parameter. llama_1b, 1.24 G
        parameters, 2 x 4096 tokens a rank, two H100: ddp keeps 19.8 GB, zero_1 14.8 (half of the
        moments), FSDP 9.9, with a peak that has 16 GB of activations and logits more. ddp: 145 ms
        as on one GPU, 5 ms that clip 4.9 GB of gradients, 3 that copy them to buckets, and an
        all-reduce of 4.9 GB at 330 GB/s, 15 ms, hidden but for the embedding's 3 ms: 160. zero_1:
        its AdamW takes 6 ms less, and its weights travel, twice 2.5 GB, 15 ms in the open: 0.95.
        FSDP2 gathers 2.5 GB of BF16 twice, 3.7 ms each, and scatters sums of 4.9 GB in FP32, 7.5,
        all hidden; AdamW and clipping are halved, 9 ms less, weights are cast once and not by each
        rank in whole, 3 less, and copies in and out of what is gathered are 6 more: 150 ms, 1.05;
        FSDP's first version the same. Without resharding one gather of two is saved, which was
        hidden, for 2.5 GB of memory. In the host's memory: weights of 2.5 GB go up twice at 26
        GB/s, 0.19 s, and AdamW and the norm take 17 and 7 GB of its traffic, 0.5 s: 0.9 s, 0.18. In
        pairs of four ranks as FSDP2 on two, with an all-reduce of 2.5 GB more, hidden. llama_3b,
        3.21 G parameters, 4096 tokens: 51 GB and 20 of activations and logits are at the edge of 80
        GB; FSDP2 keeps 26 and gathers 0.4 at a time: 48 at the peak. Products 141 ms at 620
        TFLOP/s; AdamW of ddp 90 GB, 30 ms, clipping 13, buckets 9, casts 13, the rest 28: 234 ms.
        FSDP2 saves 22 ms of AdamW and clipping, 9 of buckets, 7 of casts, 5 of the embedding, and
        pays 17 for copies: 208, 1.12. zero_1: 15 ms less and 39 for 12.9 GB of weights: 0.91. In
        the host's memory 1.9 s: 0.12.
    """,
    "predict": [
        "model:llama_1b/ranks:2 @h200: ddp 147-157 ms, zero_1 0.93-0.97, fsdp1 1.0-1.05,"
        " fsdp2 1.01-1.06, fsdp2_no_reshard 1.04-1.09, fsdp2_offload 0.12-0.3",
        "model:llama_1b/ranks:2 @h100: ddp 150-172 ms, zero_1 0.9-1, fsdp1 0.98-1.1,"
        " fsdp2 0.98-1.1, fsdp2_no_reshard 0.98-1.12, fsdp2_offload 0.12-0.3",
        "model:llama_3b/ranks:2 @h100: ddp 215-255 ms, zero_1 0.85-0.97, fsdp1 1.04-1.2,"
        " fsdp2 1.04-1.2, fsdp2_no_reshard 1.04-1.22, fsdp2_offload 0.08-0.2",
        "model:llama_1b/ranks:4 @h100: hsdp 0.96-1.1",
    ],
    "found": """
        Two H200s, whose memory is 1.4 times as fast, llama_1b, three launches: ddp 155 ms, zero_1
        0.95, fsdp1 1.00, fsdp2 1.036, without resharding 1.07, in the host's memory 0.21
        [0.18, 0.24]. At the peak 35.5, 30.6, 20.8, 20.8, 22.6 and 13.4 GB: FSDP keeps 5 GB less
        than was expected: its policy has in BF16 what passes between layers, and autocast in FP32;
        by reckoning that is 1.9 ms of its gain, too.
    """,
    "claims": ["sharded-state-saves-memory"],
    "whole_steps": True,
    "spans_hosts": True,
    "arms": ["ddp", "zero_1", "fsdp1", "fsdp2", "fsdp2_no_reshard", "hsdp", "fsdp2_offload"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": "ranks",
    "sweep": {"ranks": [2, 4], "model": ["llama_1b", "llama_3b", "llama_toy"]},
    "check": {
        "meaning": "clipped gradients of the first step that is timed against those of one process "
        "with all ranks' rows in FP32, relative to their norm; its update is that of its gradients",
        "tolerance": 0.15,
    },
}
ADAMW_OPTIONS = ("lr", "betas", "eps", "weight_decay", "fused")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank, or what it keeps of one."""
    name = str(point["model"])
    # Of gradients that lie in the host's memory, ranks sum the norm there.
    backend = "cpu:gloo,cuda:nccl" if arm == "fsdp2_offload" and gpu is not None else ""
    group = join("gloo" if name == "llama_toy" else "nvlink", gpu, backend)
    sharded = Sharded(name, group, seed)
    sharded.compile_all()
    SHARDINGS[arm](sharded)
    return sharded_arm(sharded)


def keep_all(sharded: Sharded) -> None:
    """All of the state on each rank."""
    sharded.wrap(gradient_as_bucket_view=True)


def shard_optimizer(sharded: Sharded) -> None:
    """ZeRO's first stage (Rajbhandari et al., 2020): each rank updates some of the weights."""
    sharded.wrap(gradient_as_bucket_view=True)
    replicated = sharded.optimizer
    sharded.optimizer = ZeroRedundancyOptimizer(
        list(sharded.model.parameters()),
        optimizer_class=type(replicated),
        parameters_as_bucket_view=True,
        **{option: replicated.defaults[option] for option in ADAMW_OPTIONS},
    )


def shard_flat(sharded: Sharded) -> None:
    """FSDP's first version, in which a layer's weights are one row of numbers."""
    precision = MixedPrecision(torch.bfloat16, torch.float32) if sharded.bf16 else None
    root = FullyShardedDataParallel(
        sharded.forward,
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        mixed_precision=precision,
        forward_prefetch=True,
        use_orig_params=True,
        device_id=sharded.device,
    )
    sharded.forward, sharded.autocasts = root, False
    sharded.optimizer = make_optimizer(sharded.name, list(sharded.model.parameters()))
    sharded.clip = partial(root.clip_grad_norm_, LARGEST_NORM)  # torch's own sees one rank's part
    sharded.gathering = partial(
        FullyShardedDataParallel.summon_full_params, root, writeback=False, with_grads=True
    )


def shard_by_parameter(
    sharded: Sharded, *, reshard: bool | None = None, offload: OffloadPolicy | None = None
) -> None:
    """FSDP2. `reshard` false: weights that were gathered stay until the backward pass has used
    them. Throws Skip where there is nothing to offload from."""
    if offload is not None and sharded.device.type == "cpu":
        raise Skip("on processors the state lies in the host's memory anyway")
    mesh = init_device_mesh(sharded.device.type, (sharded.group.ranks,))
    sharded.shard(mesh, reshard_after_forward=reshard, offload_policy=offload or OffloadPolicy())


def shard_in_pairs(sharded: Sharded) -> None:
    """FSDP2 within pairs of ranks, which hold what the other pairs do."""
    ranks = sharded.group.ranks
    if ranks < 2 * PAIR:
        raise Skip(f"{ranks} ranks are one pair", "name four GPUs: --gpus 0,1,2,3")
    shape, names = (ranks // PAIR, PAIR), ("pairs", "ranks")
    sharded.shard(init_device_mesh(sharded.device.type, shape, mesh_dim_names=names))


SHARDINGS: Mapping[str, Callable[[Sharded], None]] = {
    "ddp": keep_all,
    "zero_1": shard_optimizer,
    "fsdp1": shard_flat,
    "fsdp2": shard_by_parameter,
    "fsdp2_no_reshard": partial(shard_by_parameter, reshard=False),
    "hsdp": shard_in_pairs,
    "fsdp2_offload": partial(shard_by_parameter, offload=CPUOffloadPolicy()),
}
