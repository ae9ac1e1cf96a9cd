"""distributed/nccl_settings: what NCCL takes for an all-reduce, and what it could take."""

from __future__ import annotations

import atexit
from collections.abc import Mapping

import torch
import torch.distributed as dist
from gpulift_work.distributed import Group, join, library_versions, time_of
from gpulift_work.nccl import (
    choice_in,
    log_choices,
    mapped_empty,
    require_peer_memory,
    require_settings,
)
from gpulift_work.parallel import OnDevice, bus_bytes
from gpulift_work.training import mark_on
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "Which of NCCL's protocols, algorithms, numbers of channels and registered buffers "
    "exchange faster than what it takes by itself, at which size?",
    "expectation": """
        All-reduces in place of two ranks, as many in a row as make 1 GiB, 16 to 64, in one CUDA
        graph: launched one by one from Python each takes some 20 us of the host, more than 64 KiB
        take the link; eager_call_s says it. NCCL's own model of two H100 (src/graph/tuning.cc of
        2.28): protocol LL sends a flag with every 4 bytes, 7.8 us and at most 141 GB/s; LL128 120
        of 128 bytes, 17.8 us and 0.92 of the link; Simple 15.2 us and all of it, 330 GB/s. So it
        takes LL for 64 KiB and 1 MiB, Simple from 16 MiB on, and a ring at every size: a ring of
        two has two steps, a tree of two goes up and down and has 0.9 of its bandwidth or less.
        64 KiB: Simple 0.55, LL128 0.5 to 1. 16 MiB: LL 67 of 127 us: 0.55. 256 MiB: LL 0.43. A
        channel moves 14 GB/s (distributed/comm_sms): 8 of them 0.4 at 256 MiB, and as fast as any
        at 64 KiB, for which NCCL takes few; 32 for 16 to 24 change little. Registered: all_reduce
        of torch is in place, where rings and trees copy through NCCL's buffers all the same; but
        buffers that all ranks map it adds up by other kernels, without these: 4.5 us less at 64
        KiB, 1.5, and 1.0 to 1.1 at 256 MiB. Through the host, 26 GB/s, channels do not matter from
        8 on, LL has half of the link; LL128 NCCL trusts NVLink alone with, and no rank maps the
        other's memory: both are skipped. NVLink's own sums (NVLS) are no arm.
    """,
    "predict": [
        "link:nvlink/bytes:65536 @h100: default 450-1300 us, ll 0.93-1.07, ll128 0.5-1.1,"
        " simple 0.45-0.8, tree 0.8-1.1, channels_8 0.85-1.1, channels_32 0.9-1.1, mapped 1.2-2.0",
        "link:nvlink/bytes:1048576 @h100: ll 0.9-1.1, ll128 0.7-1.4, simple 0.6-1.05,"
        " tree 0.7-1.1, channels_8 0.7-1.1, mapped 1.1-2.0",
        "link:nvlink/bytes:16777216 @h100: ll 0.4-0.65, ll128 0.85-1.1, simple 0.95-1.05,"
        " tree 0.6-1.0, channels_8 0.35-0.7, mapped 0.95-1.3",
        "link:nvlink/bytes:16777216 @h200: ll 0.59-0.68, ll128 0.89-0.97, simple 1.02-1.1,"
        " tree 0.82-0.9, channels_8 0.67-0.76, channels_32 0.99-1.07, mapped 1.09-1.19",
        "link:nvlink/bytes:268435456 @h100: default 11.6-14.8 ms, ll 0.33-0.5, ll128 0.85-1.0,"
        " simple 0.97-1.03, tree 0.55-0.95, channels_8 0.3-0.55, channels_32 0.95-1.1,"
        " mapped 0.9-1.15",
        "link:host/bytes:65536 @h100: ll 0.9-1.1, simple 0.4-0.9, tree 0.7-1.1",
        "link:host/bytes:268435456 @h100: default 148-184 ms, ll 0.4-0.65, simple 0.97-1.03,"
        " tree 0.6-1.0, channels_8 0.9-1.1, channels_32 0.85-1.1",
    ],
    "found": """
        16 MiB, one launch on two H100. Over NVLink as predicted: LL 0.63, LL128 0.93, Simple 1.06,
        trees 0.86, 8 channels 0.72, mapped 1.14. Through the host the default, a ring of Simple,
        moves 26 GB/s, and trees are 1.09, 8 and 32 channels 1.11 as fast; LL has 0.36.
    """,
    "arms": ["default", "ll", "ll128", "simple", "tree", "channels_8", "channels_32", "mapped"],
    "l2": "by_size",
    "page_cache": "none",
    "ranks": 2,
    "environment": {
        "ll": {"NCCL_PROTO": "LL"},
        "ll128": {"NCCL_PROTO": "LL128"},
        "simple": {"NCCL_PROTO": "Simple"},
        "tree": {"NCCL_ALGO": "allreduce:tree"},  # gathers have no tree
        "channels_8": {"NCCL_MIN_CTAS": "8", "NCCL_MAX_CTAS": "8"},
        "channels_32": {"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "32"},
    },
    "sweep": {"link": ["nvlink", "host"], "bytes": [65536, 1048576, 16777216, 268435456]},
    "check": {"meaning": "elements that differ from the sum", "tolerance": 0},
}
STEP_BYTES = 1 << 30
FEWEST_CALLS, MOST_CALLS = 16, 64  # each doubles its sum, which 2 to the 127th is too large for
OF_MAPPED = "AllReduce_"  # as NCCL names them


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The same calls for all. What differs is in the environment, which NCCL reads."""
    require_settings(arm, TECHNIQUE["environment"])  # type: ignore[arg-type]
    link, message_bytes = str(point["link"]), int(point["bytes"])
    if arm == "mapped":
        require_peer_memory(link)
    if arm == "ll128" and link == "host":
        raise Skip("LL128 needs stores of 128 bytes that stay whole", "take the case link:nvlink")
    log = log_choices()
    group = join(link, gpu)
    sums = Sums(group, seed, message_bytes, mapped=arm == "mapped")
    choice = choice_in(log, "AllReduce")
    if arm == "mapped" and group.rank == 0 and not choice.startswith(OF_MAPPED):
        raise Skip(
            f"NCCL takes no kernels for mapped memory: {choice}", "install NCCL 2.27 or later"
        )
    return Arm(
        step=sums.graph.replay,
        error=sums.wrong_elements,
        synchronize=sums.synchronize,
        mark=lambda: mark_on(group.device),
        notes={f"all_reduce_{arm}": choice},
        versions=library_versions(on_gpu=True),
        metrics=lambda: {"eager_call_s": time_of(sums.exchange, sums)},
        bytes=sums.calls * bus_bytes(message_bytes, group),
        items=sums.calls,
        item="call",
        roof="gpu_link" if link == "nvlink" else "gpu_link/host",
    )


class Sums(OnDevice):
    """A buffer that ranks fill and then add up in place, several times in a row."""

    def __init__(self, group: Group, seed: int, message_bytes: int, *, mapped: bool) -> None:
        super().__init__(group)
        self.calls = calls_of(message_bytes)
        numbers = message_bytes // 4
        generator = torch.Generator(self.device).manual_seed(seed)
        values = torch.randn((group.ranks, numbers), generator=generator, device=self.device)
        self.own = values[group.rank].clone()
        # Each call after the first adds equal numbers, which is exact.
        self.expected = values.sum(0) * float(group.ranks) ** (self.calls - 1)
        if mapped:
            self.buffer, self.pool = mapped_empty(numbers, torch.float32, self.device)
        else:
            self.buffer = torch.empty_like(self.own)
        self.exchange()  # connects: a graph cannot
        self.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        atexit.register(self.graph.reset)  # or NCCL waits for the graph's end before it ends
        # The thread of torch that watches NCCL asks for events meanwhile.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.buffer.copy_(self.own)
            for _ in range(self.calls):
                self.exchange()

    def exchange(self) -> None:
        """One call."""
        dist.all_reduce(self.buffer)

    def wrong_elements(self) -> float:
        """After a step; one that is not a number differs, too."""
        return float((self.buffer != self.expected).sum())


def calls_of(message_bytes: int) -> int:
    """In a step: so many that a launch is nothing beside them."""
    return max(FEWEST_CALLS, min(MOST_CALLS, STEP_BYTES // message_bytes))
