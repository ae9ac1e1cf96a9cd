"""optimizer/muon: how fast a GPT learns with Muon for its matrices, and what a step costs."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import torch
from gpulift_work import courses
from gpulift_work.chains import Chain
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    free_memory,
    memory_of_step,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "In how many steps, and in what time, does a GPT reach a loss with Muon in place "
    "of AdamW?",
    "expectation": """
        GPT-2, 8 x 1024 tokens, BF16 on an H100. Muon makes each matrix of a block orthogonal by 5
        rounds of three products: 12 layers x 5 x 25 GFLOP = 1.5 TFLOP, 3 ms, and 48 x 23 launches
        that hide behind 39 ms of the GPU; AdamW has 85 M parameters less, 0.4 ms: 0.93 of the
        speed. Tokens are of a chain whose entropy is 2.36 nats. Published for GPT-2 on text: a
        fifth less time. The chain has nothing but a table of 4096 x 16 to learn, mostly in the
        embedding and the output layer, which AdamW trains in both arms: 1.1 to 1.3 times fewer
        steps. The toy on a host: 28 calls more a matrix for 8 of them, 0.7 of the speed.
    """,
    "predict": [
        {
            "case": {"model": "gpt2"},
            "on": "h100",
            "step_time_s": {"adamw": [0.0351, 0.0429]},
            "speedup": {"muon": [0.837, 1.023]},
        },
        {"case": {"model": "gpt_toy"}, "on": "cpu", "speedup": {"muon": [0.63, 0.77]}},
    ],
    "found": (
        "The toy has 0.16 on a host: Muon adds 58 to 67 ms to 10 to 13, some 8 ms a matrix. "
        "torch's Muon multiplies in BF16, for which that processor, with AVX2 alone, has no "
        "instructions: inferred, not traced."
    ),
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["adamw", "muon"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"]},
    "check": {
        "meaning": "held-out loss after all steps, mean of 3 seeds, over that of guessing",
        "tolerance": 0.99,
    },
}
WORDS = {"gpt2": 4096, "gpt_toy": 64}
STEPS = {"gpt2": 250, "gpt_toy": 150}
RATES = {"gpt2": 1e-3, "gpt_toy": 1e-2}  # of both arms: Muon's steps are as long as AdamW's
ABOVE_ENTROPY = 0.5  # nats of the target
HELD_OUT_BATCHES = 4
SEEDS = 3


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Training steps; the check trains models from their beginning."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    chain = Chain(WORDS[name], seed, device)
    training = training_of(arm, name, device, seed)
    taken: list[courses.Course] = []

    def error() -> float:
        def course(number: int, rate: float) -> courses.Course:
            return train(training_of(arm, name, device, number), chain, rate, number)

        taken.extend(courses.best_courses(RATES[name], range(seed, seed + SEEDS), course))
        free_memory(device)
        return courses.mean_loss(taken) / math.log(chain.words)

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        metrics=lambda: {
            **memory_of_step(training),
            **courses.facts_of(taken, chain.entropy + ABOVE_ENTROPY, "steps"),
            "entropy": chain.entropy,
        },
        items=tokens_of_step(name),
        item="token",
    )


def training_of(arm: str, name: str, device: torch.device, seed: int) -> Training:
    """With the arm's optimizer."""
    training = Training(name, device, seed)
    if arm == "muon":
        training.optimizer = Mixed(training)
    return training


class Mixed(torch.optim.Optimizer):
    """Muon for the matrices of blocks, AdamW for all else, with a common rate."""

    def __init__(self, training: Training) -> None:
        if not hasattr(torch.optim, "Muon"):
            raise Skip("torch has no Muon", "install torch 2.9 or later")
        super().__init__(training.model.parameters(), {})
        (group,) = training.optimizer.param_groups
        matrices = [one for one in training.model.h.parameters() if one.dim() == 2]
        known = {id(one) for one in matrices}
        group["params"] = [one for one in group["params"] if id(one) not in known]
        self.parts = (
            training.optimizer,
            torch.optim.Muon(
                matrices,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                adjust_lr_fn="match_rms_adamw",
            ),
        )
        self.param_groups = [each for part in self.parts for each in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of all weights."""
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:
        """Of all weights."""
        for part in self.parts:
            part.step()


def train(training: Training, chain: Chain, rate: float, seed: int) -> courses.Course:
    """On new tokens in each step."""
    given = batches(training, chain, seed)
    held_out = list(itertools.islice(batches(training, chain, 2**40), HELD_OUT_BATCHES))

    def step() -> None:
        training.input, training.target = next(given)
        training.step()

    def look() -> float:
        with (
            torch.no_grad(),
            torch.autocast(training.device.type, dtype=torch.bfloat16, enabled=training.bf16),
        ):
            losses = [float(training.loss_of(*one)) for one in held_out]
        return sum(losses) / len(losses)

    steps = STEPS[training.model_name]
    return courses.train(training.optimizer, rate, steps, seen_in_step=1, step=step, look=look)


def batches(
    training: Training, chain: Chain, seed: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and targets of the model's size, without an end."""
    generator = torch.Generator(training.device).manual_seed(seed)
    rows, tokens = training.input.shape
    while True:
        drawn = chain.draw(rows, tokens + 1, generator)
        yield drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
