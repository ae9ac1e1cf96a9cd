"""job/fit: a training step with what makes a model fit, each alone over the same baseline.

They are not added up as those of job/ladder are: who is short of memory takes the cheapest that is
enough, which is one of them or two, and which two depends on what fills the card.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gpulift_work.first_steps import FirstSteps
from gpulift_work.fitting import WithHost, offload_optimizer, rule_of, run_again, set_budget, wrap
from gpulift_work.losses import LossOfHidden, cut_cross_entropy
from gpulift_work.training import (
    Training,
    compile_body,
    device_of,
    keep_the_compiler_quiet,
    require_compiler,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm, Skip
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import create_selective_checkpoint_contexts

TECHNIQUE = {
    "question": "What do I turn on when a model does not fit, and what does each cost?",
    "expectation": """
        llama_1b, 8192 tokens, H100, 55 GB/s to the host. Eager in BF16: 188 ms and a peak of 44.9
        GB, where the loss is: weights 4.9, moments 9.9, what 16 layers keep 13.2 and their weights
        in BF16 2.0, logits three times in FP32 12.6, the rest outputs. Full checkpointing keeps 16
        inputs, 1.1 GB, and runs all but the last product of each layer again: 11.5 TFLOP and 34 GB
        of passes, 29.5 GB and 34 ms more, 0.845. Selective keeps 487 MB a layer, outputs of
        products and attention, and makes the passes again, 12 ms: 37 GB, 0.94. Compiled layers keep
        what products are given, and weights in BF16: 42 GB, and are 30 ms shorter: 1.2. Half of
        that, 285 MB a layer, takes a third of its products again, and all casts: 34 GB, 14 ms more
        than compiled, 1.11. Activations on the host: each layer saves 956 MB, as products that
        share an input save it each, and 122 MB of weights: 17.3 GB down, while all waits, and up,
        2 x 315 ms: 28.5 GB and 0.82 s, 0.23. Moments in 8 bits: 1.24 G x 5.97 bytes less, 37.5 GB;
        16 bytes a weight pass in place of 28, 7 ms in place of 12, and quantising and 146 launches
        take it back: torchao 0.99; bitsandbytes waits for the GPU after each weight, 0.98. The
        optimizer on the host: 35.0 GB; 4.9 GB of gradients go down behind the backward pass but for
        the embedding's 1 GB, 20 ms; AdamW moves 34.6 GB at 65 to 95 GB/s, 0.45 s; weights go up
        behind it: 0.66 s, 0.28. Cut cross entropy: no logits, 32.5 GB, 1.02. GPT-2, 8 x 1024
        tokens, 27 ms and 9.5 GB: full 6.8 GB at 0.82; selective 8.3 GB, where Python's dispatch of
        each operation sets the pace, 0.75; compiled 9.4 GB, 1.2, half of it 7.8 GB, 1.1;
        activations 3.0 GB down and up, 6.5 GB, 0.19; 8 bits 8.8 GB, 148 compiled calls of 0.2 ms by
        torchao 0.65, 148 waits by bitsandbytes 0.72; optimizer on the host 8.5 GB, 54 ms more,
        0.33; cut 5.0 GB, 1.1. So: the loss first, then the compiler with half its budget, then 8
        bits, then checkpoints; what goes over the link each step is the last resort. Not measured:
        a longer training in 8 bits, and two of them together.
    """,
    "predict": [
        "model:llama_1b @h100: bf16 178-198 ms, selective_checkpointing 0.9-0.97,"
        " full_checkpointing 0.8-0.87, compiled 1.14-1.25, memory_budget 1.05-1.17,"
        " activation_offload 0.2-0.27, adamw_8bit_torchao 0.94-1.03,"
        " adamw_8bit_bitsandbytes 0.95-1.01, optimizer_offload 0.24-0.34,"
        " cut_cross_entropy 0.99-1.06",
        "model:gpt2 @h100: bf16 24-30 ms, selective_checkpointing 0.6-0.9,"
        " full_checkpointing 0.76-0.87, compiled 1.1-1.3, memory_budget 1.0-1.2,"
        " activation_offload 0.15-0.23, adamw_8bit_torchao 0.5-0.85,"
        " adamw_8bit_bitsandbytes 0.6-0.85, optimizer_offload 0.27-0.4, cut_cross_entropy 1.0-1.2",
    ],
    "found": (
        "In one launch, while others kept 6 of 64 cores busy, what waits for the host took longer "
        "than predicted: an optimizer there 1.2 s a step, and not 0.66, on 53 cores, and moments "
        "in 8 bits 0.78 and 0.84 of the speed. Why is not known."
    ),
    "gpus": 1,
    "whole_steps": True,
    "arms": [
        "bf16",
        "selective_checkpointing",
        "full_checkpointing",
        "compiled",
        "memory_budget",
        "activation_offload",
        "adamw_8bit_torchao",
        "adamw_8bit_bitsandbytes",
        "optimizer_offload",
        "cut_cross_entropy",
    ],
    "controls": ["compiled"],  # what memory_budget has beside its budget
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "gpt2", "llama_toy"]},
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm",
        "tolerance": 0.1,  # BF16: 0.044 of llama_1b, 0.009 of gpt2
    },
}
# Products and attention: all that takes more than a pass over memory to make again.
KEPT = [
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
]
COMPILED = ("compiled", "memory_budget", "adamw_8bit_torchao", "cut_cross_entropy")
ON_GPUS = ("adamw_8bit_bitsandbytes", "optimizer_offload", "cut_cross_entropy")
# Of llama_1b within LOSS_TOLERANCE, of gpt2 0.015 with the cut loss, since it leaves out gradients
# below 2^-12, and all are as small before a model has learned.
ROUNDED = ("adamw_8bit_torchao", "adamw_8bit_bitsandbytes", "cut_cross_entropy")
ROUNDED_LOSS_TOLERANCE = 0.03


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step with the arm's setting."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if arm in ON_GPUS and device.type == "cpu":
        raise Skip("the library's part of this arm needs a GPU", "use a machine with one")
    if arm in COMPILED:
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    job = Job(name, device, seed, arm)
    return job.arm(
        threads, compiles=arm in COMPILED, roof="" if name == "llama_toy" else "gemm/bf16"
    )


class Job(WithHost, FirstSteps):
    """A training in BF16 with one setting."""

    def __init__(self, name: str, device: torch.device, seed: int, arm: str) -> None:
        super().__init__(name, device, seed)
        self.training.bf16 = True
        if arm in ROUNDED:
            self.loss_tolerance = ROUNDED_LOSS_TOLERANCE
        SETTINGS[arm](self.training)


def checkpoint_all_but_products(training: Training) -> None:
    """Of each layer what is not KEPT runs again."""
    contexts = partial(create_selective_checkpoint_contexts, KEPT)
    run_again(training.model.layers, context_fn=contexts)


def compile_with_budget(training: Training) -> None:
    """Half of what compiled layers keep by themselves."""
    set_budget()
    compile_body(training.model)


def offload_activations(training: Training) -> None:
    """To pinned memory of the host, from where the backward pass brings them back."""

    def offloaded(run: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def run_offloaded(*given: Any) -> torch.Tensor:
            with save_on_cpu(pin_memory=True):
                return run(*given)

        return run_offloaded

    wrap(training.model.layers, offloaded)


def use_torchao_8bit(training: Training) -> None:
    """Moments in blocks with a scale each: T. Dettmers et al., arXiv:2110.02861."""
    from torchao.optim import AdamW8bit

    training.optimizer = AdamW8bit(**rule_of(training))


def use_bitsandbytes_8bit(training: Training) -> None:
    """The same by its authors' kernels."""
    from bitsandbytes.optim import AdamW8bit

    training.optimizer = AdamW8bit(**rule_of(training))


def cut_loss(training: Training) -> None:
    """Logits are never in memory."""
    training.loss_of = LossOfHidden(training.model, cut_cross_entropy())


SETTINGS: dict[str, Callable[[Training], None]] = {
    "bf16": lambda training: None,
    "selective_checkpointing": checkpoint_all_but_products,
    "full_checkpointing": lambda training: run_again(training.model.layers),
    "compiled": lambda training: compile_body(training.model),
    "memory_budget": compile_with_budget,
    "activation_offload": offload_activations,
    "adamw_8bit_torchao": use_torchao_8bit,
    "adamw_8bit_bitsandbytes": use_bitsandbytes_8bit,
    "optimizer_offload": offload_optimizer,
    "cut_cross_entropy": cut_loss,
}
