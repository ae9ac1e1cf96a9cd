"""What arms are called in words."""

from __future__ import annotations

# Where a row is over them; of some techniques by its id as well.
ARMS = {
    "torch_default": "FP32",
    "precision/training_step fp32": "FP32",
    "tf32": "TF32",
    "bf16": "BF16",
    "job/step bf16": "BF16 with fused AdamW",
    "fused_adamw": "BF16 with fused AdamW",
    "compiled": "the same, compiled",
    "eager": "the same, eager",
    "foreach": "`foreach`, torch's default",
    "contiguous": "contiguous images",
    "padded": "one document a row, padded",
    "unpadded": "50257 words",
    "whole": "one whole batch",
    "one_gpu": "one GPU",
    "ddp": "DDP",
    "fsdp2": "FSDP2",
    "data_parallel": "DDP",
    "pageable_synchronous": "pageable memory, copied in the step",
    "rank0_gathers": "rank 0 gathers and saves",
    "torch_save": "`torch.save`",
    "exchange_each": "an exchange after each micro-batch",
    "buckets_25": "DDP as it comes",
    "distributed/gradient_compression fp32": "gradients in FP32",
    "lora": "LoRA",
    "naive": "`num_workers=0`",
    "tensors": "pageable batches",
    "pinned": "pinned batches of floats",
    "fp32_in_worker": "floats, normalised in the worker",
    "torch": "torch's kernels",
    "grouped": "grouped products, eager",
    "explicit": "scores written out in memory",
    "attention/linear full": "full attention",
    "attention/linear fallback": "transformers without them",
    "job/frontier none": "all activations kept",
    "job/determinism off": "torch as it comes",
    "compile/torch_compile default": "the same, compiled",
}
OFFLOAD = "`trl.models.activation_offloading.OffloadActivations`"
# The settings of job/ladder and job/frontier by the names that people know them by, and how each is
# turned on; of one of them by its id as well.
SETTINGS = {
    "torch_default": ("FP32 (default)", ""),
    "tf32": ("TF32", '`torch.set_float32_matmul_precision("high")`'),
    "bf16": ("BF16 autocast", '`torch.autocast("cuda", torch.bfloat16)`'),
    "fused_adamw": ("fused AdamW", "`AdamW(..., fused=True)`"),
    "compiled": ("torch.compile", "`layer.compile()`, `torch.compile(loss)`"),
    "fp8": ("FP8", "`torchao.float8.convert_to_float8_training(model.layers)`"),
    "cut_cross_entropy": (
        "cut cross entropy",
        "`cut_cross_entropy.linear_cross_entropy(hidden, head, labels)`",
    ),
    "job/frontier none": ("all activations kept", ""),
    "job/frontier attention": (
        "attention recomputed",
        "`checkpoint(self.self_attn, ...)` in each layer",
    ),
    "job/frontier mlp": ("MLPs recomputed", "`checkpoint(self.mlp, ...)` in each layer"),
    "job/frontier budget": ("activation_memory_budget=0.5", "`torch._functorch.config`"),
    "job/frontier full": ("full checkpointing", "`checkpoint(layer, ...)`"),
    "job/frontier full_checkpoints_on_host": ("full, checkpoints offloaded", OFFLOAD),
    "job/frontier mlp_rest_on_host": ("MLPs recomputed, the rest offloaded", OFFLOAD),
    "job/frontier full_half_optimizer_on_host": (
        "full, half of AdamW offloaded",
        "`torchao.optim.CPUOffloadOptimizer`",
    ),
    "job/frontier full_optimizer_in_8_bits": (
        "full, 8-bit AdamW",
        "`bitsandbytes.optim.AdamW8bit`",
    ),
}


def setting(arm: str, technique: str = "") -> tuple[str, str]:
    """Its name, and how it is turned on; one that has none is called as the arm."""
    return SETTINGS.get(f"{technique} {arm}") or SETTINGS.get(arm, (arm, ""))
