"""distributed/straggler: what one slow rank costs all, and whether it can be named."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from gpulift_work.distributed import Group, Replica, arm_of, join, measured_on, time_of
from gpulift_work.training import free_memory
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What does it cost all ranks when one of them is slower, and do the ranks' own "
    "times name it?",
    "expectation": """
        Ranks meet in the all-reduce, so that a step takes as long as the slowest rank's. GPT-2, 8 x
        1024 tokens a rank, 27 ms on an H100, and 28 with an exchange over NVLink that the backward
        pass hides. The last rank multiplies matrices for 2, 5 or 20 % of such a step besides, a
        third ahead of its forward pass and the rest ahead of its backward pass: 0.98, 0.95, 0.83.
        Through the host 498 MB take 19 ms, more than the backward pass has left after the first
        bucket, and a step 34: what is late by 0.5 ms is so all the same: 0.985, 0.96, 0.86. A
        loader that keeps the host of one rank busy for 20 % of the step: 1.0 where the host needs
        less than 21 of the 27 ms, and is ahead of the GPU; on processors, where nothing is ahead,
        0.83. Whole steps name nobody: all take the same. Nor does a rank's time from the begin of a
        step to its last gradient: kernels of NCCL that wait for the late rank hold multiprocessors,
        so that backward passes of the others are slow, too. Two times have no exchange in them.
        Steps without one (no_sync), in turns with others: the last rank's is 1.02, 1.05, 1.20 of
        the others'. And the forward pass of ordinary steps, which costs two marks in the queue: it
        has a third of the work and of what is added: likewise. Equal cards differ by 0.5 to 1 %:
        2 % is named, if barely. A loader is not, where the host is ahead.
    """,
    "predict": [
        "link:nvlink @h100: even 25-31 ms, one_slower_2_percent 0.965-0.995,"
        " one_slower_5_percent 0.935-0.97, one_slower_20_percent 0.8-0.87,"
        " loader_on_one 0.85-1.03",
        "link:host @h100: one_slower_2_percent 0.965-1.01, one_slower_5_percent 0.94-0.99,"
        " one_slower_20_percent 0.81-0.93, loader_on_one 0.85-1.03",
        "link:gloo: loader_on_one 0.747-0.913",
    ],
    "found": """
        Two H200s on a host that needs 36 ms to issue a step of 26, one launch: what a rank is late
        by hides beneath that: 1.01 and 1.01 with 2 and 5 %, 0.95 with 20 %, a loader 0.93. Steps
        without an exchange name the rank where it is 2 % late, 1.022 of the others' median, and 20
        %, 1.16, but not with 5 %, 1.003, when both were slowed by the host; forward passes, 1.6 of
        the median where nobody is late, name nobody while the host is behind the GPU.
        Of earlier steps, which GPT-2 with 50257 words took: times from a step's begin to a rank's
        last gradient do not name a rank that is 5 % slower, 47.7 ms beside 48.0. So they are no
        longer taken.
    """,
    "whole_steps": True,
    "spans_hosts": True,
    "arms": [
        "even",
        "one_slower_2_percent",
        "one_slower_5_percent",
        "one_slower_20_percent",
        "loader_on_one",
    ],
    "l2": "cold",
    "page_cache": "none",
    "ranks": "ranks",
    "sweep": {"ranks": [2, 4, 8], "link": ["nvlink", "host", "gloo"]},
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, relative; ranks "
        "hold the same bits",
        "tolerance": 1e-5,
    },
}
MODELS = {"nvlink": "gpt2", "host": "gpt2", "fabric": "gpt2", "gloo": "gpt_toy"}
SHARES = {  # of a plain step, that the last rank works or loads besides
    "one_slower_2_percent": 0.02,
    "one_slower_5_percent": 0.05,
    "one_slower_20_percent": 0.2,
    "loader_on_one": 0.2,
}
FORWARD_SHARE = 1 / 3  # of a step's work
WATCHED_STEPS = 20
SIDES = {"cuda": 2048, "cpu": 64}  # of a product, which takes some 30 us
TIMED_PRODUCTS = 200


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank, of which the last may be late."""
    link = str(point["link"])
    group = join(link, gpu)
    plain_s = plain_step_s(MODELS[link], group, seed)
    replica = Replica(MODELS[link], group, seed)
    replica.wrap(gradient_as_bucket_view=True)
    if arm in SHARES and group.rank == group.ranks - 1:
        delay = load_on_host if arm == "loader_on_one" else slow_down
        delay(replica, SHARES[arm] * plain_s)
    made = arm_of(replica)

    def metrics() -> dict[str, float]:
        found = made.metrics()
        forward_s = statistics.median(forward_times(replica))
        return {
            **found,
            **slowest_of(of_all_ranks(found["step_without_exchange_s"], group)),
            **slowest_of(of_all_ranks(forward_s, group), "forward_"),
        }

    return replace(made, metrics=metrics)


