"""distributed/overlap: gradients exchanged after the backward pass, or within it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.distributed as dist
from gpulift_work.distributed import NETWORKS, Replica, arm_of, flat, join, tolerance_of
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What is it worth to exchange gradients while the backward pass still runs, and "
    "how large should the buckets be?",
    "expectation": "GPT-2 has 124 M parameters, 498 MB in FP32; its step of 8 x 1024 tokens takes "
    "some 39 ms on an H100. Over NVLink an all-reduce of 498 MB at 320 GB/s takes 1.6 ms: all at "
    "the end 1.04 of the time, hidden in the backward pass 1.01 to 1.02, since NCCL's kernels take "
    "multiprocessors; four and eight all-reduce as fast. One call a parameter, 148 of 20 us and "
    "more, is no better than one at the end. Through the host 498 MB at 26 GB/s take 19 ms, of "
    "which a backward pass of 25 ms hides half and more: 1.2 times as fast as at the end. A "
    "gradient that is a view of its bucket saves a copy of 498 MB, 0.4 ms: 1.01. One bucket begins "
    "when the last gradient is there: as at the end. ResNet-50, 64 images, has 102 MB for 25 ms: "
    "0.35 ms, 1.01 at the most, less what DDP's hooks cost a host that is hardly ahead. ResNet-18 "
    "on processors, 45 MB over the loopback, and a GPT of as many: Gloo's threads need the cores "
    "that the backward pass runs on, so hiding is worth little, 1.0 to 1.1.",
    "predict": [
        {
            "case": {"link": "nvlink", "network": "gpt"},
            "on": "h100",
            "step_time_s": {"buckets_25": [0.0351, 0.0429]},
            "speedup": {
                "one_at_the_end": [0.971, 0.981],
                "one_bucket": [0.971, 0.981],
                "bucket_view": [0.909, 1.111],
            },
        },
        {
            "case": {"link": "host", "network": "gpt"},
            "on": "h100",
            "speedup": {"one_at_the_end": [0.7497, 0.9163], "one_bucket": [0.7497, 0.9163]},
        },
        {"case": {"link": "gloo"}, "speedup": {"one_at_the_end": [0.909, 1]}},
    ],
    "found": "On H200s with NVLink GPT-2's gradients are all-reduced in 1.65 ms among two and in "
    "2.2 among four, which carry 1.5 times the bytes at the same bus bandwidth. All at the end, "
    "with its copies, is 1.08 of one GPU's step on four. Views of buckets are worth 1.022 on two "
    "(one launch) and 1.031 on four. With ResNet-50 buckets lost, 0.80 to 0.96 of all at the end: "
    "DDP's launches were more, and set its pace. Among them were the means of batch norms, which "
    "DDP alone sent and no longer does.",
    "claims": ["communication-overlap-faster"],
    "gpus": 0,
    "whole_steps": True,
    "arms": [
        "buckets_25",
        "buckets_1",
        "buckets_100",
        "bucket_view",
        "static_graph",
        "one_at_the_end",
        "per_parameter",
        "one_bucket",
    ],
    "controls": ["one_at_the_end", "per_parameter", "one_bucket"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": "ranks",
    "sweep": {
        "ranks": [2, 4, 8],
        "link": ["nvlink", "host", "gloo"],
        "network": ["gpt", "resnet"],
    },
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, relative; ranks "
        "hold the same bits",
        "tolerance": 1e-5,
    },
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank."""
    link = str(point["link"])
    group = join(link, gpu)
    replica = Replica(NETWORKS[link][str(point["network"])], group, seed)
    EXCHANGES[arm](replica)
    return arm_of(replica, tolerance=tolerance_of(replica.name))


def exchange_at_the_end(replica: Replica) -> None:
    """All gradients in one call when all are there, as hand-written loops do."""

    def exchange() -> None:
        gradients = replica.gradients()
        whole = flat(gradients).div_(replica.group.ranks)
        dist.all_reduce(whole)
        parts = whole.split([one.numel() for one in gradients])
        torch._foreach_copy_(
            gradients,
            [part.view_as(one) for part, one in zip(parts, gradients, strict=True)],
        )

    replica.exchange = exchange


def exchange_per_parameter(replica: Replica) -> None:
    """A call for each gradient when all are there."""

    def exchange() -> None:
        gradients = replica.gradients()
        torch._foreach_div_(gradients, replica.group.ranks)
        for one in gradients:
            dist.all_reduce(one)

    replica.exchange = exchange


def exchange_in_buckets(
    replica: Replica, megabytes: float, *, view: bool = False, static: bool = False
) -> None:
    """By DistributedDataParallel, as soon as a bucket's gradients are there."""
    replica.wrap(bucket_cap_mb=megabytes, gradient_as_bucket_view=view, static_graph=static)


EXCHANGES: Mapping[str, Callable[[Replica], None]] = {
    "one_at_the_end": exchange_at_the_end,
    "per_parameter": exchange_per_parameter,
    "buckets_1": partial(exchange_in_buckets, megabytes=1),
    "buckets_25": partial(exchange_in_buckets, megabytes=25),  # the default
    "buckets_100": partial(exchange_in_buckets, megabytes=100),
    "one_bucket": partial(exchange_in_buckets, megabytes=1000),
    "bucket_view": partial(exchange_in_buckets, megabytes=25, view=True),
    "static_graph": partial(exchange_in_buckets, megabytes=25, view=True, static=True),
}
