"""fusion/step_kernels: a Llama's training step with kernels of Liger's in place of torch's own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

from collections.abc import Mapping

import torch
from gpulift_work.jobs import Job
from gpulift_work.llama import Llama
from gpulift_work.losses import LossOfHidden, compiled, of_logits
from gpulift_work.training import (
    compile_layers,
    device_of,
    keep_the_compiler_quiet,
    require_compiler,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm, Skip
from torch import nn

TECHNIQUE = {
    "question": "Do a library's norm, SwiGLU and rotation shorten a step, and do they still where "
    "it is compiled?",
    "expectation": """
        llama_1b, 8192 tokens, BF16 on an H100, eager 182 ms. A norm of FP32 sums reads 67 MB and
        writes 67, in torch 2.11 by one kernel as in Liger's: 33 norms, alike but for the backward
        pass, whose weight gradients torch adds up in a kernel of its own: 1.01. SwiGLU: torch reads
        and writes 7 times 134 MB forward and backward by 3 and 4 kernels, Liger's 2 kernels 3 + 5
        times, and it keeps no product for the backward pass: 16 x 0.3 GB, 1.5 ms, 1.01, and 2.1 GB
        less memory. Rotations: torch takes 5 kernels for queries and 5 for keys, some 0.3 GB a
        layer forward and as much backward, Liger's one in place, 0.1: 16 x 0.4 GB, 2 ms, 1.01. All
        of them 1.03. Compiled, Inductor fuses norms, SwiGLU and rotations with their neighbours,
        and a kernel of somebody else's is a wall between them: 0.97.
    """,
    "predict": [
        "model:llama_1b/form:eager @h200: torch 158-168 ms, norm 1.01-1.05, swiglu 1.0-1.03,"
        " rotation 1.0-1.04, all 1.05-1.1",
        "model:llama_1b/form:eager @h100: torch 173-191 ms",
        "model:llama_1b/form:eager: norm 0.99-1.03, swiglu 1.0-1.03, rotation 1.0-1.03,"
        " all 1.01-1.07",
        "model:llama_1b/form:compiled @h100: torch 138-152 ms",
        "model:llama_1b/form:compiled: all 0.93-1.0",
    ],
    "gpus": 1,
    "whole_steps": True,
    "arms": ["torch", "norm", "swiglu", "rotation", "all"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["llama_1b", "llama_toy"], "form": ["eager", "compiled"]},
    "check": {
        "meaning": "gradients of the first step against TF32's, relative to their norm; each "
        "parameter's cosine and norm have bounds of their own",
        "tolerance": 0.02,  # BF16: 0.0081 of llama_1b by torch's own kernels on an H200
    },
}
KERNELS = ("norm", "swiglu", "rotation")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step in BF16 with the arm's kernels."""
    name = str(point["model"])
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if arm != "torch" and device.type == "cpu":
        raise Skip("Liger's kernels need a GPU", "use a machine with one")
    is_compiled = point["form"] == "compiled"
    if is_compiled:
        require_compiler(device)
        keep_the_compiler_quiet()
    threads = set_up(device)
    job = Job(name, device, seed, ["bf16", "fused_adamw"])
    model = job.training.model
    use_kernels(model, KERNELS if arm == "all" else (arm,))
    if is_compiled:
        compile_layers(model)
    job.training.loss_of = LossOfHidden(model, compiled() if is_compiled else of_logits)
    roof = "" if name == "llama_toy" else "gemm/bf16"
    return job.arm(threads, compiles=is_compiled, roof=roof)


def use_kernels(model: Llama, kernels: tuple[str, ...]) -> None:
    """Puts those of Liger's with these names in the place of torch's."""
    if kernels == ("torch",):
        return
    from liger_kernel.transformers.functional import liger_rope, liger_swiglu

    for layer in model.layers:
        if "norm" in kernels:
            layer.input_layernorm = LigerNorm(layer.input_layernorm)
            layer.post_attention_layernorm = LigerNorm(layer.post_attention_layernorm)
        if "swiglu" in kernels:
            layer.mlp.gated = liger_swiglu
        if "rotation" in kernels:
            layer.self_attn.rotate = lambda query, key, rotation: liger_rope(query, key, *rotation)
    if "norm" in kernels:
        model.norm = LigerNorm(model.norm)


class LigerNorm(nn.Module):
    """An RMSNorm's weight, by the kernel of the library."""

    def __init__(self, norm: nn.RMSNorm) -> None:
        super().__init__()
        from liger_kernel.transformers.functional import liger_rms_norm

        self.weight, self.epsilon, self.kernel = norm.weight, norm.eps, liger_rms_norm

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.kernel(state, self.weight, self.epsilon)
        return output
