"""distributed/straggler: what one slow rank costs all, and whether it can be named."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from gpulift_work.distributed import MODELS, Group, Replica, arm_of, join, time_of
from gpulift_work.training import free_memory
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What does it cost all ranks when one of them is slower, and do the ranks' own "
    "times name it?",
    "expectation": "Ranks meet in the all-reduce, so that a step takes as long as the slowest "
    "rank's. GPT-2, 8 x 1024 tokens a rank, 39 ms on an H100; all arms wait 0.15 of that in a "
    "kernel that spins, so that a jitter can go both ways: 45 ms. One rank 5 % slower, 2.2 ms: all "
    "are, 0.95. Jitter of a standard deviation s: the larger of two draws is s / sqrt(pi) = 0.56 s "
    "above the mean, of four 1.03 s, of eight 1.42 s; s is 5 % of the step: 0.97, 0.95, 0.93. A "
    "loader that keeps the host of one rank busy for 20 % of the step: 1.0, since the host needs "
    "some 20 ms for a step that takes the GPU 45, and is ahead of it; on processors, where nothing "
    "is ahead, 0.83. The others see the slow one as communication: exposed_communication_s of rank "
    "0 grows by what the last rank is late. The times from the begin of the step to a rank's own "
    "last gradient leave that out: they name the last at 5 %, 1.05 of the others' and of their "
    "median, of two 1.025 of the median; jitter names nobody: 1.00 to 1.01. By the link nothing "
    "differs but the exchange that is not hidden.",
    "predict": [
        {"case": {"link": "nvlink"}, "on": "h100", "step_time_s": {"even": [0.0405, 0.0495]}},
        {"speedup": {"one_slower_5_percent": [0.855, 1.045]}},
        {"case": {"ranks": 2}, "speedup": {"jitter": [0.873, 1.067]}},
        {"case": {"ranks": 4}, "speedup": {"jitter": [0.855, 1.045]}},
        {"case": {"ranks": 8}, "speedup": {"jitter": [0.837, 1.023]}},
        {"case": {"link": "nvlink"}, "speedup": {"loader_on_one": [0.9, 1.1]}},
        {"case": {"link": "host"}, "speedup": {"loader_on_one": [0.9, 1.1]}},
        {"case": {"link": "gloo"}, "speedup": {"loader_on_one": [0.747, 0.913]}},
    ],
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["even", "one_slower_5_percent", "jitter", "loader_on_one"],
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
BASE_SHARE = 0.15  # of a plain step, which every rank waits
SLOWER_SHARE = 0.05  # of the even step
JITTER_SHARE = 0.05
LOADER_SHARE = 0.2
WATCHED_STEPS = 20
CALIBRATING_CYCLES = 20_000_000

Wait = Callable[[], None]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank, of which the last may be late."""
    link = str(point["link"])
    group = join(link, gpu)
    plain_s = plain_step_s(MODELS[link], group, seed)
    replica = Late(MODELS[link], group, seed)
    replica.wait = WAITS[arm](group, plain_s)
    made = arm_of(replica)

    def metrics() -> dict[str, float]:
        return {**made.metrics(), **named(own_times(replica), group)}

    return replace(made, metrics=metrics)


class Late(Replica):
    """Waits in each step before its own work."""

    def __init__(self, name: str, group: Group, seed: int) -> None:
        super().__init__(name, group, seed)
        self.wrap(gradient_as_bucket_view=True)
        self.wait: Wait = lambda: None

    def step(self) -> None:
        """As a training loop of a slower rank does."""
        self.wait()
        super().step()


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


def spinner(device: torch.device) -> Callable[[float], None]:
    """Keeps the device busy for so many seconds: a GPU by a kernel, a processor by a loop."""
    if device.type == "cpu":
        return keep_busy
    cycles_per_s = CALIBRATING_CYCLES / seconds_of_sleep(device)
    return lambda seconds: torch.cuda._sleep(round(seconds * cycles_per_s))


def seconds_of_sleep(device: torch.device) -> float:
    """Of a kernel that spins for so many cycles, once the clocks are up."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        begin.record()
        torch.cuda._sleep(CALIBRATING_CYCLES)
        end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3


def keep_busy(seconds: float) -> None:
    """This thread, and nothing else."""
    until_s = monotonic() + seconds
    while monotonic() < until_s:
        pass


def is_late(group: Group) -> bool:
    """Whether this is the rank that is slower."""
    return group.rank == group.ranks - 1


def wait_evenly(group: Group, plain_s: float) -> Wait:
    """All ranks the same."""
    spin = spinner(group.device)
    return lambda: spin(BASE_SHARE * plain_s)


def wait_longer(group: Group, plain_s: float) -> Wait:
    """The last rank longer than the others."""
    spin = spinner(group.device)
    share = BASE_SHARE + (SLOWER_SHARE * (1 + BASE_SHARE) if is_late(group) else 0)
    return lambda: spin(share * plain_s)


def wait_by_chance(group: Group, plain_s: float) -> Wait:
    """As long as the others in the mean, by draws of the rank's own."""
    spin = spinner(group.device)
    draws = random.Random(group.rank)  # in every launch the same
    spread = JITTER_SHARE * (1 + BASE_SHARE)
    return lambda: spin(max(0.0, draws.gauss(BASE_SHARE, spread)) * plain_s)


def load_on_host(group: Group, plain_s: float) -> Wait:
    """The last rank makes its batch on the thread that trains."""
    wait = wait_evenly(group, plain_s)
    busy_s = LOADER_SHARE * (1 + BASE_SHARE) * plain_s if is_late(group) else 0.0

    def load_and_wait() -> None:
        keep_busy(busy_s)
        wait()

    return load_and_wait


WAITS: Mapping[str, Callable[[Group, float], Wait]] = {
    "even": wait_evenly,
    "one_slower_5_percent": wait_longer,
    "jitter": wait_by_chance,
    "loader_on_one": load_on_host,
}


def own_times(replica: Late) -> list[float]:
    """From the begin of a step to this rank's last gradient, before it waits for others, of each of
    some steps in a row, in seconds."""
    begins: list[Any] = []
    ends: list[Any] = []
    last: list[Any] = [None]

    def note(_: torch.Tensor) -> None:
        last[0] = now(replica)

    hooks = [one.register_post_accumulate_grad_hook(note) for one in replica.model.parameters()]
    for _ in range(WATCHED_STEPS):
        begins.append(now(replica))
        replica.step()
        ends.append(last[0])
    replica.synchronize()
    for hook in hooks:
        hook.remove()
    return [between(begin, end) for begin, end in zip(begins, ends, strict=True)]


def now(replica: Late) -> Any:
    """A place in the queue of a GPU, or a time."""
    return replica.mark() if replica.device.type == "cuda" else monotonic()


def between(begin: Any, end: Any) -> float:
    """In seconds."""
    return float(end - begin if isinstance(begin, float) else begin.elapsed_time(end) / 1e3)


def named(own_s: Sequence[float], group: Group) -> dict[str, float]:
    """Who is the slowest by its own times, and by how much."""
    return slowest_of(of_all_ranks(statistics.median(own_s), group))


def slowest_of(times_s: Sequence[float]) -> dict[str, float]:
    """Of the times of all ranks."""
    return {
        "slowest_rank": float(max(range(len(times_s)), key=lambda rank: times_s[rank])),
        "slowest_over_median": max(times_s) / statistics.median(times_s),
        "slowest_own_s": max(times_s),
        "fastest_own_s": min(times_s),
    }
