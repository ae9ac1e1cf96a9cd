"""distributed/comm_sms: how many of a GPU's multiprocessors an exchange may take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from gpulift_work.distributed import Group, join, library_versions
from gpulift_work.nccl import (
    choice_in,
    log_choices,
    mapped_empty,
    require_peer_memory,
    require_settings,
)
from gpulift_work.training import mark_on
from gpulift_worker import Arm, Skip
from torch.distributed import _symmetric_memory as symmetric_memory

TECHNIQUE = {
    "question": "What is it worth to gather weights with fewer multiprocessors, or with copy "
    "engines, beside the products of a layer?",
    "expectation": """
        A step is what FSDP does in a layer of Llama 8B with 8192 tokens: 436 MB of the next layer's
        weights are gathered, 218 from the other GPU, beside 4 products of 8192 x 4096 x 14336 in
        BF16, 3.85 TFLOP, as much as the layer has: 5.9 ms at 650 TFLOP/s. NVLink: alone NCCL
        gathers at 200 GB/s, 1.1 ms, by 16 to 24 channels of a multiprocessor each, and in 2 ms
        beside products, which have 0.9 of their speed then: 6.1 ms. A channel moves 14 GB/s: with 4
        the gather takes 3.8 ms alone and 7 beside, longer than the products: 0.87 of the default's
        speed. With 8 it takes 3.6 beside, products 0.92 as fast for as long: 0.98. 16 are the
        default, 32 take more of the card for less time: 0.97 to 1.0. Copy engines take none: the
        products lose what 218 MB read and written take from 3 TB/s of memory: 5.95 ms, 1.02, and
        the gather alone runs at 300 GB/s and more. NCCL has them since 2.28 for buffers that all
        ranks map (policy zero); torch's symmetric memory copies from the peer's buffer likewise,
        with a kernel of one block before and after. Through the host, 26 GB/s, the gather takes 8.4
        ms and is waited for; 4 channels carry that much: 0.95 to 1.0.
    """,
    "predict": [
        "link:nvlink @h100: default 5.6-6.6 ms, channels_4 0.78-0.96, channels_8 0.93-1.02,"
        " channels_16 0.97-1.03, channels_32 0.95-1.01, nccl_copy_engines 1.0-1.06,"
        " symmetric_memory 1.0-1.06",
        "link:nvlink @h200: default 5.4-6 ms, channels_4 0.93-0.98, channels_8 0.98-1.005,"
        " channels_16 0.98-1.005, channels_32 0.97-1, nccl_copy_engines 1-1.02,"
        " symmetric_memory 1.005-1.03",
        "link:host @h100: default 7.6-9.4 ms, channels_4 0.9-1.03, channels_8 0.95-1.03,"
        " channels_16 0.95-1.03, channels_32 0.92-1.03",
    ],
    "found": """
        One launch on two H100 with NVLink, nearly as predicted: 0.97 with 4 channels, 0.98 to 1.0
        with 8 to 32, 1.01 and 1.02 by copy engines. Beside products, which have 0.92 of their
        speed, the default gathers at 0.44 of the 248 GB/s that it has alone; copy engines at 0.85
        of NCCL's 311 and at all of torch's 296, and leave products 0.97 to 0.98 of theirs.
    """,
    "arms": [
        "default",
        "channels_4",
        "channels_8",
        "channels_16",
        "channels_32",
        "nccl_copy_engines",
        "symmetric_memory",
    ],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "environment": {
        "channels_4": {"NCCL_MIN_CTAS": "4", "NCCL_MAX_CTAS": "4"},
        "channels_8": {"NCCL_MIN_CTAS": "8", "NCCL_MAX_CTAS": "8"},
        "channels_16": {"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "16"},
        "channels_32": {"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "32"},
        "nccl_copy_engines": {"NCCL_CTA_POLICY": "2"},
        "symmetric_memory": {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"},
    },
    "sweep": {"link": ["nvlink", "host"]},
    "check": {
        "meaning": "elements that differ from what was gathered from and from the product alone",
        "tolerance": 0,
    },
}
TOKENS, WIDTH, INNER = 8192, 4096, 14336  # of a product in the SwiGLU of Llama 3.1 8B
PRODUCTS = 4
GATHERED_BYTES = 2 * 218_103_808  # of all ranks together: a layer's weights in BF16
SAMPLES = 7

Work = Callable[[], object]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The same work for all. Settings of NCCL are in the environment, which it reads."""
    require_settings(arm, TECHNIQUE["environment"])  # type: ignore[arg-type]
    link = str(point["link"])
    if arm in ALLOCATED:
        require_peer_memory(link)
    log = log_choices()
    group = join(link, gpu)
    beside = Beside(arm, group, seed)
    torch.cuda.synchronize(group.device)
    beside.gather()
    torch.cuda.synchronize(group.device)
    choice = "copies" if arm == "symmetric_memory" else choice_in(log, "AllGather")
    if arm == "nccl_copy_engines" and choice != "copy engines":
        raise Skip(f"NCCL takes no copy engines: {choice}", "install NCCL 2.28 or later")
    beside.poison()
    return Arm(
        step=beside.step,
        error=beside.wrong_elements,
        synchronize=lambda: torch.cuda.synchronize(group.device),
        mark=lambda: mark_on(group.device),
        notes={f"gather_{arm}": choice},
        versions=library_versions(on_gpu=True),
        metrics=beside.metrics,
        flops=PRODUCTS * 2.0 * TOKENS * WIDTH * INNER,
    )


def allocated(numbers: int, device: torch.device) -> tuple[torch.Tensor, Any]:
    """As any tensor is."""
    return torch.empty(numbers, dtype=torch.int32, device=device), None


