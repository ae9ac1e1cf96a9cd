"""batch/dynamic_size: how samples of many lengths are put into batches."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import gc
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as nnf
from gpulift_work import training
from gpulift_work.training import (
    GPT_SIZES,
    Gpt,
    Training,
    arm_on,
    device_of,
    distance,
    exact_model,
    free_memory,
    gradients_of,
    memory_of,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm, Failed, Skip
from torch import nn
from torch.nn.attention.varlen import varlen_attn

TECHNIQUE = {
    "question": "How should samples of many lengths be put into batches?",
    "expectation": """
        Lengths up to 1024 with a mean of a quarter of it: 96 samples, 24.6 thousand tokens. GPT-2
        in BF16 takes 6 ms and 4 us a token of a batch, padding included. Fixed, 8 rows padded to
        the longest of them, which is 0.57 of 1024 in the mean: 44 % of the tokens are real, 12
        batches of 4630 tokens, 24.6 ms each: 295 ms. The search finds some 24 rows in 24 GiB,
        whose longest is 0.69 of 1024: 36 % are real, 4 batches of 17 thousand, 74 ms: 295 ms, so
        that more padding eats what the larger batch gains: 1.0. By a budget of 8192 tokens and
        sorted by length some 93 % are real: 4 batches, 130 ms, 2.3 times as fast. Packed without
        padding: 122 ms, 2.4. Memory follows the largest batch: 5 GB fixed, 8.5 GB by budget and
        packed, 20 GB searched. The toy, 48 samples of 8 tokens in the mean, is bound by calls on
        a host: 12 batches, some 5 by budget: 2.3, and packed, whose attention is one call for
        each sample there, 1.8.
    """,
    "predict": [
        {
            "case": {"model": "gpt2"},
            "step_time_s": {"fixed": [0.2655, 0.3245]},
            "speedup": {"token_budget": [2.07, 2.53], "packed": [2.16, 2.64], "search": [0.9, 1.1]},
        },
        {
            "case": {"model": "gpt_toy"},
            "on": "cpu",
            "speedup": {"token_budget": [2.07, 2.53], "packed": [1.62, 1.98]},
        },
    ],
    "claims": ["dynamic-batch-faster"],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["fixed", "token_budget", "packed", "search"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"]},
    "check": {
        "meaning": "gradient of the mean loss over all tokens against samples one by one, both in "
        "FP32, relative; every sample is seen once",
        "tolerance": 0.01,
    },
}
SAMPLES = {"gpt2": 96, "gpt_toy": 48}
SAFE_ROWS = {"gpt2": 8, "gpt_toy": 4}  # that fit at any length, with room to spare
LENGTHS_SEED = 3  # the same lengths in every launch; of them 44 % are real where rows are padded
FP32_TOLERANCE = 1e-5  # against FP64, of what is all in FP32
MEMORY_BYTES = 24 * 2**30  # that an arm may take: all of them are in memory at the same time
IGNORED = -100  # as cross_entropy has it

Samples = list[torch.Tensor]  # of each its tokens, and one more than it is long
Plan = list[list[int]]  # by batch, the places of its samples


@dataclass(frozen=True)
class Packed:
    """Samples behind one another in one row."""

    tokens: torch.Tensor
    places: torch.Tensor  # of the tokens in their samples
    ends: torch.Tensor  # of the samples, from 0 on
    longest: int


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A pass over all samples in the arm's batches."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    if arm == "search" and gpu is None:
        raise Skip("a processor does not say when its memory is full", "use a GPU")
    searched = search_in_child(name, seed, gpu) if arm == "search" else {}
    device = device_of(gpu)
    threads = set_up(device)
    limit_memory(device)
    epoch = Epoch(arm, name, seed, device, rows=int(searched.get("rows", SAFE_ROWS[name])))

    def error() -> float:
        epoch.require_each_once()
        limit_memory(device, math.inf)  # FP32 takes more
        found = epoch.gradient_error()
        free_memory(device)
        limit_memory(device)
        return found

    in_fp32 = not epoch.training.bf16 and not (arm == "packed" and gpu is not None)

    return arm_on(
        device,
        threads,
        step=epoch.step,
        error=error,
        tolerance=FP32_TOLERANCE if in_fp32 else None,
        metrics=lambda: {**memory_of(epoch.step, device), **epoch.facts(), **searched},
        rest=lambda: free_memory(device),
        items=epoch.real_tokens,
        item="token",
    )


class Epoch:
    """A model that is trained on every sample once, batch by batch."""

    def __init__(self, arm: str, name: str, seed: int, device: torch.device, rows: int) -> None:
        self.training = Training(name, device, seed)
        self.samples = make_samples(name, seed)
        self.lengths = [len(one) - 1 for one in self.samples]
        self.real_tokens = sum(self.lengths)
        tokens = SAFE_ROWS[name] * GPT_SIZES[name].tokens
        self.plan = plan_of(arm, self.lengths, rows, tokens)
        self.collate: Callable[[Samples], tuple[torch.Tensor | Packed, torch.Tensor]] = padded
        if arm == "packed":
            self.collate = packed
            assert isinstance(self.training.model, Gpt)
            self.training.loss_of = PackedLoss(self.training.model)
        self.seen: list[int] = []

    def step(self) -> None:
        """One pass over the samples."""
        self.seen.clear()
        for batch in self.plan:
            self.take(batch)
            self.training.step()

    def take(self, batch: list[int]) -> None:
        """The next step is on these samples."""
        self.seen += batch
        self.training.input, self.training.target = self.collate(
            [self.samples[place].to(self.training.device) for place in batch]
        )

    def require_each_once(self) -> None:
        """Throws Failed where a pass left samples out or saw any twice."""
        if sorted(self.seen) != list(range(len(self.samples))):
            raise Failed("a pass over the samples did not see each of them once")

    def gradient_error(self) -> float:
        """Of a pass without updates: each batch counts by its real tokens. In FP32: what BF16
        rounds off, on an H100 0.04 of this gradient, would hide a sample that counts too much."""
        training = self.training
        expected = self._exact_gradient()
        bf16, training.bf16 = training.bf16, False
        found = torch.zeros(())
        for batch in self.plan:
            self.take(batch)
            training.make_gradients()
            share = sum(self.lengths[place] for place in batch) / self.real_tokens
            found = found.to(training.device) + share * gradients_of(training.model)
        training.bf16 = bf16
        return distance(found, expected)

    def _exact_gradient(self) -> torch.Tensor:
        training = self.training
        exact = exact_model(training)
        for sample, length in zip(self.samples, self.lengths, strict=True):
            row = sample[None].to(training.device)
            loss = exact(row[:, :-1], row[:, 1:]) * (length / self.real_tokens)
            loss.backward()
        return gradients_of(exact)

    def facts(self) -> dict[str, float]:
        """How many batches it took, and what part of their tokens is real."""
        longest = [max(self.lengths[place] for place in batch) for batch in self.plan]
        padded_tokens = sum(
            len(batch) * most for batch, most in zip(self.plan, longest, strict=True)
        )
        whole = self.real_tokens if self.collate is packed else padded_tokens
        return {"batches": float(len(self.plan)), "real_share": self.real_tokens / whole}


def make_samples(name: str, seed: int) -> Samples:
    """Many short ones and few long ones: a quarter of the longest in the mean."""
    size = GPT_SIZES[name]
    lengths = random.Random(LENGTHS_SEED)
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(
            size.vocabulary,
            (2 + int(lengths.betavariate(1, 3) * (size.tokens - 1)),),
            generator=generator,
        )
        for _ in range(SAMPLES[name])
    ]


def plan_of(arm: str, lengths: list[int], rows: int, tokens: int) -> Plan:
    """So many rows in a batch, or as many samples as so many tokens hold."""
    order = list(range(len(lengths)))
    if arm in ("fixed", "search"):
        return [order[start : start + rows] for start in range(0, len(order), rows)]
    is_padded = arm == "token_budget"
    if is_padded:
        order.sort(key=lambda place: lengths[place])  # the last of a batch is its longest
    plan: Plan = []
    for place in order:
        batch = [*plan[-1], place] if plan else []
        held = [lengths[one] for one in batch]
        if not batch or (len(held) * held[-1] if is_padded else sum(held)) > tokens:
            plan.append([place])
        else:
            plan[-1] = batch
    return plan


def padded(samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as long as the longest; nothing is asked of what fills the others."""
    given, target = (
        nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=filler)
        for parts, filler in (
            ([one[:-1] for one in samples], 0),
            ([one[1:] for one in samples], IGNORED),
        )
    )
    return given, target


