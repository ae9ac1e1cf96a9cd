"""precision/qlora: fine-tuning by thin matrices beside frozen weights, which have 16 bits or 4."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from gpulift_work.llama import LLAMA_SIZES
from gpulift_work.training import (
    Loss,
    Training,
    arm_on,
    device_of,
    distance,
    free_memory,
    gradients_of,
    make_model,
    make_optimizer,
    memory_of_step,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm, Failed
from torch import nn
from torch.utils.checkpoint import checkpoint

TECHNIQUE = {
    "question": "What do frozen weights in 4 bits cost a step of fine-tuning, and how much memory "
    "do they save?",
    "expectation": """
        Each linear layer has two matrices of rank 16 beside it (E. Hu et al., arXiv:2106.09685);
        the rest is frozen, in BF16, or in NF4 by bitsandbytes (T. Dettmers et al.,
        arXiv:2305.14314), which makes BF16 of a layer's weight ahead of each product. llama_1b,
        8192 tokens, on an H100: forward and the gradients of states, 47 TFLOP with attention, 74
        ms at 640 TFLOP/s; passes as in training, without casts of weights, 55 ms; the thin
        matrices' own, 72 GB, 24 ms: 153 ms, where all weights trained take 180. NF4: 0.97 G weights
        made twice, 5 GB of writing and reading, 3 to 6 ms: 0.97. Checkpointed, layers run once
        more, 55 ms, and weights are made three times: 0.965. Memory: 2.5 GB of weights become 1.1,
        of which half is the embedding; kept activations and logits have 30 GB beside them, and
        checkpointed 14: 0.95 and 0.91. An eighth of Llama 8B, 4096 tokens: 43 ms, of which weights
        as many take a larger share: 0.91; checkpointed 61 ms, three conversions of them 5: 0.91.
        It is where 4 bits matter: 1.74 GB of layers become 0.5, beside 2 GB of activations of one
        layer and logits, so that memory is some 0.7. On a processor the toy's layers are calls, and
        the 4 bits twice as many: 0.6.
    """,
    "predict": [
        "model:llama_1b/activations:kept @h100: lora 138-172 ms, qlora 0.93-0.995",
        "model:llama_1b/activations:checkpointed @h100: lora 185-235 ms, qlora 0.92-0.99",
        "model:llama_1b/activations:kept @h200: lora 118-134 ms, qlora 0.955-0.98",
        "model:llama_1b/activations:checkpointed @h200: lora 165-195 ms, qlora 0.945-0.985",
        "model:llama_8b_slice/activations:kept @h100: lora 37-50 ms, qlora 0.85-0.96",
        "model:llama_8b_slice/activations:checkpointed @h100: lora 52-72 ms, qlora 0.84-0.96",
        "model:llama_toy/activations:kept @cpu: qlora 0.35-0.85",
    ],
    "whole_steps": True,
    "arms": ["lora", "qlora"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {
        "model": ["llama_1b", "llama_8b_slice", "llama_toy"],
        "activations": ["kept", "checkpointed"],
    },
    "check": {
        "meaning": "gradients of one step against those of the same weights, as they are, in more "
        "bits, relative to their norm",
        "tolerance": 0.1,  # BF16: 0.04 of llama_1b's training
    },
}
RANK = 16
FP32_TOLERANCE = 1e-4


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step that trains the thin matrices alone."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(name, device, seed)
    freeze(training, in_4_bits=arm == "qlora")
    if point["activations"] == "checkpointed":
        for layer in training.model.layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    thin = [weight for weight in training.model.parameters() if weight.requires_grad]
    training.optimizer = make_optimizer(name, thin)
    frozen_bytes = sum(
        bytes_of(weight) for weight in training.model.parameters() if not weight.requires_grad
    )
    free_memory(device)

    def error() -> float:
        training.make_gradients()
        found = gradients_of(training.model)
        expected = exact_gradients(training)
        free_memory(device)
        before = [weight.detach().clone() for weight in thin]
        training.update()
        if any(map(torch.equal, before, thin)):
            raise Failed("a step leaves a thin matrix as it was")
        return distance(found, expected)

    return arm_on(
        device,
        threads,
        step=training.step,
        error=error,
        rest=partial(free_memory, device),
        tolerance=None if training.bf16 else FP32_TOLERANCE,
        metrics=lambda: {"frozen_bytes": float(frozen_bytes), **memory_of_step(training)},
        flops=flops_of_step(name),
        roof="gemm/bf16" if training.bf16 else "",
        items=tokens_of_step(name),
        item="token",
    )


def flops_of_step(name: str) -> float:
    """Of products: one forward, and one backward for the states alone."""
    size = LLAMA_SIZES[name]
    for_weights = 2 * size.weights * tokens_of_step(name)
    return size.flops_of_row() * tokens_of_step(name) / size.tokens - for_weights


class Adapted(nn.Module):
    """A frozen layer, and two thin matrices whose product is added to its weight. Neither is zero,
    as one is at first, so that both have a gradient."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen
        device = frozen.weight.device
        self.down = nn.Linear(frozen.in_features, RANK, bias=False, device=device)
        self.up = nn.Linear(RANK, frozen.out_features, bias=False, device=device)
        for thin in (self.down, self.up):
            nn.init.normal_(thin.weight, std=0.02)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.frozen(state) + self.up(self.down(state))
        return output


