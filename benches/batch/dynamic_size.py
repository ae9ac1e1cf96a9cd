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
from gpulift_work import documents
from gpulift_work.llama import Attend
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

TECHNIQUE = {
    "question": "How should samples of many lengths be put into batches?",
    "expectation": """
        Lengths up to 1024 with a mean of a quarter of it: 96 samples, 24.6 thousand tokens, of
        which all arms make one update: they learn the same, and differ in how many batches its
        gradient is summed over. Of GPT-2 in BF16 a batch takes 5 ms and 4 us a token, padding
        included. Fixed, 8 rows padded to the longest of them, which is 0.57 of 1024 in the mean:
        44 % of the tokens are real, 12 batches of 4630 tokens, 23.5 ms each: 283 ms. The search
        finds some 24 rows in 24 GiB, whose longest is 0.69 of 1024: 36 % are real, 4 batches of 17
        thousand, 73 ms: 292 ms, so that more padding eats what the larger batch gains: 0.97. By a
        budget of 8192 tokens and sorted by length some 93 % are real: 4 batches, 127 ms, 2.2 times
        as fast. Packed without padding: 120 ms, 2.35. Memory follows the largest batch: 5 GB
        fixed, 8.5 GB by budget and packed, 20 GB searched. The toy, 48 samples of 8 tokens in the
        mean, is bound by calls on a host: 12 batches, some 5 by budget and packed: 2.2.
    """,
    "predict": [
        "model:gpt2: fixed 255-311 ms, token_budget 2.0-2.4, packed 2.1-2.6, search 0.87-1.07",
        "model:gpt_toy @cpu: token_budget 2.0-2.4, packed 1.9-2.4",
    ],
    "claims": ["dynamic-batch-faster"],
    "whole_steps": True,
    "arms": ["fixed", "token_budget", "packed", "search"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"]},
    "check": {
        "meaning": "gradient of the update against that of samples one by one, both in FP32, "
        "relative; every sample is seen once",
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
    attend: Attend  # within each sample


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """An update by all samples in the arm's batches."""
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
    """A model and the samples that an update of it sees once, batch by batch."""

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
        """One update."""
        self.make_gradients()
        self.training.update()

    def make_gradients(self) -> None:
        """Of the mean loss over all tokens: each batch counts by those of it that are real."""
        self.seen.clear()
        self.training.optimizer.zero_grad(set_to_none=True)
        for batch in self.plan:
            self.take(batch)
            share = sum(self.lengths[place] for place in batch) / self.real_tokens
            (share * self.training.make_loss()).backward()

    def take(self, batch: list[int]) -> None:
        """The next loss is of these samples."""
        self.seen += batch
        self.training.input, self.training.target = self.collate(
            [self.samples[place].to(self.training.device) for place in batch]
        )

    def require_each_once(self) -> None:
        """Throws Failed where the last update left samples out or saw any twice."""
        if sorted(self.seen) != list(range(len(self.samples))):
            raise Failed("an update did not see each sample once")

    def gradient_error(self) -> float:
        """In FP32: what BF16 rounds off, on an H100 0.04 of this gradient, would hide a sample that
        counts too much."""
        training = self.training
        expected = self._exact_gradient()
        bf16, training.bf16 = training.bf16, False
        self.make_gradients()
        training.bf16 = bf16
        return distance(gradients_of(training.model), expected)

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
    lengths = [len(sample) - 1 for sample in samples]
    given = Packed(
        tokens=documents.packed([sample[:-1] for sample in samples]),
        places=torch.cat([torch.arange(length) for length in lengths]).to(device),
        attend=attention_within(lengths, device),
    )
    return given, torch.cat([sample[1:] for sample in samples])


def attention_within(lengths: list[int], device: torch.device) -> Attend:
    """The flash kernel for rows of many lengths, which takes 16 bits; a host has a mask."""
    if device.type != "cuda":
        return documents.dense_mask(lengths, device)
    kernel = documents.variable_length(lengths, device)
    return lambda *parts: kernel(*(part.to(torch.bfloat16) for part in parts)).to(parts[0].dtype)


class PackedLoss(nn.Module):
    """A GPT with its mean loss, on samples without padding: none attends to another."""

    def __init__(self, model: Gpt) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: Packed, target: torch.Tensor) -> torch.Tensor:
        state = self.model.hidden(given.tokens, given.places, given.attend)[0]
        return nnf.cross_entropy(nnf.linear(state, self.model.output_weight).float(), target)


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
    """Two, since the first has neither moments nor gradients of a batch before it."""
    for _ in range(2):
        training.make_loss().backward()
        training.update()
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
