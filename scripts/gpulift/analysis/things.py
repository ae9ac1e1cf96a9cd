"""What can be turned on, how, and where it was measured: the rows of results/BEGIN.md, as data.

What each is worth, and with it the order, comes from committed records (`analysis.begin_rows`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SOURCE = re.compile(r"(\S+): ([\w, ]+?)(?: > (\w+))?(?: @(\S+))?(?: = (.+))?")


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


def source(text: str) -> Source:
    """Of `technique: arm, arm > over @cases = job`, of which the last three may be left out."""
    match = SOURCE.fullmatch(text)
    assert match is not None, text
    technique, arms, *others = match.groups(default="")
    return Source(technique, tuple(arms.split(", ")), *others)


def thing(words: str, how: str, *sources: str, note: str = "") -> Thing:
    """With its sources as texts."""
    return Thing(words, how, tuple(map(source, sources)), note)


TF32 = thing(
    "TF32",
    '`torch.set_float32_matmul_precision("high")`',
    "job/ladder: tf32 > torch_default",
    "precision/training_step: tf32 > fp32",
    note="of products with weights: convolutions have it as torch comes",
)
BF16 = thing(
    "BF16",
    '`with torch.autocast("cuda", torch.bfloat16):`',
    "job/ladder: bf16 > tf32",
    "precision/training_step: bf16 > tf32",
)
COMPILE = thing(
    "`torch.compile`",
    "`layer.compile()` for each layer, `torch.compile(loss)`",
    "job/ladder: compiled > fused_adamw",
    "compile/regions: layers",
    "job/step: compiled",
    "compile/torch_compile: default",
    note=(
        "an eighth of Llama 8B starts in 17 s, not 2.4, which 2,500 steps pay; with"
        " `TORCHINDUCTOR_CACHE_DIR` as the last start left it in 6, which 600 pay (H200; on a"
        " faster host in 13 and 5)"
    ),
)
FP8 = thing(
    "FP8 linear layers",
    "`torchao.float8.convert_to_float8_training(model.layers)`: not the output layer",
    "job/ladder: fp8 > compiled",
    "precision/fp8_step: tensorwise @form:compiled",
    "job/step: fp8 > compiled",
    note="only behind `torch.compile`",
)
LOSS = thing(
    "the loss compiled alone",
    "`torch.compile(loss_of)` of the last product and cross entropy",
    "loss/chunked_cross_entropy: compiled",
    note="in an eager model; a compiled one may have it already",
)
NO_RESHARD = "`fully_shard(layer, mp_policy=policy, reshard_after_forward=False)`"
MIXED = "`policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)`, and no autocast"
FASTER = Situation(
    "One GPU, and the model fits: faster",
    "What brings most to Llama 1B is first, then what other jobs can turn on.",
    (
        TF32,
        BF16,
        COMPILE,
        thing(
            "fused AdamW",
            "`AdamW(..., fused=True)`",
            "job/ladder: fused_adamw > bf16",
            "optimizer/step_share: fused > foreach",
        ),
        FP8,
        LOSS,
        thing(
            "documents packed, not padded",
            "`torch.nn.attention.varlen.varlen_attn(..., window_size=(-1, 0))`, or FlexAttention"
            " with a document mask",
            "attention/document_mask: variable_length @lengths:chat$ = 4 layers of Llama 1B, chats",
            "attention/document_mask: variable_length @lengths:even$ = the same, documents of one"
            " length",
            note="the more, the more their lengths differ",
        ),
        thing(
            "a padded vocabulary",
            "`Embedding(50304, ...)` for 50257 words: a multiple of 64",
            "layout/vocabulary: padded @model:gpt2/form:eager = GPT-2",
            "layout/vocabulary: padded @model:gpt2/form:compiled$ = GPT-2, compiled",
            note="the compiler pads by itself",
        ),
        thing(
            "a library's norm, SwiGLU and rotary embedding",
            "`apply_liger_kernel_to_llama(fused_linear_cross_entropy=False)` of"
            " `liger_kernel.transformers`, for Hugging Face's Llama",
            "fusion/step_kernels: all @llama_1b/form:eager",
            "fusion/step_kernels: all @llama_1b/form:compiled = Llama 1B, compiled",
            note="not where it is compiled",
        ),
        thing(
            "`channels_last`, of convolutions",
            "`model.to(memory_format=torch.channels_last)`, images as well",
            "layout/channels_last: channels_last @model:(resnet50|mobilenet)/precision:bf16",
        ),
        thing(
            "fused attention",
            "`torch.nn.functional.scaled_dot_product_attention`",
            "attention/sdpa: cudnn, flash > explicit @model:gpt2_4_layers/tokens:2048",
            note="torch takes cuDNN's by itself on an H100, H200 or B200, else flash",
        ),
        thing(
            "experts in one grouped product, compiled",
            "`torch.nn.functional.grouped_mm`, `layer.compile()`",
            "moe/experts: grouped_compiled > grouped",
        ),
        thing(
            "linear attention by its packages",
            "`pip install flash-linear-attention tilelang causal-conv1d`: transformers takes what"
            " is there",
            "attention/linear: fla_conv1d > fallback @tokens:8192 = a layer of Qwen3-Next",
            "attention/linear: fla_conv1d @tokens:8192 = layers of Qwen3-Next",
            note="without them transformers falls back, 128 to 155 ms a layer, and tells its log"
            " alone; with them 8.1, or 12.2 without `causal-conv1d`, which `nvcc` builds",
        ),
    ),
)
WAITS = Situation(
    "One GPU, and it waits for the CPU or for data",
    "`./gpulift watch` says whether it does; where it does not, loaders bring nothing.",
    (
        thing(
            "loader processes",
            "`DataLoader(num_workers=cores)`",
            "input/pipeline: workers > naive @resnet50_256/cores:all",
            note="the one reader kept 13.8 cores busy with torch's own threads",
        ),
        thing(
            "bytes to the GPU, floats there",
            "send `uint8`; `.to(dtype).div_(255)` on the GPU",
            "input/pipeline: uint8 > pinned",
            "input/batch_type: uint8 @given:jpegs = a loader of JPEGs alone",
        ),
        thing(
            "pinned batches, copied while the step works",
            "`DataLoader(pin_memory=True)`, `.to(device, non_blocking=True)`",
            "input/pipeline: pinned > tensors",
            "transfer/training_prefetch: prefetch_stream",
        ),
        thing(
            "compiled with CUDA graphs",
            '`torch.compile(model, mode="reduce-overhead")`',
            "compile/torch_compile: reduce_overhead > default",
        ),
        thing(
            "a CUDA graph of the whole step",
            "`torch.cuda.graph(g)` around forward, backward and `AdamW(..., capturable=True)`",
            "launch/whole_step_graph: whole_step_graph @batch:large",
        ),
        thing(
            "checkpoints written beside training",
            "`import torch.distributed.checkpoint as dcp`, `dcp.async_save(...)`",
            "state/checkpoint: dcp_async > torch_save @model:llama_1b/cadence:keeps_up",
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
        thing(
            "a loss that never holds all logits",
            "`cut_cross_entropy.linear_cross_entropy(hidden, head, labels)`",
            "loss/chunked_cross_entropy: cut_cross_entropy",
        ),
        LOSS,
        thing(
            "`torch.compile` with half its memory",
            "`import torch._functorch.config`,"
            " `torch._functorch.config.activation_memory_budget = 0.5`",
            "job/frontier: budget @tokens:16384",
            note="behind `torch.compile`",
        ),
        thing(
            "activation checkpointing, of MLPs",
            "`checkpoint(self.mlp, x, use_reentrant=False)` within each layer",
            "job/frontier: mlp @tokens:16384",
        ),
        thing(
            "activation checkpointing, full",
            "`torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)`",
            "job/frontier: full @tokens:16384",
        ),
        thing(
            "activation checkpointing, full, and AdamW's states in 8 bits",
            "`checkpoint(layer, x, use_reentrant=False)`, `bitsandbytes.optim.AdamW8bit`",
            "job/frontier: full_optimizer_in_8_bits @tokens:16384",
        ),
        thing(
            "gradient accumulation",
            "four micro-batches, one `optimizer.step()`",
            "batch/gradient_accumulation: micro_4 @model:gpt2/equal:batch",
            "batch/gradient_accumulation: micro_4 @equal:batch",
        ),
        thing(
            "frozen weights in 4 bits (QLoRA over LoRA)",
            "`bitsandbytes.nn.Linear4bit`",
            "precision/qlora: qlora",
            note="the rounding of the frozen weights is not in its error",
        ),
        thing(
            "activation checkpointing, of MLPs, and other activations offloaded to the host",
            "`trl.models.activation_offloading.OffloadActivations`",
            "job/frontier: mlp_rest_on_host @tokens:16384",
            note="as `benches/job/frontier.py` does it: compiled layers need more than the import",
        ),
        thing(
            "activation checkpointing, full, and half of AdamW offloaded to the host",
            "`torchao.optim.CPUOffloadOptimizer` of the last half of the layers",
            "job/frontier: full_half_optimizer_on_host @tokens:16384",
            note="of long rows: the backward pass hides it. On the host 8 GiB and 1.4 CPU seconds a"
            " step; a gradient clipped after the backward pass is not the one it takes",
        ),
    ),
    saves=True,
)
REPEATS = Situation(
    "One GPU, and each run is to give the same bits",
    "What that costs. Llama 1B's gradients then have the same bits in each process, on one H200;"
    " without, others each time.",
    (
        thing(
            "deterministic algorithms",
            "`CUBLAS_WORKSPACE_CONFIG=:4096:8`, `torch.use_deterministic_algorithms(True)`",
            "job/determinism: on",
        ),
        thing(
            "deterministic algorithms, new tensors not filled",
            "`torch.use_deterministic_algorithms(True)`,"
            " `torch.utils.deterministic.fill_uninitialized_memory = False`",
            "job/determinism: on_no_fill",
        ),
        thing(
            "deterministic attention alone",
            "`torch.use_deterministic_algorithms` around attention, in its backward pass, too, and"
            " off elsewhere",
            "job/determinism: attention",
            note="enough for Llama 1B; new tensors are not filled; in `benches/job/determinism.py`",
        ),
    ),
)
SEVERAL = Situation(
    "Several GPUs, and the model fits on one: faster",
    "Each GPU has a batch of its own, but where a row says otherwise. What brings most to Llama 1B"
    " is first, then what other jobs can turn on.",
    (
        thing(
            "DistributedDataParallel",
            "`DistributedDataParallel(model)`",
            "distributed/data_parallel: ddp @gpus:4",
            "distributed/data_parallel: ddp @gpus:2/.*scaling:weak",
            note="of Llama 1B one GPU and several are compiled alike",
        ),
        thing(
            "FSDP2 in place of DDP, weights kept for the backward pass",
            NO_RESHARD,
            "distributed/sharding: fsdp2_no_reshard",
            note=MIXED,
        ),
        thing(
            "tensor parallelism beside FSDP2",
            "`parallelize_module(layer, mesh, plan)`",
            "distributed/tensor_parallel: tp2 @link:nvlink",
            note="1.05 with `torch._inductor.config._micro_pipeline_tp` and symmetric memory",
        ),
        thing(
            "larger buckets",
            "`DistributedDataParallel(model, bucket_cap_mb=100)`",
            "distributed/overlap: buckets_100 @link:nvlink/network:llama$",
            "distributed/overlap: buckets_100 @link:nvlink",
        ),
        thing(
            "`no_sync` between updates",
            "`with model.no_sync():` for all micro-batches but the last",
            "distributed/no_sync: exchange_last @link:nvlink/micro_batches:4",
        ),
        thing(
            "gradients in 16 bits",
            "`model.register_comm_hook(None, bf16_compress_hook)`",
            "distributed/gradient_compression: bf16_hook @llama_1b/link:host",
            "distributed/gradient_compression: bf16_hook @gpt2/link:host = GPT-2 over the host's"
            " link",
            "distributed/gradient_compression: bf16_hook @gpt2/link:nvlink = GPT-2 over NVLink",
        ),
        thing(
            "sharded checkpoints, written beside training",
            "`import torch.distributed.checkpoint as dcp`, `dcp.async_save(...)` from all ranks",
            "distributed/checkpoint_sharded: dcp_async",
            note="a save every 20 steps",
        ),
    ),
    several=True,
)
SHARDED = Situation(
    "Several GPUs, and the model does not fit on one",
    "What costs Llama 1B least time is first, then what other jobs can turn on. Memory is one"
    " GPU's.",
    (
        thing(
            "FSDP2",
            "`fully_shard(layer, mp_policy=policy)` for each layer, `fully_shard(model, ...)`",
            "distributed/sharding: fsdp2",
            note=MIXED,
        ),
        thing(
            "FSDP2, weights kept for the backward pass",
            NO_RESHARD,
            "distributed/sharding: fsdp2_no_reshard",
        ),
        thing(
            "ZeRO-1",
            "`ZeroRedundancyOptimizer(parameters, AdamW)`",
            "distributed/sharding: zero_1",
        ),
        thing(
            "FSDP2, states on the host",
            "`fully_shard(layer, mp_policy=policy, offload_policy=CPUOffloadPolicy())`",
            "distributed/sharding: fsdp2_offload @ranks:2/model:llama_1b",
        ),
        thing(
            "pipeline parallelism",
            "`ScheduleInterleaved1F1B(stages, 4, loss_fn=loss)`",
            "distributed/pipeline_parallel: interleaved @micro_batches:4/link:nvlink",
        ),
    ),
    saves=True,
    several=True,
)
SITUATIONS = (FASTER, WAITS, SMALLER, REPEATS, SEVERAL, SHARDED)