def freeze(training: Training, *, in_4_bits: bool) -> None:
    """All weights but those of thin matrices, which each linear layer is given."""
    kind = torch.bfloat16 if training.bf16 else torch.float32
    training.model.to(kind).requires_grad_(False)
    for layer in training.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                setattr(part, name, Adapted(in_nf4(linear, kind) if in_4_bits else linear))


def in_nf4(linear: nn.Linear, kind: torch.dtype) -> nn.Linear:
    """With scales in 8 bits, as the paper has it."""
    import bitsandbytes

    quantised: nn.Linear = bitsandbytes.nn.Linear4bit(
        linear.in_features,
        linear.out_features,
        bias=False,
        compute_dtype=kind,
        quant_type="nf4",
        device="meta",
    )
    quantised.weight = bitsandbytes.nn.Params4bit(
        linear.weight.data.cpu(), requires_grad=False, quant_type="nf4"
    )
    return quantised.to(linear.weight.device)  # which quantises


def bytes_of(weight: Any) -> int:
    """Of 4 bits with their scales, and with those of the scales."""
    state = getattr(weight, "quant_state", None)
    scales = [] if state is None else [state.absmax, state.state2.absmax]
    return sum(part.nbytes for part in (weight, *scales))


def exact_gradients(training: Training) -> torch.Tensor:
    """Of a plain model in which frozen weights are what the training's stand for."""
    kind = torch.float32 if training.bf16 else torch.float64
    with training.device:
        model: Any = make_model(training.model_name)
    model.requires_grad_(False)
    for layer, own in zip(model.layers, training.model.layers, strict=True):
        for part, own_part in ((layer.self_attn, own.self_attn), (layer.mlp, own.mlp)):
            for name, linear in list(part.named_children()):
                adapted = getattr(own_part, name)
                linear.weight.data = weight_of(adapted.frozen)
                setattr(part, name, Adapted(linear))
                getattr(part, name).down.load_state_dict(adapted.down.state_dict())
                getattr(part, name).up.load_state_dict(adapted.up.state_dict())
    model.embed_tokens.load_state_dict(training.model.embed_tokens.state_dict())
    exact = Loss(model.to(kind))
    exact(training.input, training.target).backward()
    return gradients_of(exact)


def weight_of(frozen: nn.Linear) -> torch.Tensor:
    """[out, in], of 4 bits what they stand for."""
    weight: Any = frozen.weight
    if getattr(weight, "quant_state", None) is None:
        return frozen.weight.data
    import bitsandbytes

    made: torch.Tensor = bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)
    return made
