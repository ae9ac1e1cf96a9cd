"""memory/preallocation: the allocator's pool, warmed up by the longest batch or left to grow."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from time import monotonic

import numpy as np
import torch
from gpulift_work.training import GPT_SIZES, Training, arm_on, device_of, free_memory, set_up
from gpulift_worker import Arm, Failed

TECHNIQUE = {
    "question": "What does a step at the largest length first, or a pool that can grow, save where "
    "lengths vary?",
    "expectation": """
        GPT-2, 8 rows of 1 to 1024 tokens, BF16, on an H100; a step is a round of 12 batches from
        an empty cache. Its longest batch needs 6 GB of activations, in some 200 segments;
        cudaMalloc takes 20 to 56 us, so the pool grows within 10 ms, and a round takes 12 x 22 ms
        = 270 ms: by time alone every arm is within 4 %. What differs is p95: a batch that is
        longer than all before asks the driver 10 to 60 times, 1 to 3 ms in 30, and after the
        longest none does. Reserved over allocated: 1.15 to 1.4 where the pool grew in the order
        of the lengths, 1.1 to 1.2 after the longest, under 1.1 with expandable segments. Tight,
        at 1.25 times what the longest batch needs, the first pool fills: some retries in a round,
        each of which waits for the GPU and gives all free segments back, 20 ms: 0.95 of the speed
        of the other two, and p95 twice theirs.
    """,
    "predict": [
        "memory:ample @h100: none 243-297 ms, longest_first 0.96-1.04,"
        " expandable_segments 0.96-1.04",
        "memory:tight @h100: longest_first 0.945-1.155, expandable_segments 0.945-1.155",
    ],
    "claims": ["preallocation-less-fragmentation"],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["none", "longest_first", "expandable_segments"],
    "l2": "cold",
    "page_cache": "none",
    "sweep": {"memory": ["ample", "tight"]},
    "check": {
        "meaning": "mean loss of the second round, relative to the first arm's",
        "tolerance": 0.01,
    },
    # Torch takes the one name or the other: with both, the user's own settings do not get through.
    "environment": {
        "none": {
            "PYTORCH_ALLOC_CONF": "expandable_segments:False",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
        },
        "longest_first": {
            "PYTORCH_ALLOC_CONF": "expandable_segments:False",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
        },
        "expandable_segments": {
            "PYTORCH_ALLOC_CONF": "expandable_segments:True",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
    },
}
MODEL = "gpt2"
BATCHES = 12  # of a round
LENGTHS_SEED = 6  # of which 3 are longer than all before, as is usual
TIMED_ROUNDS = 5  # 60 batches: the slowest 3 are beyond the 95th percentile
TIGHT = 1.25  # times what the longest batch needs


class Round:
    """Training on batches whose lengths vary, the same ones in every round."""

    def __init__(self, training: Training, longest: int) -> None:
        self.training = training
        self.whole = training.input, training.target
        self.lengths = lengths_of_round(longest)

    def step(self) -> None:
        """All batches, one after the other."""
        self.steps()

    def steps(self, after: Callable[[], object] = lambda: None) -> None:
        """All batches, each followed by a call."""
        for length in self.lengths:
            self.take(length)
            self.training.step()
            after()

    def take(self, length: int) -> None:
        """The next step is on so many tokens of each row."""
        self.training.input, self.training.target = (one[:, :length] for one in self.whole)

    def warm_up(self) -> None:
        """Forward and backward at the largest length; no weight changes."""
        self.take(self.whole[0].shape[1])
        self.training.make_gradients()
        self.forget()

    def forget(self) -> None:
        """Leaves weights and moments alone."""
        self.training.optimizer.zero_grad(set_to_none=True)
        self.training.loss = None
        self.training.synchronize()

    def value(self) -> float:
        """The mean loss of one more round: arms that took the same steps have the same."""
        self.steps(self.training.record)
        return float(np.mean(self.training.losses))


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Rounds from an empty cache, which one arm fills at once."""
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(MODEL, device, seed)
    batches = Round(training, GPT_SIZES[MODEL].tokens)
    training.step()  # an optimizer has no moments before its first step
    free_memory(device)
    batches.warm_up()
    require_segments(expandable=arm == "expandable_segments")
    needed_bytes = torch.cuda.max_memory_allocated(device)
    if point["memory"] == "tight":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(TIGHT * needed_bytes / total_bytes, device)

    def before() -> None:
        batches.forget()
        free_memory(device)
        if arm == "longest_first":
            batches.warm_up()

    return arm_on(
        device,
        threads,
        step=batches.step,
        before=before,
        rest=lambda: free_memory(device),  # the pools of all arms together may be too much
        value=batches.value,
        metrics=lambda: facts_of_rounds(batches, before, device),
        items=len(training.input) * sum(batches.lengths),
        item="token",
    )


def lengths_of_round(longest: int) -> list[int]:
    """Any from 1 on, each as likely; the same in every launch."""
    generator = random.Random(LENGTHS_SEED)
    return [generator.randint(1, longest) for _ in range(BATCHES)]


def require_segments(*, expandable: bool) -> None:
    """Throws Failed where torch's pool is not of the arm's kind."""
    if any(one["is_expandable"] != expandable for one in torch.cuda.memory_snapshot()):
        raise Failed("torch did not take the arm's setting of expandable_segments")


def facts_of_rounds(
    batches: Round, before: Callable[[], None], device: torch.device
) -> dict[str, float]:
    """Of rounds from an empty cache: times of single batches, what the pool holds beyond what is
    used, and how often the driver was asked."""
    times_s: list[float] = []
    shares, retries, calls = [], 0, 0
    for _ in range(TIMED_ROUNDS):
        before()
        start = torch.cuda.memory_stats(device)
        torch.cuda.reset_peak_memory_stats(device)
        times_s += times_of_batches(batches)
        end = torch.cuda.memory_stats(device)
        shares.append(end["reserved_bytes.all.peak"] / end["allocated_bytes.all.peak"])
        retries += end["num_alloc_retries"] - start["num_alloc_retries"]
        calls += end["num_device_alloc"] - start["num_device_alloc"]
    return {
        "reserved_over_allocated": float(np.mean(shares)),
        "alloc_retries": retries / TIMED_ROUNDS,
        "driver_allocations": calls / TIMED_ROUNDS,
        "p50_step_s": float(np.percentile(times_s, 50)),
        "p95_step_s": float(np.percentile(times_s, 95)),
        "peak_allocated_bytes": float(end["allocated_bytes.all.peak"]),
        "peak_reserved_bytes": float(end["reserved_bytes.all.peak"]),
    }


def times_of_batches(batches: Round) -> list[float]:
    """Each until the device is done."""
    times_s = []
    start_s = monotonic()

    def note() -> None:
        nonlocal start_s
        batches.training.synchronize()
        times_s.append(monotonic() - start_s)
        start_s = monotonic()

    batches.steps(note)
    return times_s
