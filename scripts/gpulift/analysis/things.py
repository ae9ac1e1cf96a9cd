"""What can be turned on, how, and where it was measured: the rows of results/BEGIN.md, as data.

What each is worth, and with it the order, comes from committed records (`analysis.begin_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Arms of a technique, which stand for a thing over another arm of their case, or without one
    over its baseline; of the cases that a regular expression finds in their ids. `job` says what
    they are of where that is no model's whole step."""

    technique: str
    arms: tuple[str, ...]
    over: str = ""
    cases: str = ""
    job: str = ""


@dataclass(frozen=True)
class Thing:
    """A setting, the line of code or the call that turns it on, what has to be said beside it, and
    where it was measured: what a source has stands before what the next one has of the same job."""

    words: str
    how: str
    sources: tuple[Source, ...]
    note: str = ""


@dataclass(frozen=True)
class Situation:
    """Who asks."""

    title: str
    said: str
    things: tuple[Thing, ...]
    saves: bool = False  # memory is what is asked for
    several: bool = False  # GPUs


# What arms are called in words where a row is over them; of some techniques by its id as well.
ARMS = {
    "torch_default": "FP32",
    "tf32": "TF32",
    "bf16": "BF16",
    "job/fit bf16": "BF16 with fused AdamW",
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
}
# The settings of job/ladder and job/fit by the names that people know them by, and how each is
# turned on; of one of them by its id as well.
SETTINGS = {
    "torch_default": ("FP32 (default)", ""),
    "tf32": ("TF32", '`torch.set_float32_matmul_precision("high")`'),
    "bf16": ("BF16 autocast", '`torch.autocast("cuda", torch.bfloat16)`'),
    "job/fit bf16": ("BF16 with fused AdamW", ""),
    "fused_adamw": ("fused AdamW", "`AdamW(..., fused=True)`"),
    "compiled": ("torch.compile", "`layer.compile()`, `torch.compile(loss)`"),
    "job/fit compiled": ("torch.compile, layers alone", ""),
    "fp8": ("FP8", "`torchao.float8.convert_to_float8_training(model.layers)`"),
    "cut_cross_entropy": (
        "cut cross entropy",
        "`cut_cross_entropy.linear_cross_entropy(hidden, head, labels)`",
    ),
    "selective_checkpointing": ("selective activation checkpointing", ""),
    "full_checkpointing": ("full activation checkpointing", ""),
    "memory_budget": ("torch.compile with activation_memory_budget=0.5", ""),
    "activation_offload": ("activations offloaded to the host", ""),
    "adamw_8bit_torchao": ("8-bit AdamW (torchao)", ""),
    "adamw_8bit_bitsandbytes": ("8-bit AdamW (bitsandbytes)", ""),
    "optimizer_offload": ("optimizer offloaded to the host", ""),
}


def setting(arm: str, technique: str = "") -> tuple[str, str]:
    """Its name, and how it is turned on; one that has none is called as the arm."""
    return SETTINGS.get(f"{technique} {arm}") or SETTINGS.get(arm, (arm, ""))


BF16 = Thing(
    "BF16",
    '`with torch.autocast("cuda", torch.bfloat16):`',
    (
        Source("job/ladder", ("bf16",), "tf32"),
        Source("precision/training_step", ("bf16",), "tf32"),
    ),
)
COMPILE = Thing(
    "`torch.compile`",
    "`layer.compile()` for each layer, `torch.compile(loss)`",
    (
        Source("job/ladder", ("compiled",), "fused_adamw"),
        Source("compile/regions", ("layers",)),
        Source("job/step", ("compiled",)),
        Source("compile/torch_compile", ("default",)),
    ),
)
FP8 = Thing(
    "FP8 linear layers",
    "`torchao.float8.convert_to_float8_training(model.layers)`: not the output layer",
    (
        Source("job/ladder", ("fp8",), "compiled"),
        Source("precision/fp8_step", ("tensorwise",), cases="form:compiled"),
        Source("job/step", ("fp8",), "compiled"),
    ),
    "only behind `torch.compile`. Errors are of untrained weights, which make roundings larger: at"
    " calmer ones FP8's gradients are 0.106 off, BF16's 0.008 (Llama 1B, H200)",
)
LOSS = Thing(
    "the loss compiled alone",
    "`torch.compile(loss_of)` of the last product and cross entropy",
    (Source("loss/chunked_cross_entropy", ("compiled",)),),
    "in an eager model; a compiled one may have it already",
)

