"""distributed/data_parallel: one model on several GPUs, each with rows of its own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
import torch.distributed as dist
from gpulift_work.distributed import Group, Replica, arm_of, idle_arm, join, tolerance_of
from gpulift_work.training import TWINS
from gpulift_worker import Arm, Skip
from torch.nn.parallel import DataParallel

TECHNIQUE = {
    "question": "How much faster do several GPUs train a model by data parallelism, and by which "
    "of its forms?",
    "expectation": "Two H100 with NVLink, per image or token. ResNet-50 exchanges 102 MB, 0.35 ms "
    "of a step of 25 ms, GPT-2 498 MB, 1.6 ms of 39 ms, mostly behind the backward pass: 1.94 to "
    "1.98 times as fast where each GPU keeps its batch (weak). Where the batch is split (strong), "
    "a GPU's half takes more than half the time, and the exchange is the same: 1.8 to 1.9. The "
    "small GPT, one row of 128 tokens, is bound by launches, and DDP's hooks add some: 1.7 to 1.9 "
    "weak; one row cannot be split. DataParallel in one process copies the model to the other GPU "
    "in each step, 498 MB at 390 GB/s in 148 calls, and one thread per GPU shares Python's lock: "
    "1.5 for ResNet-50 and GPT-2, below 1 for the small GPT. Gloo takes the gradients through the "
    "host, 498 MB down, summed by a core and up, at some 1 GB/s: 0.5 s a step, 0.15 for GPT-2.",
    "predict": [
        {
            "case": {"gpus": 2, "model": "resnet50", "scaling": "weak"},
            "on": "h100",
            "step_time_s": {"one_gpu": [0.0225, 0.0275]},
            "speedup": {"ddp": [1.94, 1.98], "data_parallel": [1.35, 1.65]},
        },
        {
            "case": {"gpus": 2, "model": "gpt2", "scaling": "weak"},
            "on": "h100",
            "step_time_s": {"one_gpu": [0.0351, 0.0429]},
            "speedup": {
                "ddp": [1.94, 1.98],
                "data_parallel": [1.35, 1.65],
                "ddp_gloo": [0.135, 0.165],
            },
        },
        {
            "case": {"gpus": 2, "model": "gpt_small", "scaling": "weak"},
            "on": "h100",
            "speedup": {"ddp": [1.7, 1.9]},
        },
        {
            "case": {"gpus": 2, "model": "resnet50", "scaling": "strong"},
            "on": "h100",
            "speedup": {"ddp": [1.8, 1.9]},
        },
        {
            "case": {"gpus": 2, "model": "gpt2", "scaling": "strong"},
            "on": "h100",
            "speedup": {"ddp": [1.8, 1.9]},
        },
    ],
    "found": "GPT-2 on two H100s, one launch. DataParallel 0.53: its 1,891 launches from two "
    "threads take 161 ms, and the host bounds them. Gloo 0.30: it all-reduces at 2.1 GB/s, not 1, "
    "and a step takes 0.28 s. On H200s, weak, DDP has 1.89 on two and 3.73 on four, with "
    "ResNet-50 1.45 and 2.92 (one launch on four), not traced: a third of GPT-2's gradients, the "
    "embedding that the head shares, are only there when the backward pass ends, and DDP copies "
    "all into buckets and back; ResNet-50's step takes as much longer as it has launches more, "
    "1455 in place of 959, and sent the means of batch norms, too. DataParallel has 0.57 and 0.72 "
    "there, and 0.03 with ResNet-50: it has new threads in each step, and cuDNN's search, which "
    "was on, keeps what it found by thread (pytorch/pytorch#191744).",
    "claims": [
        "data-parallel-for-large-models",
        "data-parallel-faster",
        "more-gpus-double-speed",
        "data-parallel-more-memory",
        "data-parallel-traffic-costs",
        "ddp-faster-than-data-parallel",
        "nccl-fastest",
    ],
    "gpus": 2,
    "whole_steps": True,
    "arms": ["one_gpu", "ddp", "data_parallel", "ddp_gloo"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": {"ddp": "gpus", "data_parallel": "gpus", "ddp_gloo": "gpus"},
    "sweep": {
        "gpus": [2, 4, 8],
        "model": ["resnet50", "gpt2", "gpt_small"],
        "scaling": ["weak", "strong"],
    },
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, relative; ranks "
        "hold the same bits",
        "tolerance": 1e-5,
    },
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank; DataParallel drives all GPUs from the first."""
    group = join("any", gpu, backend="gloo" if arm == "ddp_gloo" else "")
    torch.backends.cudnn.benchmark = False  # DataParallel's threads would search in each step
    name, parts = str(point["model"]), int(point["gpus"])
    rows = rows_of_shard(TWINS[name].batch, parts, str(point["scaling"]), arm)
    if arm == "data_parallel":
        return drive_all(name, group, seed, rows)
    replica = Replica(name, group, seed, batch=rows)
    replica.wrap()
    return arm_of(replica, tolerance=tolerance_of(name))


def rows_of_shard(batch: int, parts: int, scaling: str, arm: str) -> int:
    """Of a batch for one GPU. Throws Skip where it cannot be split."""
    if scaling == "weak":
        return batch
    if batch % parts != 0:
        raise Skip(f"a batch of {batch} cannot be split among {parts} GPUs")
    return batch if arm == "one_gpu" else batch // parts


def drive_all(name: str, group: Group, seed: int, rows: int) -> Arm:
    """The first rank trains on the GPUs of all, as DataParallel does; the others leave theirs to
    it."""
    indices: list[int | None] = [None] * group.ranks
    dist.all_gather_object(indices, group.device.index)
    if group.rank > 0:
        return idle_arm(group)
    replica = Replica(name, group, seed, batch=rows, drives_all=True)
    # Each GPU's loss is a scalar, which is meant.
    warnings.filterwarnings("ignore", "Was asked to gather along dimension 0")
    parallel = DataParallel(replica.forward, device_ids=indices)
    replica.forward = lambda given, target: parallel(given, target).mean()
    return arm_of(replica, tolerance=tolerance_of(name))
