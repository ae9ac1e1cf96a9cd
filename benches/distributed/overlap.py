"""distributed/overlap: gradients exchanged after the backward pass, or within it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from gpulift_work.distributed import Replica, arm_of, flat, join
from gpulift_worker import Arm
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

TECHNIQUE = {
    "question": "What is it worth to exchange gradients while the backward pass still runs, and "
    "how large should the buckets be?",
    "expectation": """
        Two H100 over NVLink, all-reduces at 330 GB/s. llama_1b, 2 x 4096 tokens, 180 ms: 4.9 GB
        take 15 ms, and each pass over them 3.5 at 2.8 TB/s. All at the end they are gathered,
        divided and scattered, too, 10 ms: 206. In buckets of 25 MB, copied in and out, 7 ms, only
        the last one's exchange shows, and NCCL's kernels take 2 ms from the pass beside: but the
        last one is the embedding's, 1.05 GB, of which no layer waits, 3.2 ms: 192, so that all at
        the end is 0.93 as fast. Views of buckets leave the copies out: 1.04, with a static graph no
        more. A call for each gradient, 146 of 34 MB on average, runs at full speed and copies
        nothing: 0.95; one bucket, 0.95. Four times as large buckets: 1.00. An output layer of its
        own has a gradient as large, which is there first and hides; the embedding's, there last,
        still shows: it is its place and not the tie, 3.2 of 18.2 ms in place of 3.2 of 15; 0.93 as
        well. GPT-2, 8 x 1024 tokens, 27 ms: 498 MB in 1.5 ms, a third of it the embedding's:
        28.4, all at the end 29.6, 0.96, call by call, 148 of 3.4 MB, 0.9. ResNet-50, 256 images,
        74 ms, 102 MB in 0.3 ms: 0.99 to 1.0, whatever. Through the host, 26 GB/s: llama_1b 190 ms
        beside 110 of a backward pass: in buckets 267, at the end 380, 0.70; untied 230 ms: 0.72;
        GPT-2 19 ms beside 16: 34 and 47, 0.72; ResNet-50 4 ms: 0.96. Of what NCCL's kernels take,
        0 lies beneath others at the end; in buckets over NVLink all but the embedding's, 0.75 of
        llama_1b and 0.6 of GPT-2, through the host 0.55. Processors, 45 MB over the loopback, and a
        GPT of as many: Gloo's threads need the cores that the backward pass runs on, so hiding is
        worth little, 1.0 to 1.1.
    """,
    "predict": [
        "ranks:2/link:nvlink/network:llama @h200: buckets_25 169-184 ms, buckets_100"
        " 0.99-1.02, bucket_view 1.0-1.03, static_graph 1.0-1.04, one_at_the_end 0.91-0.97,"
        " per_parameter 0.91-0.97, one_bucket 0.91-0.97",
        "ranks:2/link:nvlink/network:gpt @h200: buckets_25 26-34 ms, buckets_100 1.0-1.1,"
        " bucket_view 1.0-1.05, static_graph 1.0-1.08, one_at_the_end 0.95-1.18",
        "ranks:2/link:nvlink/network:llama @h100: buckets_25 183-202 ms, buckets_100 0.98-1.02,"
        " bucket_view 1.01-1.06, static_graph 1.01-1.06, one_at_the_end 0.9-0.96,"
        " per_parameter 0.92-0.98, one_bucket 0.92-0.98",
        "ranks:2/link:nvlink/network:llama_untied @h100: buckets_25 187-207 ms,"
        " bucket_view 1.01-1.06, one_at_the_end 0.89-0.96, one_bucket 0.91-0.97",
        "ranks:2/link:nvlink/network:gpt @h100: buckets_25 25.6-31.2 ms, buckets_100 0.97-1.03,"
        " bucket_view 1.0-1.05, static_graph 1.0-1.06, one_at_the_end 0.92-0.99,"
        " per_parameter 0.8-0.95, one_bucket 0.92-0.99",
        "ranks:2/link:nvlink/network:resnet @h100: buckets_25 67-82 ms, bucket_view 0.99-1.01,"
        " one_at_the_end 0.98-1.01",
        "ranks:2/link:host/network:llama @h100: buckets_25 240-300 ms, bucket_view 1.01-1.05,"
        " one_at_the_end 0.63-0.78, one_bucket 0.64-0.79",
        "ranks:2/link:host/network:llama_untied @h100: one_at_the_end 0.64-0.79",
        "ranks:2/link:host/network:gpt @h100: one_at_the_end 0.65-0.8, one_bucket 0.65-0.8",
        "ranks:2/link:host/network:resnet @h100: one_at_the_end 0.94-0.98",
        "link:gloo: one_at_the_end 0.909-1",
    ],
    "found": "On H200s with NVLink GPT-2's gradients are all-reduced in 1.65 ms among two and in "
    "2.2 among four, which carry 1.5 times the bytes at the same bus bandwidth. Views of buckets "
    "were worth 1.022 on two (one launch) and 1.031 on four. On two whose host took 30 to 34 ms to "
    "issue a step of 850 to 1,145 launches, and whose GPUs work for 26 and the exchange, arms "
    "differ by what the host does, and from launch to launch: in three, all at the end 1.05 to "
    "1.08, buckets of 100 MB 0.99 to 1.03, views 0.91 to 1.04; in one before, all at the end 1.17.",
    "claims": ["communication-overlap-faster"],
    "whole_steps": True,
    "spans_hosts": True,
    "arms": [
        "buckets_25",
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
        "network": ["gpt", "resnet", "llama", "llama_untied"],
    },
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, of a Llama in "
        "FP32, relative; ranks hold the same bits",
        "tolerance": 1e-5,
    },
}
ON_GPUS = {
    "gpt": "gpt2",
    "resnet": "resnet50_256",
    "llama": "llama_1b",
    "llama_untied": "llama_1b_untied",
}
NETWORKS = {
    "nvlink": ON_GPUS,
    "host": ON_GPUS,
    "fabric": ON_GPUS,
    "gloo": {
        "gpt": "gpt_baby",
        "resnet": "resnet18",
        "llama": "llama_toy",
        "llama_untied": "llama_toy_untied",
    },
}
TRACED_STEPS = 2

Interval = tuple[float, float]  # start and end


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank."""
    link = str(point["link"])
    group = join(link, gpu)
    replica = Replica(NETWORKS[link][str(point["network"])], group, seed)
    made = arm_of(replica, exchanging=EXCHANGES[arm])
    return replace(made, metrics=lambda: {**made.metrics(), **hidden_exchange(replica)})