FASTER = Situation(
    "One GPU, and the model fits: faster",
    "What brings most to Llama 1B is first, then what other jobs can turn on.",
    (
        BF16,
        COMPILE,
        Thing(
            "fused AdamW",
            "`AdamW(..., fused=True)`",
            (
                Source("job/ladder", ("fused_adamw",), "bf16"),
                Source("optimizer/step_share", ("fused",), "foreach"),
            ),
        ),
        FP8,
        LOSS,
        Thing(
            "documents packed, not padded",
            "`torch.nn.attention.varlen.varlen_attn`, or FlexAttention with a document mask",
            (
                Source(
                    "attention/document_mask",
                    ("variable_length",),
                    cases="lengths:chat$",
                    job="4 layers of Llama 1B, chats",
                ),
                Source(
                    "attention/document_mask",
                    ("variable_length",),
                    cases="lengths:even$",
                    job="the same, documents of one length",
                ),
            ),
            "the more, the more their lengths differ",
        ),
        Thing(
            "a padded vocabulary",
            "`Embedding(50304, ...)` for 50257 words: a multiple of 64",
            (
                Source(
                    "layout/vocabulary", ("padded",), cases="model:gpt2/form:eager", job="GPT-2"
                ),
                Source(
                    "layout/vocabulary",
                    ("padded",),
                    cases="model:gpt2/form:compiled$",
                    job="GPT-2, compiled",
                ),
            ),
            "the compiler pads by itself",
        ),
        Thing(
            "a library's norm, SwiGLU and rotary embedding",
            "`apply_liger_kernel_to_llama(fused_linear_cross_entropy=False)` of `liger_kernel`, for"
            " Hugging Face's Llama",
            (
                Source("fusion/step_kernels", ("all",), cases="llama_1b/form:eager"),
                Source(
                    "fusion/step_kernels",
                    ("all",),
                    cases="llama_1b/form:compiled",
                    job="Llama 1B, compiled",
                ),
            ),
            "not where it is compiled",
        ),
        Thing(
            "`channels_last`, of convolutions",
            "`model.to(memory_format=torch.channels_last)`, images as well",
            (
                Source(
                    "layout/channels_last",
                    ("channels_last",),
                    cases="model:(resnet50|mobilenet)/precision:bf16",
                ),
            ),
        ),
        Thing(
            "fused attention",
            "`torch.nn.functional.scaled_dot_product_attention`",
            (
                Source(
                    "attention/sdpa", ("cudnn", "flash"), cases="model:gpt2_4_layers/tokens:2048"
                ),
            ),
        ),
        Thing(
            "experts in one grouped product, compiled",
            "`torch.nn.functional.grouped_mm`, `layer.compile()`",
            (Source("moe/experts", ("grouped_compiled",), "grouped"),),
        ),
    ),
)
WAITS = Situation(
    "One GPU, and it waits for the CPU or for data",
    "`./gpulift watch` says whether it does; where it does not, loaders bring nothing.",
    (
        Thing(
            "loader processes",
            "`DataLoader(num_workers=cores)`",
            (Source("input/pipeline", ("workers",), "naive"),),
            "the one reader kept 13.8 cores busy with torch's own threads",
        ),
        Thing(
            "bytes to the GPU, floats there",
            "send `uint8`; `.to(dtype).div_(255)` on the GPU",
            (
                Source("input/pipeline", ("uint8",), "pinned"),
                Source(
                    "input/batch_type",
                    ("uint8",),
                    cases="given:jpegs",
                    job="a loader of JPEGs alone",
                ),
            ),
        ),
        Thing(
            "pinned batches, copied while the step works",
            "`DataLoader(pin_memory=True)`, `.to(device, non_blocking=True)`",
            (
                Source("input/pipeline", ("pinned",), "tensors"),
                Source("transfer/training_prefetch", ("prefetch_stream",)),
            ),
        ),
        Thing(
            "compiled with CUDA graphs",
            '`torch.compile(model, mode="reduce-overhead")`',
            (Source("compile/torch_compile", ("reduce_overhead",)),),
        ),
        Thing(
            "a CUDA graph of the whole step",
            "`torch.cuda.graph(g)` around forward, backward and `AdamW(..., capturable=True)`",
            (Source("launch/whole_step_graph", ("whole_step_graph",), cases="batch:large"),),
        ),
        Thing(
            "checkpoints written beside training",
            "`import torch.distributed.checkpoint as dcp`, `dcp.async_save(...)`",
            (
                Source(
                    "state/checkpoint",
                    ("dcp_async",),
                    "torch_save",
                    "model:llama_1b/cadence:keeps_up",
                ),
            ),
        ),
    ),
)
SMALLER = Situation(
    "One GPU, out of memory: smaller",
    "What costs Llama 1B least time is first, then what other jobs can turn on.",
    (
        BF16,
        COMPILE,
        FP8,
        Thing(
            "a loss that never holds all logits",
            "`cut_cross_entropy.linear_cross_entropy(hidden, head, labels)`",
            (
                Source("job/fit", ("cut_cross_entropy",)),
                Source("loss/chunked_cross_entropy", ("cut_cross_entropy",)),
            ),
        ),
        LOSS,
        Thing(
            "`torch.compile` with half its memory",
            "`torch._functorch.config.activation_memory_budget = 0.5`",
            (Source("job/fit", ("memory_budget",), "compiled"),),
            "behind `torch.compile`",
        ),
        Thing(
            "activation checkpointing, selective",
            "`checkpoint(layer, x, use_reentrant=False, context_fn=...)` with"
            " `create_selective_checkpoint_contexts`, which keeps products and attention",
            (Source("job/fit", ("selective_checkpointing",)),),
        ),
        Thing(
            "activation checkpointing, full",
            "`torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)`",
            (Source("job/fit", ("full_checkpointing",)),),
        ),
        Thing(
            "AdamW's states in 8 bits",
            "`bitsandbytes.optim.AdamW8bit`, `torchao.optim.AdamW8bit`",
            (Source("job/fit", ("adamw_8bit_bitsandbytes", "adamw_8bit_torchao")),),
        ),
        Thing(
            "gradient accumulation",
            "four micro-batches, one `optimizer.step()`",
            (
                Source("batch/gradient_accumulation", ("micro_4",), cases="model:gpt2/equal:batch"),
                Source("batch/gradient_accumulation", ("micro_4",), cases="equal:batch"),
            ),
        ),
        Thing(
            "frozen weights in 4 bits (QLoRA over LoRA)",
            "`bitsandbytes.nn.Linear4bit`",
            (Source("precision/qlora", ("qlora",)),),
            "the rounding of the frozen weights is not in its error",
        ),
        Thing(
            "activations on the host",
            "`with torch.autograd.graph.save_on_cpu(pin_memory=True):`",
            (Source("job/fit", ("activation_offload",)),),
        ),
        Thing(
            "the optimizer on the host",
            "`torchao.optim.CPUOffloadOptimizer`",
            (Source("job/fit", ("optimizer_offload",)),),
        ),
    ),
    saves=True,
)
NO_RESHARD = "`fully_shard(layer, mp_policy=policy, reshard_after_forward=False)`"
MIXED = "`policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)`, and no autocast"
SEVERAL = Situation(
    "Several GPUs, and the model fits on one: faster",
    "Each GPU has a batch of its own, but where a row says otherwise.",
    (
        Thing(
            "DistributedDataParallel",
            "`DistributedDataParallel(model)`",
            (
                Source("distributed/data_parallel", ("ddp",), cases="gpus:4"),
                Source(
                    "distributed/data_parallel",
                    ("ddp",),
                    cases="gpus:2/model:llama_1b/scaling:weak/compiled:yes",
                    job="Llama 1B, compiled",
                ),
                Source("distributed/data_parallel", ("ddp",), cases="gpus:2/.*scaling:weak"),
            ),
        ),
        Thing(
            "FSDP2 in place of DDP, weights kept for the backward pass",
            NO_RESHARD,
            (Source("distributed/sharding", ("fsdp2_no_reshard",)),),
            MIXED,
        ),
        Thing(
            "tensor parallelism beside FSDP2",
            "`parallelize_module(layer, mesh, plan)`",
            (Source("distributed/tensor_parallel", ("tp2", "tp2_async"), cases="link:nvlink"),),
        ),
        Thing(
            "larger buckets",
            "`DistributedDataParallel(model, bucket_cap_mb=100)`",
            (
                Source("distributed/overlap", ("buckets_100",), cases="link:nvlink/network:llama$"),
                Source("distributed/overlap", ("buckets_100",), cases="link:nvlink"),
            ),
        ),
        Thing(
            "`no_sync` between updates",
            "`with model.no_sync():` for all micro-batches but the last",
            (
                Source(
                    "distributed/no_sync", ("exchange_last",), cases="link:nvlink/micro_batches:4"
                ),
            ),
        ),
        Thing(
            "gradients in 16 bits",
            "`model.register_comm_hook(None, bf16_compress_hook)`",
            (
                Source(
                    "distributed/gradient_compression", ("bf16_hook",), cases="llama_1b/link:host"
                ),
                Source(
                    "distributed/gradient_compression",
                    ("bf16_hook",),
                    cases="gpt2/link:host",
                    job="GPT-2 over the host's link",
                ),
                Source(
                    "distributed/gradient_compression",
                    ("bf16_hook",),
                    cases="gpt2/link:nvlink",
                    job="GPT-2 over NVLink",
                ),
            ),
        ),
        Thing(
            "sharded checkpoints, written beside training",
            "`import torch.distributed.checkpoint as dcp`, `dcp.async_save(...)` from all ranks",
            (Source("distributed/checkpoint_sharded", ("dcp_async",)),),
        ),
    ),
    several=True,
)
SHARDED = Situation(
    "Several GPUs, and the model does not fit on one",
    "What costs least time is first. Memory is one GPU's.",
    (
        Thing(
            "FSDP2",
            "`fully_shard(layer, mp_policy=policy)` for each layer, `fully_shard(model, ...)`",
            (Source("distributed/sharding", ("fsdp2",)),),
            MIXED,
        ),
        Thing(
            "FSDP2, weights kept for the backward pass",
            NO_RESHARD,
            (Source("distributed/sharding", ("fsdp2_no_reshard",)),),
        ),
        Thing(
            "ZeRO-1",
            "`ZeroRedundancyOptimizer(parameters, AdamW)`",
            (Source("distributed/sharding", ("zero_1",)),),
        ),
        Thing(
            "FSDP2, states on the host",
            "`fully_shard(layer, offload_policy=CPUOffloadPolicy())`",
            (Source("distributed/sharding", ("fsdp2_offload",), cases="ranks:2/model:llama_1b"),),
        ),
        Thing(
            "pipeline parallelism",
            "`ScheduleInterleaved1F1B(stages, 4, loss_fn=loss)`",
            (
                Source(
                    "distributed/pipeline_parallel",
                    ("interleaved",),
                    cases="micro_batches:4/link:nvlink",
                ),
            ),
        ),
    ),
    saves=True,
    several=True,
)
SITUATIONS = (FASTER, WAITS, SMALLER, SEVERAL, SHARDED)
