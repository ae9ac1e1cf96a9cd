"""distributed/data_parallel: one model on several GPUs, each with rows of its own."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.distributed as dist
from gpulift_work.distributed import Group, Replica, arm_of, idle_arm, join, nodes
from gpulift_work.training import TWINS
from gpulift_worker import Arm, Skip
from torch import nn
from torch.nn.parallel import DataParallel

TECHNIQUE = {
    "question": "How much faster do several GPUs train a model by data parallelism, and by which "
    "of its forms?",
    "expectation": """
        Two H100 with NVLink, all-reduces at 330 GB/s, per image or token, against one GPU that is
        compiled where they are. ddp copies gradients into buckets and back, 4 passes at 2.8 TB/s;
        the embedding's, which no layer waits for, are there when the backward pass ends, and their
        exchange shows. GPT-2, 8 x 1024 tokens, 27 ms, compiled 18: 498 MB in 1.5 ms, of which the
        embedding's third shows, 0.5 ms, and the copies take 0.7: 1.91, compiled 1.86. Views of
        buckets with a static graph leave the copies out: 1.95, compiled 1.92. llama_1b, 2 x 4096
        tokens, 180 ms, compiled 145: 4.9 GB in 15 ms, of which the embedding's 1.05 GB show, 3.2
        ms; NCCL's kernels take 1.5 ms from the pass behind which the rest hides; copies 7 ms: 1.88,
        compiled 1.85, with views 1.95 and 1.93. ResNet-50, 256 images, 74 ms, compiled 62: 102 MB
        in 0.3 ms, mostly hidden: 1.97 to 2. Where the batch is split (strong), a GPU's half takes
        half the time but for the optimizer's, 13 ms of llama_1b and 1.5 of GPT-2, and the exchange
        is the same: llama_1b 180 against 97 + 12: 1.66, views 1.78, compiled 145 against 79 + 12:
        1.6 and 1.73; GPT-2 is 15 ms of GPU, which launches outlast, 18: 1.5; compiled 10 + 1.3:
        1.6; ResNet-50 1.85. DataParallel in one process copies the model to the other GPU in each
        step, and its two threads share Python's lock: llama_1b, 13 ms of copies each way and as
        many launches as the GPU has time for: 1.55; ResNet-50 1,000 launches for each GPU in 120
        ms: 1.2; GPT-2 1,900 in 160 ms: 0.35. Gloo takes gradients through the host at 2.1 GB/s:
        GPT-2 0.28 s a step, 0.19.
    """,
    "predict": [
        "gpus:2/model:llama_1b/scaling:weak/compiled:yes @h200: one_gpu 130-140 ms, ddp"
        " 1.78-1.87, ddp_static_views 1.79-1.88",
        "gpus:2/model:gpt2/scaling:weak/compiled:no @h100: one_gpu 24-30 ms, ddp 1.85-1.95,"
        " ddp_static_views 1.9-1.98, data_parallel 0.28-0.5, ddp_gloo 0.15-0.23",
        "gpus:2/model:gpt2/scaling:weak/compiled:yes @h100: one_gpu 16-20 ms, ddp 1.75-1.92,"
        " ddp_static_views 1.85-1.96",
        "gpus:2/model:gpt2/scaling:strong/compiled:no @h100: ddp 1.3-1.7, ddp_static_views 1.3-1.7",
        "gpus:2/model:gpt2/scaling:strong/compiled:yes @h100: ddp 1.4-1.75,"
        " ddp_static_views 1.45-1.8",
        "gpus:2/model:llama_1b/scaling:weak/compiled:no @h100: one_gpu 175-195 ms, ddp 1.83-1.93,"
        " ddp_static_views 1.91-1.98, data_parallel 1.35-1.75",
        "gpus:2/model:llama_1b/scaling:weak/compiled:yes @h100: one_gpu 138-153 ms, ddp 1.8-1.9,"
        " ddp_static_views 1.88-1.96",
        "gpus:2/model:llama_1b/scaling:strong/compiled:no @h100: ddp 1.58-1.74,"
        " ddp_static_views 1.7-1.84",
        "gpus:2/model:llama_1b/scaling:strong/compiled:yes @h100: ddp 1.52-1.68,"
        " ddp_static_views 1.65-1.8",
        "gpus:2/model:resnet50_256/scaling:weak/compiled:no @h100: one_gpu 67-81 ms,"
        " ddp 1.95-2.01, ddp_static_views 1.96-2.01, data_parallel 0.9-1.5",
        "gpus:2/model:resnet50_256/scaling:weak/compiled:yes @h100: one_gpu 52-70 ms,"
        " ddp 1.93-2.01, ddp_static_views 1.94-2.01",
        "gpus:2/model:resnet50_256/scaling:strong @h100: ddp 1.75-1.95, ddp_static_views 1.75-1.96",
    ],
    "found": """
        Two H200s, llama_1b compiled, weak, three launches: one GPU 137.5 ms, ddp 1.80, with views
        and a static graph 1.815 and not 1.92. Gradients that are set to None come anew in each step
        and are copied into their views all the same, so that views save the copies out alone. An
        all-reduce takes 14.4 ms and 15.1 show. A trace of a plain program (transformers' Llama,
        buckets of 100 MB) has NCCL's kernels at work for 44 ms, most beside the backward pass; what
        the pass loses was not measured. The embedding's 4.5 ms begin when the pass has ended.
        Of an earlier GPT-2, whose output layer was slower, on two H100s, one launch: DataParallel
        0.53, whose 1,891 launches from two threads take 161 ms, and the host bounds them; Gloo
        0.30: it all-reduces at 2.1 GB/s, and a step takes 0.28 s. With cuDNN's search on, which
        torch leaves off, DataParallel had 0.03 with ResNet-50: it has new threads in each step, and
        cuDNN keeps what it found by thread (pytorch/pytorch#191744).
    """,
    "claims": [
        "data-parallel-faster",
        "more-gpus-double-speed",
        "data-parallel-more-memory",
        "ddp-faster-than-data-parallel",
        "nccl-fastest",
    ],
    "gpus": 2,
    "whole_steps": True,
    "spans_hosts": True,
    "arms": ["one_gpu", "ddp", "ddp_static_views", "data_parallel", "ddp_gloo"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": {
        "ddp": "gpus",
        "ddp_static_views": "gpus",
        "data_parallel": "gpus",
        "ddp_gloo": "gpus",
    },
    "sweep": {
        "gpus": [2, 4, 8],
        "model": ["resnet50_256", "gpt2", "llama_1b"],
        "scaling": ["weak", "strong"],
        "compiled": ["no", "yes"],
    },
    "check": {
        "meaning": "gradients of FP32 against those of all ranks' rows in FP64, relative, or FP32 "
        "where FP64 does not fit; compiled ones of BF16 against FP32; ranks hold the same bits",
        "tolerance": 1e-5,
    },
}
GLOO_MODELS = ("gpt2", "gpt_toy")  # a step of others takes seconds
UNCOMPILED = ("data_parallel", "ddp_gloo")
WRAPPINGS: Mapping[str, Callable[[Replica], object]] = {
    "one_gpu": Replica.wrap,
    "ddp": Replica.wrap,
    "ddp_gloo": Replica.wrap,
    "ddp_static_views": partial(Replica.wrap, gradient_as_bucket_view=True, static_graph=True),
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A replica on each rank; DataParallel drives all GPUs from the first."""
    name, parts, compiled = str(point["model"]), int(point["gpus"]), point["compiled"] == "yes"
    require_worth(arm, name, compiled)
    group = join("any", gpu, backend="gloo" if arm == "ddp_gloo" else "")
    torch.backends.cudnn.benchmark = False  # DataParallel's threads would search in each step
    rows = rows_of_shard(TWINS[name].batch, parts, str(point["scaling"]), arm)
    if arm == "data_parallel":
        return drive_all(name, group, seed, rows)
    replica = Replica(name, group, seed, batch=rows)
    if compiled:
        replica.compile()
    return arm_of(replica, exchanging=WRAPPINGS[arm])


def require_worth(arm: str, name: str, compiled: bool) -> None:
    """Throws Skip where others tell what an arm is worth."""
    if arm == "data_parallel" and nodes() > 1:
        raise Skip("one process drives the GPUs of its own host alone", "see ddp")
    if compiled and arm in UNCOMPILED:
        raise Skip(f"{arm} is not compiled", "see compiled:no")
    if arm == "ddp_gloo" and name not in GLOO_MODELS:
        raise Skip(f"a step of {name} over Gloo takes long and tells no more", "see gpt2")


def rows_of_shard(batch: int, parts: int, scaling: str, arm: str) -> int:
    """Of a batch for one GPU. Throws Skip where it cannot be split."""
    if scaling == "weak":
        return batch
    if batch % parts != 0:
        raise Skip(f"a batch of {batch} cannot be split among {parts} GPUs")
    return batch if arm == "one_gpu" else batch // parts


class InBf16(nn.Module):
    """A model whose autocast is of BF16: in DataParallel's threads torch's is of FP16."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        kind = batch[0].device.type
        with torch.autocast(kind, torch.bfloat16, enabled=torch.is_autocast_enabled(kind)):
            loss: torch.Tensor = self.model(*batch)
        return loss


def drive_all(name: str, group: Group, seed: int, rows: int) -> Arm:
    """The first rank trains on the GPUs of all, as DataParallel does; the others leave theirs to
    it."""
    indices: list[int | None] = [None] * group.ranks
    dist.all_gather_object(indices, group.device.index)
    if group.rank > 0:
        return idle_arm(group)
    replica = Replica(name, group, seed, batch=rows, drives_all=True)
    # Each GPU's loss is a scalar, which is meant.
    warnings.filterwarnings("ignore", "Was asked to gather along dimension 0")

    def scatter(replica: Replica) -> None:
        parallel = DataParallel(InBf16(replica.loss_of), device_ids=indices)
        replica.forward = lambda inputs, targets: parallel(inputs, targets).mean()

    return arm_of(replica, exchanging=scatter)
