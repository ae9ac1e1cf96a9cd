"""sparsity/pruning: half of the weights left out, anywhere or two of every four."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from gpulift_work.compression import (
    CompressedLinear,
    error_of,
    linears_of,
    replace_linears,
    weights_left,
    work_of,
)
from gpulift_work.training import (
    Training,
    arm_on,
    device_of,
    free_memory,
    memory_of,
    require_gpu_for,
    set_up,
    tokens_of_step,
)
from gpulift_worker import Arm, Failed, Skip

TECHNIQUE = {
    "question": "What does leaving out half of a model's weights save?",
    "expectation": """
        Unstructured, zeros are multiplied like all else: 1.00 in inference. A training step sets
        them to zero again, 12 bytes a weight of 85 M, 0.4 ms of 39 on an H100: 0.99. Two of four,
        the Tensor Cores skip them, at best 2 times as fast, 1.3 to 1.6 in sizes of GPT-2's
        layers. Inference, 8 x 1024 tokens: 1.4 TFLOP of 2.3 ms in some 8 ms, of which 0.5 to 0.9
        ms are saved; but each of 48 products goes through Python, 100 us, 5 ms that the GPU may
        wait for: 0.9 to 1.1. A step: products forward and of the inputs' gradients, 2.8 TFLOP,
        save 1 to 1.7 ms, and pruning and compressing 85 M weights and their transposes anew costs
        some 300 calls and 1.8 GB, 1 to 4 ms: 0.92 to 1.0. Memory: in inference 0.07 GB of weights
        less; in training they are kept in FP32, and none is saved. The toy on a host: 1.00, and
        0.97 in a step.
    """,
    "predict": [
        {
            "case": {"model": "gpt2", "task": "inference"},
            "on": "h100",
            "step_time_s": {"dense": [0.0072, 0.0088]},
            "speedup": {"unstructured": [0.9, 1.1], "two_four": [0.9, 1.1]},
        },
        {
            "case": {"model": "gpt2", "task": "step"},
            "on": "h100",
            "step_time_s": {"dense": [0.0351, 0.0429]},
            "speedup": {"unstructured": [0.891, 1.089], "two_four": [0.92, 1]},
        },
        {
            "case": {"model": "gpt_toy", "task": "inference"},
            "on": "cpu",
            "speedup": {"unstructured": [0.9, 1.1]},
        },
        {
            "case": {"model": "gpt_toy", "task": "step"},
            "on": "cpu",
            "speedup": {"unstructured": [0.873, 1.067]},
        },
    ],
    "found": (
        "A step takes 0.2 s, in windows of 0.14 to 0.29, and the host's share of it is 1.00, with "
        "444 launches more than dense. 96 weights are compressed anew by cuSPARSELt in each step: "
        "that its calls are what the host waits for is inferred, not traced. One launch."
    ),
    "claims": ["pruning-faster"],
    "gpus": 0,
    "whole_steps": True,
    "arms": ["dense", "unstructured", "two_four"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt2", "gpt_toy"], "task": ["inference", "step"]},
    "check": {
        "meaning": "logits, or gradients of a step, against those of the weights that are left in "
        "more bits, and products of a whole batch against plain ones, relative",
        "tolerance": 0.05,  # gradients of GPT-2 in BF16 are 0.026 to 0.030 off
    },
}
FP32_TOLERANCE = 1e-5
PROTOTYPE = "The PyTorch API of SparseSemiStructuredTensor is in prototype stage"


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Inference or a training step with the weights that the arm leaves."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    if arm == "two_four":
        require_sparse_products(gpu)
        warnings.filterwarnings("ignore", message=PROTOTYPE)
    device = device_of(gpu)
    threads = set_up(device)
    training = Training(name, device, seed)
    if arm == "unstructured":
        prune_anywhere(training)
    if arm == "two_four":
        replace_linears(training.model, TwoFourLinear)
    work = work_of(str(point["task"]), training)

    def error() -> float:
        found = error_of(training, work, weights_left(training.model))
        free_memory(device)
        return found

    return arm_on(
        device,
        threads,
        step=work,
        error=error,
        tolerance=None if training.bf16 else FP32_TOLERANCE,
        metrics=lambda: memory_of(work, device),
        items=tokens_of_step(name),
        item="token",
    )


def require_sparse_products(gpu: int | None) -> None:
    """Throws Skip where there are none."""
    if gpu is None:
        raise Skip("a processor has no products of weights of which two in four are left")
    if not torch.backends.cusparselt.is_available():
        raise Skip("torch has no cuSPARSELt", "install a build of torch that has it")


def prune_anywhere(training: Training) -> None:
    """The smaller half of each layer's weights is zero, and so again after each step."""
    weights = [layer.weight for layer in linears_of(training.model).values()]
    masks = [(one.abs() > one.abs().median()).to(one.dtype) for one in weights]

    def mask(*_: object) -> None:
        with torch.no_grad():
            torch._foreach_mul_(weights, masks)

    mask()
    training.optimizer.register_step_post_hook(mask)


class TwoFourLinear(CompressedLinear):
    """A linear layer of whose weights the two larger of each four count, along rows and columns."""

    def compress(self, weight: torch.Tensor) -> Any:
        pruned = two_of_four(weight.to(torch.bfloat16))
        return compressed(pruned, pruned.t().contiguous())

    def left(self) -> torch.Tensor:
        """By the mask and not by the library, whose products are checked against it."""
        if self.kept is not None:
            return self.dense(self.kept)
        return two_of_four(self.weight.detach().to(torch.bfloat16))

    def keep_what_is_left(self) -> None:
        """Without the transpose, which only gradients need."""
        pruned = self.left()
        self.kept = compressed(pruned)
        if not torch.equal(self.dense(self.kept), pruned):
            raise Failed("a compressed weight is not the one that was compressed")
        self.weight = None

    def dense(self, kept: Any) -> torch.Tensor:
        found: torch.Tensor = kept.to_dense()
        return found.contiguous()  # products whose transposition is fused are by columns

    def product(self, rows: torch.Tensor, kept: Any) -> torch.Tensor:
        found: torch.Tensor = rows @ kept.t()
        return found

    def product_of_gradient(self, gradient: torch.Tensor, kept: Any) -> torch.Tensor:
        found: torch.Tensor = gradient @ kept
        return found


def two_of_four(weight: torch.Tensor) -> torch.Tensor:
    """The weight, in whose every row and column two in four or more are zero. The kernel that finds
    the mask also packs what is left, but as Ampere reads it: on Hopper products are wrong."""
    *_, mask = torch._sparse_semi_structured_tile(weight)
    return torch._sparse_semi_structured_apply_dense(weight, mask)


def compressed(pruned: torch.Tensor, transposed: torch.Tensor | None = None) -> Any:
    """Such a weight as this GPU reads it. The library hands products over by rows, as other layers
    take them."""
    return torch.sparse.SparseSemiStructuredTensorCUSPARSELT(
        pruned.shape,
        packed=torch._cslt_compress(pruned),
        meta=None,
        packed_t=None if transposed is None else torch._cslt_compress(transposed),
        meta_t=None,
        compressed_swizzled_bitmask=None,
        fuse_transpose_cusparselt=True,
    )
