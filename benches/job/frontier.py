"""job/frontier: what long sequences leave to choose between, time and memory: what is made again in
the backward pass, and what the host keeps until then."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_work import jobs
from gpulift_work.fitting import WithHost, offload_optimizer, rule_of, run_again, set_budget
from gpulift_work.jobs import calm_layers
from gpulift_work.llama import LLAMA_SIZES, causal_shared_attention
from gpulift_work.losses import LossOfHidden
from gpulift_work.references import Reference
from gpulift_work.training import (
    TEXT_SIZES,
    TWINS,
    Training,
    device_of,
    free_memory,
    keep_the_compiler_quiet,
    require_compiler,
    require_gpu_for,
    set_up,
)
from gpulift_worker import Arm, Failed, Skip, spent
from torch.utils.checkpoint import checkpoint

TECHNIQUE = {
    "question": "Of a long sequence, what should be made again and what kept on the host: which "
    "step is the fastest in how much memory, and at which length does the order turn?",
    "expectation": """
        One row of T tokens, BF16, AdamW in one kernel, each layer compiled, and cut cross entropy
        in all arms, so that logits hide nothing. llama_1b on an H200, at 700 TFLOP/s, 4.2 TB/s, and
        55 GB/s to the host. Weights and moments are 14.8 GB. A layer keeps 82 KB a token, of which
        48 are inside of its MLP, 10 of its attention and 8 its input, and its weights in BF16. So
        none has its peak where the backward pass begins: 18 GB and 1.34 MB a token are 23.5 GB of
        4096, 40 of 16384, 62 of 32768 and 106 of 65536. No arm is below the end of that pass, when
        all gradients are there: 21.3 GB, and 0.12 MB a token for the layer that is at work. A step
        of none takes 13 ms, 12.75 us a token, and attention at 490 TFLOP/s forward and 430
        backward: 77 ms, 364 ms, 0.98 s and 3.05 s. Attention made again takes 0.45 us a token and
        its forward pass, 2.6, 38, 143 and 568 ms: 0.945, 0.89, 0.86 and 0.835, for 0.16 MB a token,
        so it is on no frontier. An MLP made again takes 1.7 us a token, 0.915, 0.93, 0.945 and
        0.965, for 0.8 MB: 21.7, 27.6, 38 and 60 GB. Half of the compiler's budget drops weights in
        BF16, what norms and SwiGLU made, and few products: 1.1 us, 0.955, 0.945, 0.96 and 0.975, at
        21.7, 29, 41 and 65 GB. Full takes 2.55 us and attention: 0.855, 0.82, 0.815 and 0.805, at
        21.7, 23.3, 26 and 35 GB. With its inputs on the host, 131 KB a token that are copied behind
        the work, it is 1 to 2 % slower, and smaller only where the pass begins with its peak: 30 GB
        of 65536. The MLP made again and all else on the host are 0.54 MB a token each way, 10.5 us
        of the link, behind a forward pass of 5.3 us a token of 4096 and 13 of 65536: 0.7, 0.78,
        0.885 and 0.955, at 22, 23.5, 26.5 and 32 GB. So the order of these two turns at 22,000
        tokens: in shorter rows full is faster, in longer ones the host, in as much memory. Full
        with AdamW of half of the layers on the host, 486 M weights, has 3.9 GB less. Its 13.6 GB at
        30 to 40 GB/s, 0.32 to 0.45 s, begin with the first gradients, so that the rest of a long
        backward pass hides them: 0.19, 0.64, 0.79 and 0.8. Full with moments in 8 bits, the
        embedding's, too, has 7.4 GB less, 14.6 of 16384 tokens: 16 bytes a weight pass in place of
        28, 4 ms less, but the library waits for the GPU after each of 146 weights, which took an
        H100 35 ms a step: 0.62, 0.77, 0.79 and 0.8. On the frontier are none, budget and MLP; then
        full of 4096 and 16384 tokens, and from 32768 on the MLP with the rest on the host in its
        place; and last the optimizer, half of it on the host, in long rows as fast as full, or in 8
        bits. What passes from layer to layer is in FP32, as autocast leaves it: in 16 bits the host
        would get half. llama_8b_slice has 4 layers of twice the width, and half of the attention
        for three quarters of the weights: 65536 tokens take 1.6 s, full 0.81, the host 0.93. No
        wheel that is locked here overlaps such copies: torch's save_on_cpu waits for each and
        copies weights as well, and its compiler moves only what is marked, by nothing yet. The arms
        on the host have torchtune's OffloadActivations as TRL keeps it, around a whole step as
        there, with what comes back laid as it was, and are skipped without. Its forward pass waits
        for all but the last 5 tensors, and a compiled layer with its MLP made again hands over 22
        at once, and on a GPU some more: of these two layers' may stay, 4.5 GB of 65536. Not
        measured: other budgets and fractions, and several rows.
    """,
    "predict": [
        "model:llama_1b/tokens:4096 @h200: none 70-92 ms, attention 0.91-0.97, mlp 0.88-0.95,"
        " budget 0.91-0.985, full 0.81-0.9, full_checkpoints_on_host 0.76-0.89,"
        " mlp_rest_on_host 0.5-0.78, full_half_optimizer_on_host 0.11-0.3,"
        " full_optimizer_in_8_bits 0.5-0.8",
        "model:llama_1b/tokens:16384 @h200: none 335-395 ms, attention 0.86-0.92, mlp 0.9-0.95,"
        " budget 0.91-0.97, full 0.79-0.85, full_checkpoints_on_host 0.77-0.84,"
        " mlp_rest_on_host 0.7-0.85, full_half_optimizer_on_host 0.5-0.72,"
        " full_optimizer_in_8_bits 0.72-0.83",
        "model:llama_1b/tokens:32768 @h200: none 0.91-1.06 s, attention 0.83-0.89,"
        " mlp 0.92-0.965, budget 0.93-0.98, full 0.78-0.84, full_checkpoints_on_host 0.76-0.83,"
        " mlp_rest_on_host 0.81-0.93, full_half_optimizer_on_host 0.7-0.83,"
        " full_optimizer_in_8_bits 0.75-0.83",
        "model:llama_1b/tokens:65536 @h200: none 2.8-3.35 s, attention 0.8-0.87,"
        " mlp 0.945-0.98, budget 0.95-0.99, full 0.775-0.835,"
        " full_checkpoints_on_host 0.76-0.83, mlp_rest_on_host 0.89-0.97,"
        " full_half_optimizer_on_host 0.75-0.835,"
        " full_optimizer_in_8_bits 0.76-0.835",
        "model:llama_8b_slice/tokens:65536 @h200: none 1.4-1.85 s, attention 0.82-0.92,"
        " mlp 0.9-0.96, budget 0.91-0.98, full 0.79-0.87, full_checkpoints_on_host 0.76-0.86,"
        " mlp_rest_on_host 0.8-0.96,"
        " full_optimizer_in_8_bits 0.77-0.87",
    ],
    "found": (
        "On two H200s, 16384 tokens: the budget has 0.87 and 26.7 GB, not 0.955 and 29: its 55 ms "
        "are what 1.1 us a token and attention's forward pass take together, so that it seems to "
        "make attention again, too. Half of the optimizer on the host has 0.86, not 0.64: a step "
        "takes 1.3 to 1.7 CPU seconds more than full's, 0.1 s on 16 cores where 0.4 were "
        "reckoned, which the backward pass hides. It is 11 and 13 ms shorter than full, of which 3 "
        "are AdamW's of these layers on the card; what takes the others is not known. Its energy "
        "is that of 703 W, full's of 680."
    ),
    "gpus": 1,
    "whole_steps": True,
    "arms": [
        "none",
        "attention",
        "mlp",
        "budget",
        "full",
        "full_checkpoints_on_host",
        "mlp_rest_on_host",
        "full_half_optimizer_on_host",
        "full_optimizer_in_8_bits",
    ],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {
        "model": ["llama_1b", "llama_8b_slice", "llama_toy"],
        "tokens": [4096, 16384, 32768, 65536],
    },
    "check": {
        "meaning": "gradients of the first step against TF32's with attention in BF16, relative to "
        "their norm; losses of two steps; each parameter's cosine and norm",
        "tolerance": 0.03,  # BF16, logits not cut: 0.0081 of llama_1b, two rows of 4096, on an H200
    },
}
SAMPLE = 8  # of a weight
CHUNK = 2048  # tokens whose logits the reference holds at once
OF_TWO_LAYERS = 50  # tensors that two compiled layers keep which make their MLPs again


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training step on one row of so many tokens."""
    name = at_length(str(point["model"]), int(point["tokens"]))
    require_gpu_for(name, gpu)
    device = device_of(gpu)
    if arm.endswith("on_host") and device.type == "cpu":
        raise Skip("the library's part of this arm needs a GPU", "use a machine with one")
    require_compiler(device)
    keep_the_compiler_quiet()
    threads = set_up(device)
    job = Job(name, device, seed, arm)
    roof = "" if "toy" in name else "gemm/bf16"
    return job.arm(threads, compiles=True, roof=roof, versions=job.versions)


