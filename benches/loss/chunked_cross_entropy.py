"""loss/chunked_cross_entropy: the output layer and its loss, whole or by chunks of tokens."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_work.training import (
    Gpt,
    Training,
    arm_on,
    device_of,
    errors_of,
    free_memory,
    keep_the_compiler_quiet,
    memory_of_step,
    require_compiler,
    require_gpu_for,
    set_up,
    tokens_of_step,
    use_cold_cache,
)
from gpulift_worker import Arm, Failed
from torch import nn
from torch.utils.checkpoint import checkpoint

TECHNIQUE = {
    "question": "What does a step save whose logits are made, and turned into gradients, chunk by "
    "chunk?",
    "expectation": """
        GPT-2, 8 x 1024 tokens, BF16 on an H100. The logits are 8192 x 50304 = 412 M values: 0.8
        GB in BF16 and 1.65 GB in each of the FP32 copies, of which cross entropy keeps one and
        makes another in the backward pass: 4 GB of a peak of 8.5 GB. In chunks of 1024 tokens it
        is 0.5 GB, and an FP32 gradient of the weight, 0.15 GB: 4.9 GB, 1.7 times less. Time: the
        whole loss moves about 15 GB, 5 ms of 39. Chunks move the same, and add 8 times 0.4 GB for
        the weight's gradient, 1 ms: 0.97. By checkpoint the product of 0.63 TFLOP is made twice,
        1.1 ms, and the gradient is added up in BF16: 0.96. Compiled, the softmax and its gradient
        read the logits twice and write once, 3 GB: 4 ms less, 1.08. The toy has 64 words and
        nothing to save: 4 chunks are 4 times the calls of its loss, 0.9; by checkpoint 0.8.
    """,
    "predict": [
        {
            "arm": "whole_logits",
            "case": {"model": "gpt2"},
            "on": "h100",
            "step_time_s": [0.0351, 0.0429],
        },
        {"arm": "chunked", "case": {"model": "gpt2"}, "on": "h100", "speedup": [0.873, 1.067]},
        {"arm": "checkpointed", "case": {"model": "gpt2"}, "on": "h100", "speedup": [0.864, 1.056]},
        {
            "arm": "compiled_chunked",
            "case": {"model": "gpt2"},
            "on": "h100",
            "speedup": [0.972, 1.188],
        },
        {"arm": "chunked", "case": {"model": "gpt_toy"}, "speedup": [0.81, 0.99]},
        {"arm": "checkpointed", "case": {"model": "gpt_toy"}, "speedup": [0.72, 0.88]},
    ],
    "claims": [],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["whole_logits", "chunked", "checkpointed", "compiled_chunked"],
    "controls": ["compiled_chunked"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"]},
    "check": {
        "meaning": "gradients, and within 0.01 the loss, against those of whole logits in more "
        "bits, relative",
        "tolerance": 0.05,  # gradients of GPT-2 in BF16 are 0.026 to 0.030 off
    },
}
CHUNK_TOKENS = {"gpt2": 1024, "gpt_toy": 64}
CHECKED_ROWS = 2  # two chunks of GPT-2
FP32_TOLERANCE = 1e-5  # of gradients, where a model is trained in FP32
LOSS_TOLERANCE = 0.01

Chunk = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step whose loss is the arm's."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if arm == "compiled_chunked":
        require_compiler(device)
        use_cold_cache()
        keep_the_compiler_quiet()
    threads = set_up(device)
    training = Training(name, device, seed)
    if arm != "whole_logits":
        assert isinstance(training.model, Gpt)
        training.loss_of = ChunkedLoss(training.model, CHUNK_TOKENS[name], arm)

    def error() -> float:
        of_loss, of_gradients = errors_of(training, CHECKED_ROWS)
        free_memory(device)
        if not of_loss <= LOSS_TOLERANCE:
            raise Failed(f"the loss is {of_loss:.2g} from that of whole logits in more bits")
        return of_gradients

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        tolerance=None if training.bf16 else FP32_TOLERANCE,
        metrics=lambda: memory_of_step(training),
        items=tokens_of_step(name),
        item="token",
    )


class ChunkedLoss(nn.Module):
    """A GPT with its loss, which never holds the logits of more than a chunk of tokens."""

    def __init__(self, model: Gpt, tokens: int, arm: str) -> None:
        super().__init__()
        self.model, self.tokens = model, tokens
        self.loss_of_chunks: Callable[..., torch.Tensor] = checkpointed_loss
        if arm != "checkpointed":
            compiled = arm == "compiled_chunked"
            chunk = torch.compile(loss_and_gradient) if compiled else loss_and_gradient
            self.loss_of_chunks = lambda *given: GradientInForward.apply(*given, chunk)

    def forward(self, given: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        state, weight = self.model.hidden(given), self.model.output_weight
        kind = state.device.type
        if torch.is_autocast_enabled(kind):  # as a linear layer does
            state, weight = (one.to(torch.get_autocast_dtype(kind)) for one in (state, weight))
        return self.loss_of_chunks(state.flatten(0, 1), weight, target.flatten(), self.tokens)


def checkpointed_loss(
    state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, tokens: int
) -> torch.Tensor:
    """The mean loss; the backward pass makes the logits of each chunk anew."""
    losses = [
        checkpoint(
            loss_of_chunk, one, weight, wanted, use_reentrant=False, preserve_rng_state=False
        )
        for one, wanted in zip(state.split(tokens), target.split(tokens), strict=True)
    ]
    return torch.stack(losses).sum() / len(target)


def loss_of_chunk(state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The sum over the chunk."""
    return nnf.cross_entropy(nnf.linear(state, weight).float(), target, reduction="sum")


class GradientInForward(torch.autograd.Function):
    """The mean loss, whose gradients are made beside it: a chunk's logits are needed once."""

    @staticmethod
    def forward(
        ctx: Any,
        state: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        tokens: int,
        chunk: Chunk,
    ) -> torch.Tensor:
        """Keeps the gradients, scaled for a mean."""
        of_state = torch.empty_like(state)
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
        losses = []
        parts = zip(state.split(tokens), target.split(tokens), of_state.split(tokens), strict=True)
        for one, wanted, place in parts:
            loss, gradient = chunk(one @ weight.T, wanted, len(target))
            losses.append(loss)
            torch.mm(gradient, weight, out=place)
            of_weight += gradient.T @ one
        ctx.save_for_backward(of_state, of_weight.to(weight.dtype))
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, *scale: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients that the forward pass kept."""
        of_state, of_weight = ctx.saved_tensors
        return of_state * scale[0], of_weight * scale[0], None, None, None


def loss_and_gradient(
    logits: torch.Tensor, target: torch.Tensor, tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A chunk's part of the mean loss over so many tokens, and the gradient of its logits."""
    logarithms = torch.log_softmax(logits.float(), dim=1)
    place = target[:, None]
    loss = -logarithms.gather(1, place).sum() / tokens
    gradient = logarithms.exp().scatter_add(1, place, torch.full_like(logarithms[:, :1], -1.0))
    return loss, (gradient / tokens).to(logits.dtype)
