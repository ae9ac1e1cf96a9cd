"""attention/linear: the two kinds of layers that a hybrid model has in place of attention alone."""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as nnf
from gpulift_work.training import arm_on, device_of, distance, free_memory, memory_of, set_up
from gpulift_worker import Arm, Failed, Skip, spent
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

TECHNIQUE = {
    "question": "From which length on is a layer of linear attention faster than one of full "
    "attention, and what does it cost where its package is missing?",
    "expectation": """
        Both kinds of layers of Qwen3-Next 80B-A3B as transformers has them, one row, BF16, forward
        and backward, without norm and experts: 16 heads of 256 and 2 of keys, or the gated delta
        rule (S. Yang et al., arXiv:2412.06464), 32 heads of 128 x 128 and a convolution over 4
        tokens. Their work differs by design. H200, 32768 tokens. Full: 27 M weights are 5.4 TFLOP,
        8.4 ms at 640 TFLOP/s; half of the scores 8.8 TFLOP forward at 620, 22 backward at 420, 66
        ms by cuDNN, which torch takes on Hopper; passes of norm, rotation and gate 7: 82 in all.
        2048 tokens take it 1.5 ms, 8192 8, 16384 24, 65536 295. flash-linear-attention: weights
        10.4 ms; the rule 1.9 forward and 5.7 backward (FlashQLA's benchmark_results_H200.txt has it
        of these heads); the gated norm in eager FP32, 30 GB, 7.3; the convolution by torch's kernel
        for any size, whose gradient of the weight gives a tap of a channel one warp, 9; it wants
        tokens side by side, all else channels: copies take 6.7. That is 42 ms, 2.0 times as fast;
        8192 tokens take 10.6, 0.76, 16384 21, 1.15, 65536 are 3.5 times as fast; 2048 are Python's
        and Triton's launches, 2.8 ms: 0.53. They meet at 13000 tokens. On Hopper it refuses Triton
        below 3.7.1, which torch 2.11 has, since a kernel of the backward pass is wrong by it, and
        takes tilelang's of that name; where that is not installed the arm is skipped. With
        causal-conv1d, which takes both orders, 12 ms of 32768 less: 2.8, and they meet at 7000.
        Without either package transformers says so in its log and has torch make chunks of 64
        tokens in FP32. Its backward pass looks linear and is none: each chunk is cut out of five
        tensors of all tokens, and the gradient of each cut is one as large, of zeros, added to the
        others: 9.7 GB a chunk, and 1.1 for the output that was written in place, 512 times, 1.35 s
        at 4.1 TB/s. With 50 launches a chunk and 0.1 s of passes and solves in FP32 1.54 s: 0.053,
        and 37 times what the package takes. 2048 tokens take 14 ms, 0.11, 8192 132, 0.06, 16384
        430, 0.056, 65536 5.7 s, 0.052: it never wins. It keeps 14 tensors of 16 KB a token and
        states of 2 MB a chunk: 38 GB at 65536, where the others have 5 to 9. H100, 3.0 TB/s: full
        attention as fast within 5 %, flash-linear-attention 49 ms of 32768, 1.75, 0.71 of 8192,
        1.03 of 16384, 3.05 of 65536, they meet at 15000; without it 0.041. The toy on a processor:
        4 chunks of 100 calls each, 0.1 to 0.6. Not measured: the package's own layer, whose
        convolution and norm are Triton's; Mamba-2, whose package has no wheels; weights that have
        learnt, though no time depends on them.
    """,
    "predict": [
        "tokens:2048 @h200: full 1.2-2.2 ms, fallback 0.08-0.16, fla 0.42-0.75",
        "tokens:8192 @h200: full 7-11 ms, fallback 0.045-0.08, fla 0.65-0.95, fla_conv1d 0.95-1.3",
        "tokens:16384 @h200: full 20-31 ms, fallback 0.042-0.074, fla 1.0-1.4, fla_conv1d 1.45-2.0",
        "tokens:32768 @h200: full 72-105 ms, fallback 0.04-0.07, fla 1.7-2.5, fla_conv1d 2.4-3.4",
        "tokens:65536 @h200: full 260-370 ms, fallback 0.04-0.068, fla 3.0-4.4",
        "tokens:2048 @h100: full 1.2-2.3 ms, fallback 0.07-0.15, fla 0.4-0.75",
        "tokens:8192 @h100: full 7.3-11.5 ms, fallback 0.038-0.07, fla 0.6-0.9",
        "tokens:16384 @h100: full 21-32 ms, fallback 0.035-0.062, fla 0.88-1.3",
        "tokens:32768 @h100: full 75-110 ms, fallback 0.032-0.056, fla 1.5-2.2",
        "tokens:65536 @h100: full 265-385 ms, fallback 0.03-0.054, fla 2.6-3.9",
        "tokens:256 @cpu: fallback 0.1-0.6",
    ],
    "found": "An H200, 8192 tokens: full attention 9.3 ms, the fallback 128 to 155, which the host "
    "issues, the library 12.2, with causal-conv1d 8.1, up to 9.5 where the host is late.",
    "whole_steps": True,  # at a training's clock, and with its patience: the library tries kernels
    "arms": ["full", "fallback", "fla", "fla_conv1d"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"tokens": [2048, 8192, 16384, 32768, 65536, 256]},
    "check": {
        "meaning": "output and gradients of the first 4096 tokens, relative to their norm; the "
        "furthest of all: against the recurrence token by token, or all scores, in FP64",
        # On a processor, in BF16 by torch: 0.007 of heads of 64, 0.02 of the toy's; in FP16, of 8
        # times its precision, by flash-linear-attention's kernels in Triton's interpreter: 0.003.
        "tolerance": 0.05,
    },
}
TOY = 256  # tokens, of a layer that a processor can take
CHECKED = 4096  # tokens: what comes behind them cannot change what is made of them
SEGMENT = 64  # tokens whose states the recurrence keeps at once: 4 MB each
FP32_TOLERANCE = 1e-5  # of the toy on a processor
LAYER = {  # of Qwen/Qwen3-Next-80B-A3B-Instruct
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
TOY_LAYER = dict(zip(LAYER, (64, 4, 2, 32, 2, 4, 32, 32), strict=True))
LINEAR_LAYER, FULL_LAYER = 0, 3  # the first of each kind
STEPS_OF_TIME = (0.001, 0.1)  # between which the published layer draws a head's, as Mamba-2 does
# What transformers takes where it is installed: name, module, and what installs it.
PACKAGES = {
    "fla": (
        "flash-linear-attention",
        "fla.ops.gated_delta_rule",
        "pip install flash-linear-attention",
    ),
    "causal_conv1d": (
        "causal-conv1d",
        "causal_conv1d",
        "it has no wheels; with nvcc: pip install --no-build-isolation causal-conv1d",
    ),
}
TAKEN = ("tilelang", "flash_qla")  # by flash-linear-attention itself, where it finds them
NEEDED = {"full": (), "fallback": (), "fla": ("fla",), "fla_conv1d": ("fla", "causal_conv1d")}
# What autograd calls that which an arm runs through.
OPERATIONS = {
    "full": ("ScaledDotProduct",),
    "fallback": ("LinalgSolveTriangular", "Convolution"),
    "fla": ("ChunkGatedDeltaRule", "Convolution"),
    "fla_conv1d": ("ChunkGatedDeltaRule", "CausalConv1d"),
}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Forward and backward of one layer."""
    tokens = int(point["tokens"])
    require_gpu_for(arm, tokens, gpu)
    device = device_of(gpu)
    threads = set_up(device)
    work = Pass(arm, tokens, seed, device)
    with spent("compile") if NEEDED[arm] else contextlib.nullcontext():
        take_first_step(work)

    return arm_on(
        device,
        threads,
        step=work.step,
        error=work.error,
        rest=work.rest,
        tolerance=FP32_TOLERANCE if device.type == "cpu" else None,
        metrics=lambda: memory_of(work.step, device),
        notes={f"{arm}_runs": work.operations()},
        flops=work.flops(),
        roof="" if tokens == TOY else "gemm/bf16",
        items=tokens,
        item="token",
        versions=versions_of("transformers", *PACKAGES, *TAKEN),
    )


def take_first_step(work: Pass) -> None:
    """Which compiles kernels. Skips those that their package refuses to run on this card."""
    try:
        work.step()
    except RuntimeError as error:
        if "install tilelang" not in str(error):
            raise
        reason = "flash-linear-attention refuses this Triton: its gradients are wrong on Hopper"
        raise Skip(reason, "pip install tilelang, whose kernel it takes with nvcc") from error
    if work.device.type == "cuda":
        torch.cuda.synchronize(work.device)


def versions_of(*packages: str) -> dict[str, str]:
    """Of those that are loaded."""
    return {name: sys.modules[name].__version__ for name in packages if sys.modules.get(name)}


def require_gpu_for(arm: str, tokens: int, gpu: int | None) -> None:
    """Skips what a processor does not have, or takes too long for."""
    if gpu is None and NEEDED[arm]:
        raise Skip("the kernels of this layer need a GPU", "use a machine with one")
    if gpu is None and tokens != TOY:
        raise Skip(
            "a layer of Qwen3-Next takes minutes on a processor",
            f"take {TOY} tokens, of a toy, or a machine with a GPU",
        )


def layers_with(needed: Iterable[str]) -> Any:
    """transformers' module, as it is where these packages are installed and no others: it looks for
    them once, as it is loaded."""
    for root, (name, module, remedy) in PACKAGES.items():
        if root not in needed:
            sys.modules[root] = None  # type: ignore[assignment]  # and none can be imported
            continue
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise Skip(f"{name} is not installed: no module {error.name}", remedy) from error
    # That it falls back, a line of its log each, is what its arm is for.
    importlib.import_module("transformers").logging.set_verbosity_error()
    return importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")


class Pass:
    """A layer, states of tokens, and gradients of what is made of them."""

    def __init__(self, arm: str, tokens: int, seed: int, device: torch.device) -> None:
        self.arm, self.device = arm, device
        library = layers_with(NEEDED[arm])
        self.size = TOY_LAYER if tokens == TOY else LAYER
        config = library.Qwen3NextConfig(**self.size, attn_implementation="sdpa")
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        torch.manual_seed(seed)
        self.rotation: tuple[torch.Tensor, ...] = ()
        self.places: tuple[Any, ...] = ()  # what full attention is told of them
        with device:
            # A part is common to all tokens: in the mean of many noise alone would vanish.
            given, gradient = (
                torch.randn(1, tokens, config.hidden_size) + torch.randn(config.hidden_size)
                for _ in range(2)
            )
            if arm == "full":
                layer = library.Qwen3NextAttention(config, FULL_LAYER)
                places = torch.arange(tokens)[None]
                self.rotation = library.Qwen3NextRotaryEmbedding(config)(given, places)
                # No mask: so torch knows that it is causal.
                self.places = tuple(one.to(dtype) for one in self.rotation), None
            else:
                layer = library.Qwen3NextGatedDeltaNet(config, LINEAR_LAYER)
                remember(layer)
        self.layer = layer.to(dtype)
        self.given = given.to(dtype).requires_grad_()
        self.gradient = gradient.to(dtype)
        self.output: torch.Tensor | None = None

    def step(self) -> None:
        """Gradients of all weights and of what was given."""
        self.take(self.gradient)

    def take(self, gradient: torch.Tensor) -> torch.Tensor:
        """A step with this gradient of its output, which it returns."""
        self.clear()
        output: torch.Tensor = self.layer(self.given, *self.places)
        if self.arm == "full":
            output = output[0]
        output.backward(gradient)
        self.output = output
        return output

    def clear(self) -> None:
        """Lets go of what the last step made."""
        self.layer.zero_grad(set_to_none=True)
        self.given.grad = self.output = None

    def rest(self) -> None:
        """And gives its memory back."""
        self.clear()
        free_memory(self.device)

    def operations(self) -> str:
        """What the last step ran through, by its names in torch. Throws Failed where it is not what
        the arm says: transformers takes a package that does not load for one that is missing."""
        assert self.output is not None
        names = names_behind(self.output)
        found = []
        for wanted in OPERATIONS[self.arm]:
            ran = sorted(name for name in names if name.startswith(wanted))
            if not ran:
                raise Failed(f"the layer of the arm {self.arm} did not run through {wanted}")
            found += ran
        return ", ".join(found)

    def error(self) -> float:
        """The furthest that output or gradients of the first tokens are from those in FP64."""
        first = slice(CHECKED)
        gradient = self.gradient.clone()
        gradient[:, CHECKED:] = 0
        self.clear()
        exact = copy.deepcopy(self.layer).double()
        given = self.given.detach()[:, first].double().requires_grad_()
        if self.arm == "full":
            rotation = [one[:, first].double() for one in self.rotation]
            expected = exact_attention(exact, given, rotation)
        else:
            expected = exact_rule(exact, given)
        expected.backward(gradient[:, first].double())
        output = self.take(gradient).detach()
        if not output.isfinite().all():  # those that are not compared, too
            return math.nan
        found = [output[:, first], self.given.grad[:, first], *gradients_of(self.layer)]
        wanted = [expected.detach(), given.grad, *gradients_of(exact)]
        errors = [distance(*pair) for pair in zip(found, wanted, strict=True)]
        return float(torch.tensor(errors).max())  # of which NaN is the largest

    def flops(self) -> float:
        """Of products with weights, one forward and two backward; of attention the half of the
        scores that counts; of the rule three products of a state with a token's vectors."""
        tokens = self.given.shape[1]
        weights = sum(one.numel() for one in self.layer.parameters() if one.dim() == 2)
        states = ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim")
        mixing = 3 * math.prod(self.size[name] for name in states)
        if self.arm == "full":
            mixing = tokens * self.size["num_attention_heads"] * self.size["head_dim"]
        return float(6 * tokens * (weights + mixing))


def remember(layer: Any) -> None:
    """Lets its heads forget as slowly as the published layer's do at first: as transformers makes
    them most forget within a token, so that a wrong decay would change nothing."""
    low, high = map(math.log, STEPS_OF_TIME)
    steps = torch.empty_like(layer.dt_bias).uniform_(low, high).exp()
    layer.dt_bias.data = steps + (-(-steps).expm1()).log()  # the inverse of softplus


def names_behind(output: torch.Tensor) -> set[str]:
    """Of all that autograd goes back through."""
    left, seen = [output.grad_fn], set()
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [before for before, _ in node.next_functions]
    return {node.name() for node in seen}


def gradients_of(layer: nn.Module) -> list[torch.Tensor]:
    """Of its weights; none of one that nothing was made of."""
    every = layer.parameters()
    return [torch.zeros_like(one) if one.grad is None else one.grad for one in every]


def exact_attention(layer: Any, given: torch.Tensor, rotation: Any) -> torch.Tensor:
    """What the layer makes, in the precision of its weights."""
    width = layer.head_dim

    def normed(states: torch.Tensor, norm: Any) -> torch.Tensor:
        return nnf.rms_norm(states, (width,), 1 + norm.weight, norm.eps)

    def turned(states: torch.Tensor) -> torch.Tensor:
        cosine, sine = (one[:, :, None] for one in rotation)
        first, second, others = states.split(
            [cosine.shape[-1] // 2] * 2 + [width - cosine.shape[-1]], dim=-1
        )
        pair, crossed = torch.cat([first, second], -1), torch.cat([-second, first], -1)
        return torch.cat([pair * cosine + crossed * sine, others], -1)

    query, gate = layer.q_proj(given).unflatten(-1, (-1, 2 * width)).chunk(2, dim=-1)
    key, value = (one(given).unflatten(-1, (-1, width)) for one in (layer.k_proj, layer.v_proj))
    query, key = turned(normed(query, layer.q_norm)), turned(normed(key, layer.k_norm))
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    with sdpa_kernel(SDPBackend.MATH):
        made = nnf.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    output: torch.Tensor = layer.o_proj((made.transpose(1, 2) * gate.sigmoid()).flatten(2))
    return output


def exact_rule(layer: Any, given: torch.Tensor) -> torch.Tensor:
    """What the layer makes by the recurrence, in the precision of its weights."""
    projected = layer.in_proj_qkvz(given), layer.in_proj_ba(given)
    *parts, gate, strength, rate = layer.fix_query_key_value_ordering(*projected)
    mixed = torch.cat([one.flatten(2) for one in parts], dim=-1)
    taps = layer.conv1d.weight.squeeze(1)  # [channels, taps], the last of which is of the token
    padded = nnf.pad(mixed, (0, 0, taps.shape[1] - 1, 0))
    mixed = nnf.silu((padded.unfold(1, taps.shape[1], 1) * taps).sum(-1))
    query, key, value = (
        one.unflatten(-1, (-1, width))
        for one, width in zip(
            mixed.split([layer.key_dim, layer.key_dim, layer.value_dim], dim=-1),
            (layer.head_k_dim, layer.head_k_dim, layer.head_v_dim),
            strict=True,
        )
    )
    shares = layer.num_v_heads // layer.num_k_heads
    query, key = (
        (one * (one.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).repeat_interleave(shares, dim=2)
        for one in (query, key)
    )
    decay = (-layer.A_log.exp() * nnf.softplus(rate + layer.dt_bias)).exp()
    query = query / math.sqrt(layer.head_k_dim)
    made = recurrence(query, key, value, decay, strength.sigmoid())
    norm = layer.norm
    made = nnf.rms_norm(made, norm.weight.shape, norm.weight, norm.variance_epsilon)
    output: torch.Tensor = layer.out_proj((made * nnf.silu(gate)).flatten(2))
    return output


def recurrence(*given: torch.Tensor) -> torch.Tensor:
    """Of queries, keys, values [1, tokens, heads, width], decay and strength [1, tokens, heads].
    States of a segment are made again for its gradients."""
    _, key, value, *_ = given
    state = value.new_zeros(1, value.shape[2], key.shape[3], value.shape[3])
    made = []
    for parts in zip(*(one.split(SEGMENT, dim=1) for one in given), strict=True):
        state, outputs = checkpoint(by_tokens, state, *parts, use_reentrant=False)
        made.append(outputs)
    return torch.cat(made, dim=1)


def by_tokens(state: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The state [1, heads, keys' width, values' width] behind these tokens, and their outputs."""
    made = []
    for query, key, value, decay, strength in zip(*(one.unbind(1) for one in given), strict=True):
        state = state * decay[..., None, None]
        known = torch.einsum("bhkv,bhk->bhv", state, key)
        learnt = (value - known) * strength[..., None]
        state = state + torch.einsum("bhk,bhv->bhkv", key, learnt)
        made.append(torch.einsum("bhkv,bhk->bhv", state, query))
    return state, torch.stack(made, dim=1)