def packed(samples: Samples) -> tuple[Packed, torch.Tensor]:
    """One row of all tokens."""
    device = samples[0].device
    lengths = torch.tensor([len(one) - 1 for one in samples])
    given = Packed(
        tokens=torch.cat([one[:-1] for one in samples]),
        places=torch.cat([torch.arange(int(one)) for one in lengths]).to(device),
        ends=nnf.pad(lengths.cumsum(0), (1, 0)).to(device, torch.int32),
        longest=int(lengths.max()),
    )
    return given, torch.cat([one[1:] for one in samples])


class PackedLoss(nn.Module):
    """A GPT with its mean loss, on samples without padding: none attends to another."""

    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Packed, target: torch.Tensor) -> torch.Tensor:
        kernel = in_one_call if given.tokens.is_cuda else one_by_one

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return kernel(query, key, value, given)

        state = self.model.hidden(given.tokens, given.places, attend)
        return nnf.cross_entropy(nnf.linear(state, self.model.output_weight).float(), target)


def in_one_call(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, given: Packed
) -> torch.Tensor:
    """The flash kernel for rows of many lengths, which takes 16 bits; a window of nothing ahead is
    causal."""
    found = varlen_attn(
        query.to(torch.bfloat16),
        key.to(torch.bfloat16),
        value.to(torch.bfloat16),
        given.ends,
        given.ends,
        given.longest,
        given.longest,
        window_size=(-1, 0),
    )
    assert isinstance(found, torch.Tensor)
    return found.to(query.dtype)


