"""distributed/tensor_parallel: a model split within its layers, or by whole weights."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_work.distributed import Group, join
from gpulift_work.llama import Llama
from gpulift_work.sharded import Sharded, sharded_arm
from gpulift_work.training import make_optimizer
from gpulift_worker import Arm, Failed, Skip
from torch import nn
from torch._inductor import config as inductor_config
from torch.distributed import _symmetric_memory
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

TECHNIQUE = {
    "question": "Is a model whose state two GPUs share trained faster when they share each layer's "
    "products, too, or when each gathers whole layers for its half of the batch?",
    "expectation": """
        llama_8b_slice, 0.94 G weights, 2 rows of 4096 tokens, 24.4 TFLOP a GPU in either way: 38 ms
        at 640 TFLOP/s; passes between products 11, and half of AdamW and of clipping 6.5. FSDP2
        gathers weights of 1.9 GB in BF16 twice and scatters gradients of 3.8 GB, 2.8 + 2.8 + 5.7 ms
        at 330 GB/s beside the products, of which the first layer's and the last's, 2 ms, show, and
        copies in and out, 4: 59 ms. tp2 exchanges activations: norms and residuals are split by
        tokens, so that a layer gathers twice and scatters twice in either pass, each time 67 MB,
        half of which passes the link: 0.13 ms, in the open, 36 times, 5 ms; weights are cast, 2,
        and nothing is copied, but a loss by parts of the vocabulary is not compiled, 1: 63 ms,
        0.94. tp2_async cuts products in two, of which the first hides half of the exchange, and
        loses 1 ms of their speed: 0.95. Through the host, 26 GB/s: FSDP2 150 ms, since 3.8 GB are
        more than products hide; tp2 36 x 1.3 ms: 104 ms, 1.4.
    """,
    "predict": [
        "link:nvlink @h200: fsdp2 55-60 ms, tp2 1.0-1.05, tp2_async 1.02-1.07",
        "link:nvlink @h100: fsdp2 54-64 ms, tp2 0.85-1, tp2_async 0.85-1.05",
        "link:host @h100: fsdp2 120-180 ms, tp2 1.2-1.6",
    ],
    "found": """
        Two H200s, three launches: fsdp2 58.7 ms, tp2 1.03 and tp2_async 1.05 of its speed, at 10.2,
        10.6 and 10.7 GB. So exchanging activations costs 7 ms less than was expected and no more
        than gathering weights does.
    """,
    "whole_steps": True,
    "arms": ["fsdp2", "tp2", "tp2_async"],
    "l2": "cold",
    "page_cache": "none",
    "ranks": 2,
    "sweep": {"link": ["nvlink", "host", "gloo"]},
    "check": {
        "meaning": "clipped gradients of the first step that is timed against those of one process "
        "in FP32, relative to their norm; its update is that of its gradients",
        "tolerance": 0.15,
    },
}
MODEL_OF = {"nvlink": "llama_8b_slice", "host": "llama_8b_slice", "gloo": "llama_toy"}
BETWEEN = Shard(1)  # what is between products is split by tokens


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A part of each layer, or of all weights, on each of two ranks."""
    link = str(point["link"])
    if arm == "tp2_async" and link != "nvlink":
        raise Skip("it reads the other GPU's memory by NVLink alone", "take link:nvlink")
    group = join(link, gpu)
    mesh = init_device_mesh(group.device.type, (group.ranks,))
    if arm == "tp2_async":
        pipeline_products(mesh)
    arms = {"fsdp2": shard_weights, "tp2": Split, "tp2_async": Split}
    made = sharded_arm(arms[arm](MODEL_OF[link], group, seed, mesh))
    return replace(made, error=lambda: error_of_fused(made)) if arm == "tp2_async" else made


def shard_weights(name: str, group: Group, seed: int, mesh: DeviceMesh) -> Sharded:
    """A half of the batch on each rank."""
    sharded = Sharded(name, group, seed)
    sharded.compile_all()
    sharded.shard(mesh)
    return sharded


class Split(Sharded):
    """All of the batch on each rank, and a part of each layer, as torchtitan splits a Llama."""

    def __init__(self, name: str, group: Group, seed: int, mesh: DeviceMesh) -> None:
        super().__init__(name, group, seed, drives_all=True)
        parallelize_module(self.model, mesh, plan())
        # Of a tensor that is still on its way, which its exchange leaves, torch 2.11 compiles the
        # first layer by itself, and its gradients were wrong. A copy has arrived.
        self.model.embed_tokens.register_forward_hook(lambda *called: called[-1].clone())
        self.forward = self.loss_of = LossByParts(self.model)
        self.compile_layers()
        self.optimizer = make_optimizer(name, list(self.model.parameters()))
        self.clip = partial(self._clip_sums, self.clip)

    def _clip_sums(self, clip: Callable[[], object]) -> None:
        """Of a norm's weight each rank has its tokens' part of the gradient: Torch 2.11 would clip
        a sum of those that it drops (_foreach_mul_ on DTensors), and not the gradient."""
        for parameter in self.model.parameters():
            weight: Any = parameter
            weight.grad = weight.grad.redistribute(placements=weight.placements)
        clip()

    def backward(self, *batch: Any, **options: Any) -> None:
        """With logits and their gradients by parts of the vocabulary."""
        with loss_parallel():
            super().backward(*batch, **options)


class LossByParts(nn.Module):
    """The mean cross entropy of a model whose output layer is split by words."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        hidden: Any = self.model.hidden(tokens)
        state = hidden.redistribute(placements=[Replicate()])
        logits = nnf.linear(state, self.model.output_weight).flatten(0, 1)
        return nnf.cross_entropy(logits.float(), target.flatten())


def plan() -> dict[str, ParallelStyle]:
    """Of a Llama: heads, hidden units and words over the ranks, and tokens between them."""
    whole = {"input_layouts": BETWEEN, "desired_input_layouts": Replicate()}
    first = {key: (layout, None, None) for key, layout in whole.items()}  # and two that are whole
    layer: dict[str, ParallelStyle] = {
        "input_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(**first),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        "self_attn.o_proj": RowwiseParallel(output_layouts=BETWEEN),
        "post_attention_layernorm": SequenceParallel(),
        "mlp": PrepareModuleInput(**whole),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=BETWEEN),
    }
    return {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=BETWEEN),
        "norm": SequenceParallel(),
        **{f"layers.*.{name}": style for name, style in layer.items()},
    }


def pipeline_products(mesh: DeviceMesh) -> None:
    """Has the compiler cut products beside an exchange, of which one part hides another's."""
    # Copies out of the other GPU's memory are all that it takes.
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    inductor_config._micro_pipeline_tp = True
    # Of each exchange that no product is next to, it says that there is none.
    logging.getLogger("torch._inductor.fx_passes.micro_pipeline_tp").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "no need", but the compiler asks for it
        _symmetric_memory.enable_symm_mem_for_group(mesh.get_group().group_name)


def error_of_fused(made: Arm) -> float:
    """The arm's, after its first step. Throws Failed where no product was fused in it."""
    if not _symmetric_memory._group_name_to_workspace_tensor:
        raise Failed("the compiler fused no product with its exchange")
    assert made.error is not None
    return made.error()
