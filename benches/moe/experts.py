"""moe/experts: how the networks of a mixture of experts are multiplied in a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from gpulift_work.experts import Experts, grouped
from gpulift_work.first_steps import FirstSteps
from gpulift_work.losses import LossOfHidden
from gpulift_work.losses import compiled as compiled_loss
from gpulift_work.references import Reference
from gpulift_work.training import (
    compile_layers,
    device_of,
    keep_the_compiler_quiet,
    require_compiler,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm
from torch import nn

TECHNIQUE = {
    "question": "What does it bring a mixture of experts to multiply all of them at once?",
    "expectation": """
        8 networks in each of 8 layers, 2 for each of 8192 tokens: 1.76 G weights, of which a token
        meets 0.55 G, 30 TFLOP. H100, BF16: products 51 ms at 600 TFLOP/s, AdamW in one kernel 49
        GB, 16 ms, casts of weights and of their gradients 20 GB, 7 ms, passes 40 GB, 13 ms: 88 ms
        in groups, as transformers takes them if nothing else is asked. Compiled passes are half, 80
        ms, 1.1. One network after another, its eager form, the host waits 64 times to know how many
        tokens a network has, 8 ms, and adds up by index: 0.9. The same weights in 64 networks, 8
        for each token, half of them met: 17 TFLOP, 75 ms in groups, compiled 1.15; one after
        another 512 waits and products of 1024 rows: 0.55.
    """,
    "predict": [
        "model:moe_8e @h100: grouped 75-105 ms, grouped_compiled 1.03-1.25, one_by_one 0.8-0.97",
        "model:moe_64e @h100: grouped 62-92 ms, grouped_compiled 1.03-1.3, one_by_one 0.4-0.7",
        "model:moe_8e @h200: grouped 90-106 ms, grouped_compiled 1.18-1.32, one_by_one 0.4-0.55",
        "model:moe_64e @h200: grouped 92-106 ms, grouped_compiled 1.28-1.42, one_by_one 0.1-0.18",
    ],
    "found": """
        One launch on an H100: 117 and 116 ms in groups (64 and 8 networks), where 92 and 105 were
        predicted at most. A trace of the former has as much as predicted in products and AdamW, but
        40 ms of passes, not 13: they go over eight rows a token, whose shares alone take 12 ms, the
        gradient of their gathering 6. Compiled passes are worth 1.37 and 1.27. One after another
        has 0.17 and 0.54, not 0.55 and 0.9: 21,510 and 4,470 launches and the waits keep the host
        busy for 699 and 213 ms; of 64 networks the GPU works for 241.
    """,
    "gpus": 1,
    "whole_steps": True,
    "arms": ["grouped", "grouped_compiled", "one_by_one"],
    "controls": ["one_by_one"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["moe_8e", "moe_64e"]},
    "check": {
        "meaning": "gradients of the first step against those in TF32 by the same choices of "
        "networks, relative to their norm",
        "tolerance": 0.1,  # by choices of its own moe_8e is 0.32 off: a few tokens take others
    },
}
# 0.032 on an H200: some tokens take another network than in TF32 from the first step on.
LOSS_TOLERANCE = 0.1
REPEAT_TOLERANCE = 0.01  # of two steps, where a few may take another than in the first launch


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step in BF16 with the arm's products."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if arm == "grouped_compiled":
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    job = Job(name, device, seed, arm)
    return job.arm(threads, compiles=arm == "grouped_compiled", roof="gemm/bf16")


class Job(FirstSteps):
    """A training in BF16."""

    loss_tolerance = LOSS_TOLERANCE
    repeat_tolerance = REPEAT_TOLERANCE

    def __init__(self, name: str, device: torch.device, seed: int, arm: str) -> None:
        super().__init__(name, device, seed)
        self.training.bf16 = True
        model = self.training.model
        if arm != "one_by_one":
            for experts in self.experts:
                experts.work = grouped
        if arm == "grouped_compiled":
            compile_layers(model)
            self.training.loss_of = LossOfHidden(model, compiled_loss())

    @property
    def experts(self) -> list[Experts]:
        """Those of each layer."""
        return [layer.mlp for layer in self.training.model.layers]

    def prepare_check(self) -> None:
        """Where two networks are nearly as likely, rounding decides which a token takes: the first
        step in TF32 is told."""
        self.begin()
        self.training.make_gradients()
        self.choices = [experts.choice for experts in self.experts]

    def reference(self) -> Reference:
        """By this arm's choices, which no other makes throughout."""
        return self.own_reference()

    def prepare_exact(self, model: nn.Module) -> None:
        for layer, choice in zip(model.layers, self.choices, strict=True):
            layer.mlp.choose = replayed(choice)


def replayed(choice: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The choice at first, then one's own. Of its model it holds nothing: that would be a circle,
    and stay in memory."""
    first = [choice]
    networks = choice.shape[1]
    return lambda likely: first.pop() if first else likely.topk(networks, dim=-1).indices