def hidden_exchange(replica: Replica) -> dict[str, float]:
    """By a trace of some steps on the first rank, what share of the time of NCCL's kernels, which
    wait for other ranks' too, lies beneath others, which are of the backward pass. None on
    processors."""
    if replica.device.type == "cpu":
        return {}
    # Torch's profiler reads this. Else CUPTI stays, in the way of launches that are timed later.
    os.environ["TEARDOWN_CUPTI"] = "1"
    traced = profile(activities=[ProfilerActivity.CUDA]) if replica.group.rank == 0 else None
    if traced is not None:
        traced.start()
    for _ in range(TRACED_STEPS):
        replica.step()
    replica.synchronize()
    if traced is None:
        return {}
    traced.stop()
    exchanges: list[Interval] = []
    others: list[Interval] = []
    for event in traced.events():
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation:
            kind = exchanges if event.name.startswith("ncclDevKernel") else others
            kind.append((event.time_range.start, event.time_range.end))
    return {"exchange_hidden_share": hidden_share(exchanges, others)} if exchanges else {}


def hidden_share(intervals: Sequence[Interval], covers: Sequence[Interval]) -> float:
    """Of the length of all intervals, what lies beneath at least one of the covers, which may
    overlap."""
    union: list[Interval] = []
    for start, end in sorted(covers):
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((start, end))
    hidden = sum(
        max(0.0, min(end, until) - max(start, since))
        for start, end in intervals
        for since, until in union
    )
    return hidden / sum(end - start for start, end in intervals)


def exchange_at_the_end(replica: Replica) -> None:
    """All gradients in one call when all are there, as hand-written loops do."""

    def exchange() -> None:
        gradients = replica.gradients()
        whole = flat(gradients).div_(replica.group.ranks)
        dist.all_reduce(whole)
        parts = whole.split([gradient.numel() for gradient in gradients])
        shaped = [part.view_as(like) for part, like in zip(parts, gradients, strict=True)]
        torch._foreach_copy_(gradients, shaped)

    replica.exchange = exchange


def exchange_per_parameter(replica: Replica) -> None:
    """A call for each gradient when all are there."""

    def exchange() -> None:
        gradients = replica.gradients()
        torch._foreach_div_(gradients, replica.group.ranks)
        for gradient in gradients:
            dist.all_reduce(gradient)

    replica.exchange = exchange


def exchange_in_buckets(
    replica: Replica, megabytes: float, *, view: bool = False, static: bool = False
) -> None:
    """By DistributedDataParallel, as soon as a bucket's gradients are there."""
    replica.wrap(bucket_cap_mb=megabytes, gradient_as_bucket_view=view, static_graph=static)


EXCHANGES: Mapping[str, Callable[[Replica], None]] = {
    "one_at_the_end": exchange_at_the_end,
    "per_parameter": exchange_per_parameter,
    "buckets_25": partial(exchange_in_buckets, megabytes=25),  # the default
    "buckets_100": partial(exchange_in_buckets, megabytes=100),
    "one_bucket": partial(exchange_in_buckets, megabytes=10_000),
    "bucket_view": partial(exchange_in_buckets, megabytes=25, view=True),
    "static_graph": partial(exchange_in_buckets, megabytes=25, view=True, static=True),
}