def mapped_by_nccl(numbers: int, device: torch.device) -> tuple[torch.Tensor, Any]:
    """With the pool, which has to live as long."""
    return mapped_empty(numbers, torch.int32, device)


def mapped_by_torch(numbers: int, device: torch.device) -> tuple[torch.Tensor, Any]:
    """With what knows the other ranks' buffers."""
    tensor = symmetric_memory.empty(numbers, dtype=torch.int32, device=device)
    assert dist.group.WORLD is not None
    return tensor, symmetric_memory.rendezvous(tensor, dist.group.WORLD)


ALLOCATED = {"nccl_copy_engines": mapped_by_nccl, "symmetric_memory": mapped_by_torch}


class Beside:
    """Matrix products on one stream and an all-gather on another, in place as FSDP's is."""

    def __init__(self, arm: str, group: Group, seed: int) -> None:
        self.group = group
        self.device = group.device
        generator = torch.Generator(self.device).manual_seed(seed)
        normal = partial(torch.randn, generator=generator, device=self.device, dtype=torch.bfloat16)
        self.left, self.right = normal(TOKENS, WIDTH), normal(WIDTH, INNER)
        self.expected_product = torch.mm(self.left, self.right)
        self.product = torch.empty_like(self.expected_product)
        numbers = GATHERED_BYTES // 4
        self.expected_gathered = torch.randint(
            2**31 - 1, (numbers,), generator=generator, device=self.device, dtype=torch.int32
        )
        self.gathered, self.mapping = ALLOCATED.get(arm, allocated)(numbers, self.device)
        self.chunks = self.gathered.chunk(group.ranks)
        self.poison()
        self.main = torch.cuda.current_stream(self.device)
        self.side = torch.cuda.Stream(self.device)
        copies = arm == "symmetric_memory"
        self.exchange: Work = self.copy_from_peers if copies else self.gather_by_nccl

    def poison(self) -> None:
        """Nothing is right but this rank's own part."""
        self.product.fill_(math.nan)
        self.gathered.fill_(-1)
        own = self.expected_gathered.chunk(self.group.ranks)[self.group.rank]
        self.chunks[self.group.rank].copy_(own)

    def step(self) -> None:
        """Both at once, and both are done when the next begins."""
        self.side.wait_stream(self.main)
        self.gather()
        for _ in range(PRODUCTS):
            self.multiply()
        self.main.wait_stream(self.side)

    def gather(self) -> None:
        """On the side stream, which waits for NCCL's."""
        with torch.cuda.stream(self.side):
            self.exchange()

    def gather_by_nccl(self) -> None:
        """As torch does it."""
        dist.all_gather_into_tensor(self.gathered, self.chunks[self.group.rank])

    def copy_from_peers(self) -> None:
        """By the driver's copies, which the GPU's copy engines carry out."""
        memory = self.mapping
        memory.barrier(channel=0)  # all have what others copy
        for rank, chunk in enumerate(self.chunks):
            if rank != self.group.rank:
                begin = rank * len(self.chunks[0])
                chunk.copy_(memory.get_buffer(rank, chunk.shape, chunk.dtype, begin))
        memory.barrier(channel=1)  # none overwrites what others still copy

    def multiply(self) -> None:
        """On the main stream."""
        torch.mm(self.left, self.right, out=self.product)

    def wrong_elements(self) -> float:
        """Of both results."""
        torch.cuda.synchronize(self.device)
        return wrong(self.product, self.expected_product) + wrong(
            self.gathered, self.expected_gathered
        )

    def metrics(self) -> dict[str, float]:
        """What a product and a gather take alone, and while the other runs."""
        alone_s = [self.time_of(self.multiply, self.main), self.time_of(self.gather, self.side)]
        slowest_s = torch.tensor(alone_s, device=self.device)
        dist.all_reduce(slowest_s, op=dist.ReduceOp.MAX)  # for the same number of gathers on each
        product_s, gather_s = slowest_s.tolist()
        gathers = repeats_that_outlast(product_s, gather_s)
        products = repeats_that_outlast(gather_s, product_s)
        product_beside_s = self.time_of(self.multiply, self.main, [self.gather] * gathers)
        gather_beside_s = self.time_of(self.gather, self.side, [self.multiply] * products)
        bus_bytes = GATHERED_BYTES * (self.group.ranks - 1) / self.group.ranks
        return {
            "product_alone_s": product_s,
            "product_beside_s": product_beside_s,
            "product_speed_beside": product_s / product_beside_s,
            "gather_alone_s": gather_s,
            "gather_beside_s": gather_beside_s,
            "gather_speed_beside": gather_s / gather_beside_s,
            "gather_bus_bytes": bus_bytes,
            "gather_bus_bytes_per_s": bus_bytes / gather_s,
        }

    def time_of(self, work: Work, stream: torch.cuda.Stream, beside: Sequence[Work] = ()) -> float:
        """Of work on its stream that begins after what it runs beside has begun: the median, in
        seconds."""
        times_s = []
        for _ in range(SAMPLES + 1):
            torch.cuda.synchronize(self.device)
            dist.barrier()
            torch.cuda.synchronize(self.device)
            for other in beside:
                other()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            work()
            end.record(stream)
            torch.cuda.synchronize(self.device)
            times_s.append(begin.elapsed_time(end) / 1e3)
        return float(statistics.median(times_s[1:]))  # the first warms up


def wrong(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Elements that differ; one that is not a number differs, too."""
    return float((found != expected).sum())


def repeats_that_outlast(work_s: float, other_s: float) -> int:
    """How often the other has to run so that it runs all the time, with room for both being slower
    together."""
    return 2 + math.ceil(3 * work_s / other_s)