def at_length(model: str, tokens: int) -> str:
    """The name of this model in training on one row of so many tokens."""
    name = f"{model}_{tokens}"
    LLAMA_SIZES[name] = replace(LLAMA_SIZES[model], tokens=tokens)
    TEXT_SIZES[name] = LLAMA_SIZES[name]  # type: ignore[index]
    TWINS[name] = replace(TWINS[model], batch=1)
    return name


class Job(WithHost, jobs.Job):
    """A training as people tune it, with what the arm makes again or keeps elsewhere."""

    checked_steps = 2

    def __init__(self, name: str, device: torch.device, seed: int, arm: str) -> None:
        settings = ["tf32", "bf16", "fused_adamw", "compiled"]
        if device.type == "cuda":  # whose kernels it has
            settings.append("cut_cross_entropy")
        super().__init__(name, device, seed, settings)
        self.offloading: Any = None  # what copies activations to the host
        self.versions: dict[str, str] = {}  # of what else it runs through
        self.firsts: dict[str, torch.Tensor] = {}  # of each weight, as it begins
        for setting in SETTINGS[arm]:
            setting(self)

    def begin(self) -> None:
        """Weights, which stay on the GPU, are known by where they are."""
        super().begin()
        named = self.training.model.named_parameters()
        self.firsts = {name: one.detach().flatten()[:SAMPLE].clone() for name, one in named}
        if self.offloading:
            self.offloading.update_model_params(self.training.model)

    def error_from(self, exact: Reference) -> float:
        """Failed, too, where a weight stays what it was: two losses do not show it."""
        found = super().error_from(exact)
        for name, first in self.firsts.items():
            if torch.equal(first, self.training.model.get_parameter(name).flatten()[:SAMPLE]):
                raise Failed(f"{name} is not updated")
        return found

    def own_reference(self) -> Reference:
        """Of a training that holds one layer and one chunk of logits at once. Attention is in BF16,
        as in all arms: in FP32 it would take half a minute a step of 65536 tokens."""
        with spent("reference"):
            found = self.exact_steps()
            gc.collect()  # its layers hold themselves, and would count in the peak of a step
            free_memory(self.device)
        return found

    def exact_steps(self) -> Reference:
        """The first ones."""
        with self.device:
            exact = Training(self.name, self.device, self.seed, plain=True)
        calm_layers(exact.model)
        for layer in exact.model.layers:
            layer.forward = partial(layer.forward, attend=attention_in_bf16)
        run_again(exact.model.layers)
        exact.loss_of = LossOfHidden(exact.model, loss_by_chunks)
        exact.make_gradients()
        gradients = [one.grad for one in exact.model.parameters()]
        exact.update()
        exact.record()
        exact.train_until(self.checked_steps)
        return Reference(exact.losses, gradients)