def plain_step_s(name: str, group: Group, seed: int) -> float:
    """What a step takes of a replica that exchanges nothing, and is not used again, since its
    weights part from the others': the same number on all ranks."""
    replica = Replica(name, group, seed)
    own_s = time_of(replica.step, replica)
    del replica
    free_memory(group.device)
    return max(of_all_ranks(own_s, group))


def of_all_ranks(number: float, group: Group) -> list[float]:
    """Each rank's, in their order."""
    numbers = torch.zeros(group.ranks, dtype=torch.float64, device=group.device)
    numbers[group.rank] = number
    dist.all_reduce(numbers)
    return [float(one) for one in numbers]


def slow_down(replica: Replica, seconds: float) -> None:
    """Products for so long in each step, ahead of its forward and of its backward pass."""
    multiply = products_on(replica.device)
    count = round(seconds * TIMED_PRODUCTS / time_of_products(multiply, replica.device))
    forward = round(FORWARD_SHARE * count)

    def ahead_of_backward(_: Any, __: Any, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: multiply(count - forward))

    replica.model.register_forward_pre_hook(lambda *_: multiply(forward))
    replica.model.register_forward_hook(ahead_of_backward)


def products_on(device: torch.device) -> Callable[[int], None]:
    """So many products of matrices on this device."""
    side = SIDES[device.type]
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    left, right = torch.randn((2, side, side), device=device, dtype=kind)
    product = torch.empty_like(left)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(left, right, out=product)

    return multiply


def time_of_products(multiply: Callable[[int], None], device: torch.device) -> float:
    """Of TIMED_PRODUCTS in a row, once the clocks are up, in seconds."""
    multiply(TIMED_PRODUCTS)
    time_s = measured_on(device)
    multiply(TIMED_PRODUCTS)
    return time_s()


def load_on_host(replica: Replica, seconds: float) -> None:
    """A batch made on the thread that trains, in each step."""
    replica.model.register_forward_pre_hook(lambda *_: keep_busy(seconds))


def keep_busy(seconds: float) -> None:
    """This thread, and nothing else."""
    until_s = monotonic() + seconds
    while monotonic() < until_s:
        pass


def forward_times(replica: Replica) -> list[float]:
    """Of the forward passes of some steps in a row, in which this rank waits for no other, in
    seconds."""
    marks: list[Any] = []

    def note(*_: Any) -> None:
        marks.append(now(replica))

    hooks = [
        replica.model.register_forward_pre_hook(note, prepend=True),
        replica.model.register_forward_hook(note),
    ]
    for _ in range(WATCHED_STEPS):
        replica.step()
    replica.synchronize()
    for hook in hooks:
        hook.remove()
    return [between(begin, end) for begin, end in zip(marks[::2], marks[1::2], strict=True)]


def now(replica: Replica) -> Any:
    """A place in the queue of a GPU, or a time."""
    return replica.mark() if replica.device.type == "cuda" else monotonic()


def between(begin: Any, end: Any) -> float:
    """In seconds."""
    return float(end - begin if isinstance(begin, float) else begin.elapsed_time(end) / 1e3)


def slowest_of(times_s: Sequence[float], prefix: str = "") -> dict[str, float]:
    """Who is the slowest by the ranks' own times, by how much, and how the last one stands."""
    found = {
        "slowest_rank": float(max(range(len(times_s)), key=lambda rank: times_s[rank])),
        "slowest_over_median": max(times_s) / statistics.median_low(times_s),  # of two the faster
        "last_over_others": times_s[-1] / statistics.median(times_s[:-1]),
        "slowest_own_s": max(times_s),
        "fastest_own_s": min(times_s),
    }
    return {f"{prefix}{name}": number for name, number in found.items()}
