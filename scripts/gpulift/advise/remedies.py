"""The line of a script or shell that brings each change to stay."""

from __future__ import annotations

from collections.abc import Iterable

from gpulift.advise.evidence import Facts

ATTENTION = "with torch.nn.attention.sdpa_kernel(SDPBackend.{}): around the forward pass"
# By the name of a change, which may end in a number.
LINES = {
    "tf32": 'torch.set_float32_matmul_precision("high")',
    "cudnn_search": "torch.backends.cudnn.benchmark = True",
    "attention_cudnn": ATTENTION.format("CUDNN_ATTENTION"),
    "attention_flash": ATTENTION.format("FLASH_ATTENTION"),
    "attention_efficient": ATTENTION.format("EFFICIENT_ATTENTION"),
    "bf16": 'with torch.autocast("{device}", torch.bfloat16): around forward pass and loss',
    "foreach": "{optimizer}(..., foreach=True)",
    "fused": "{optimizer}(..., fused=True)",
    "set_to_none": "optimizer.zero_grad(set_to_none=True)",
    "compile": "model.compile() ahead of the first step",
    "compile_all": "model.compile() ahead of the first step",
    "reads": "read values (.item(), float(loss), .cpu()) every 50 steps, not at each",
    "synchronize": "leave out torch.cuda.synchronize()",
    "anomaly": "leave out torch.autograd.set_detect_anomaly(True)",
    "fill": "torch.utils.deterministic.fill_uninitialized_memory = False",
    "deterministic": "leave out torch.use_deterministic_algorithms(True) and cudnn.deterministic",
    "data_parallel": "leave out nn.DataParallel",
    "unread": "requires_grad_(False) of what no optimizer has, or give it to one",
    "second_pass": "take metrics from the output of the step itself",
    "exchange": "fewer or smaller exchanges of gradients",
    "no_sync": "with model.no_sync(): around all passes ahead of a step but the last",
    "reshard": "fully_shard(..., reshard_after_forward=False)",
    "bucket": "DistributedDataParallel(..., bucket_cap_mb={number})",
    "bucket_view": "DistributedDataParallel(..., gradient_as_bucket_view=True)",
    "static_graph": "DistributedDataParallel(..., static_graph=True)",
    "find_unused": "DistributedDataParallel(..., find_unused_parameters=False)",
    "bf16_gradients": "model.register_comm_hook(None, default_hooks.bf16_compress_hook)",
    "workers": "DataLoader(..., num_workers={number})",
    "prefetch": "DataLoader(..., prefetch_factor={number})",
    "pinned": "DataLoader(..., pin_memory=True), and .to(device, non_blocking=True) of its batches",
    "expandable_segments": "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "malloc": "set it in the environment of the command",
    "threads": "call it ahead of the first step",
    "channels_last": "model.to(memory_format=torch.channels_last), and inputs likewise",
    "vary": "append it to the command",
}
KINDS = {  # of changes that exclude one another; others are of their own
    "fused": "foreach",
    "compile_all": "compile",
    "deterministic": "fill",
    "attention_cudnn": "attention",
    "attention_flash": "attention",
    "attention_efficient": "attention",
}
NUMBERED = ("bucket", "workers", "prefetch", "vary")


def remedy(name: str, label: str, facts: Iterable[Facts], on_gpu: bool) -> str:
    """What to do for a change: its label, and the line where there is one."""
    kind, number = _parted(name)
    optimizers = [optimizer for one in facts for optimizer in one.optimizers]
    line = LINES.get(kind, "").format(
        number=number,
        optimizer=optimizers[0] if optimizers else "AdamW",
        device="cuda" if on_gpu else "cpu",
    )
    return f"{label}: {line}" if line else label


def kind(name: str) -> str:
    """Of the changes of one kind only one can be made."""
    parted, _ = _parted(name)
    return name if parted == "vary" else KINDS.get(parted, parted)


def draws_anew(name: str) -> bool:
    """Whether the change gives the loader other processes, each with random numbers of its own."""
    return kind(name) == "workers"


def without_number(name: str) -> str:
    """The name as it is in LINES."""
    return _parted(name)[0]


def _parted(name: str) -> tuple[str, str]:
    beginning, _, number = name.rpartition("_")
    numbered = beginning in NUMBERED and number.isdecimal()
    return (beginning, number) if numbered else (name, "")