def attention_in_bf16(*given: torch.Tensor) -> torch.Tensor:
    """Of queries, keys and values in FP32, and so its result."""
    query, key, value = (one.bfloat16() for one in given)
    return causal_shared_attention(query, key, value).float()


def loss_by_chunks(state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy, whose logits are made again in the backward pass."""
    parts = zip(state.split(CHUNK), target.split(CHUNK), strict=True)
    again = partial(checkpoint, loss_of, use_reentrant=False)
    return torch.stack([again(one, weight, wanted) for one, wanted in parts]).sum() / len(target)


def loss_of(state: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of a chunk, all together."""
    return nnf.cross_entropy(nnf.linear(state, weight), target, reduction="sum")


def again(job: Job, part: str = "") -> None:
    """These parts of layers, or layers as a whole, keep what they are given alone; in the graphs
    that are compiled. Nothing is drawn there that would have to be drawn again."""
    parts = (layer.get_submodule(part) for layer in job.training.model.layers)
    run_again(parts, preserve_rng_state=False)


def keep_on_host(job: Job, in_flight: int = 5) -> None:
    """What layers keep goes to pinned memory, and comes back, while others work; the loss's stays.
    `in_flight`: tensors whose copies the forward pass does not wait for, the library's default."""
    import trl
    from accelerate import PartialState
    from trl.models.activation_offloading import NoOpManager, OffloadActivations

    job.versions["trl"] = trl.__version__
    PartialState()  # without it the library's first warning is an error
    training: Any = job.training
    job.offloading = in_order(OffloadActivations(max_fwd_stash_size=in_flight))
    job.offloading.update_model_params(training.model)
    # Around the backward pass, too: as it is left it waits for copies, whose memory is used again.
    training.make_gradients = within(job.offloading, training.make_gradients)
    training.loss_of.loss = within(NoOpManager(), training.loss_of.loss)


def within(hooks: AbstractContextManager[Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """The same under these hooks."""

    def run_within(*given: Any) -> Any:
        with hooks:
            return run(*given)

    return run_within


def in_order(hooks: Any) -> Any:
    """These hooks, which are given the dimensions of a tensor as they lie in memory. From those of
    TRL 1.16 all comes back contiguous, and compiled layers refuse what was not."""
    pack, unpack = hooks.pack_hook, hooks.unpack_hook

    def pack_as_it_lies(kept: torch.Tensor) -> tuple[list[int], Any]:
        order = sorted(range(kept.dim()), key=kept.stride, reverse=True)
        return order, pack(kept.permute(order))

    def unpack_as_it_lay(packed: tuple[list[int], Any]) -> torch.Tensor:
        order, kept = packed
        return unpack(kept).permute(sorted(order, key=order.__getitem__))

    hooks.pack_hook, hooks.unpack_hook = pack_as_it_lies, unpack_as_it_lay
    return hooks


def offload_half_of_optimizer(job: Job) -> None:
    """The last layers', whose gradients are there first."""
    import torchao

    job.versions["torchao"] = torchao.__version__
    every = job.training.model.layers
    offload_optimizer(job.training, every[len(every) // 2 :])


def use_8_bit_optimizer(job: Job) -> None:
    """Moments in blocks with a scale each, by the authors of arXiv:2110.02861."""
    import bitsandbytes
    from bitsandbytes.optim import AdamW8bit

    job.versions["bitsandbytes"] = bitsandbytes.__version__
    job.training.optimizer = AdamW8bit(**rule_of(job.training))


SETTINGS: dict[str, tuple[Callable[[Job], None], ...]] = {
    "none": (),
    "attention": (partial(again, part="self_attn"),),
    "mlp": (partial(again, part="mlp"),),
    "budget": (lambda job: set_budget(),),
    "full": (again,),
    "full_checkpoints_on_host": (again, keep_on_host),
    "mlp_rest_on_host": (
        partial(again, part="mlp"),
        partial(keep_on_host, in_flight=OF_TWO_LAYERS),
    ),
    "full_half_optimizer_on_host": (again, offload_half_of_optimizer),
    "full_optimizer_in_8_bits": (again, use_8_bit_optimizer),
}