def one_by_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, given: Packed
) -> torch.Tensor:
    """A call for each sample, where there is no such kernel."""
    lengths = given.ends.diff().tolist()
    samples = zip(*(one.split(lengths) for one in (query, key, value)), strict=True)
    return torch.cat(
        [training.causal_attention(*(one[None] for one in parts))[0] for parts in samples]
    )


def limit_memory(device: torch.device, most_bytes: float = MEMORY_BYTES) -> None:
    """Beyond it a GPU's memory counts as full."""
    if device.type == "cuda":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, most_bytes / total_bytes), device)


def search_in_child(name: str, seed: int, gpu: int | None) -> dict[str, float]:
    """What the search finds, in a process of its own: the arm's is free of what failed steps
    leave."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), name, str(seed), str(gpu)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(f"the search ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def search(name: str, seed: int, gpu: int) -> dict[str, float]:
    """The most rows of the greatest length that a step on this GPU can have."""
    device = device_of(gpu)
    set_up(device)
    limit_memory(device)

    def fits(rows: int) -> bool:
        try:
            with device:  # whose first weights, which count for nothing, a GPU makes sooner
                take_steps(Training(name, device, seed, batch=rows))
        except torch.cuda.OutOfMemoryError:
            failed = True
        else:
            failed = False
        gc.collect()
        free_memory(device)
        return not failed

    return largest(fits, SAFE_ROWS[name])


def take_steps(training: Training) -> None:
    """Two, since the first has no moments yet."""
    for _ in range(2):
        training.step()
    training.synchronize()


def largest(fits: Callable[[int], bool], rows: int) -> dict[str, float]:
    """Doubles from a number that fits until one does not, and halves the gap between them until
    it is an eighth."""
    failures, too_many = 0, None
    while too_many is None or too_many - rows > max(1, rows // 8):
        tried = 2 * rows if too_many is None else (rows + too_many) // 2
        if fits(tried):
            rows = tried
        else:
            failures, too_many = failures + 1, tried
    return {"rows": float(rows), "search_failures": float(failures)}


if __name__ == "__main__":
    print(json.dumps(search(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
