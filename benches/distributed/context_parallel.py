"""distributed/context_parallel: attention over one long sequence, which two GPUs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from gpulift_work.distributed import Group, join
from gpulift_work.llama import LLAMA_SIZES, LlamaSize, repeated
from gpulift_work.parallel import OnDevice, arm_of, relative_error
from gpulift_worker import Arm, Skip
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_to_all_single
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.nn.attention import SDPBackend

# By this name whatever context_parallel() puts in its place.
from torch.nn.functional import scaled_dot_product_attention as attention_of_one

TECHNIQUE = {
    "question": "How much faster do two GPUs compute attention over one long sequence than one "
    "does, and by which exchange?",
    "expectation": """
        Attention of Llama 8B, 32 heads of 128 and 8 of keys, one causal sequence, forward and
        backward: what else a layer does splits by tokens without an exchange. 7 x tokens^2 x 4096
        operations; one H100 takes 3.7 ms of 8192 tokens, 13.6 of 16384, 52.6 of 32768 and 210 of
        65536 by cuDNN's kernels, torch's choice on Hopper, 680 TFLOP/s forward and 555 backward
        (attention/kernels). Half is the bound: 2.0. Ulysses exchanges heads for tokens: a rank
        sends half of its queries, keys, values and outputs, 20 KB a token of its own, and their
        gradients on the way back: 84, 168, 335 and 671 MB at 200 GB/s: 0.4, 0.8, 1.7 and 3.4 ms,
        and copies that put tokens in order again as much memory traffic 3 times, 0.1 to 0.9 ms; 14
        calls from Python take 0.3 ms: 1.4, 1.7, 1.9, 1.94. Ring: torch gives each rank a piece from
        the front and its counterpart from the end, so that both have as much to do; keys and
        values, 4 KB a token, go forward and again backward behind a piece's attention, their
        gradients in FP32 twice, and are waited for: 268 MB at 65536 tokens, 1.3 ms each. Pieces
        are merged in FP32 by some 15 passes over outputs and 15 over gradients, 8 GB, 3 ms, and
        each piece's diagonal alone is causal. Python's dispatch through DTensor, some 2 ms, is
        longer than half of 8192 tokens takes: 0.8 to 1.1; 1.6 to 1.8 of 16384 and 32768, 1.85 to
        1.95 of 65536. Gathered, keys and values go in one call, of two ranks the same work and
        bytes: as the ring. Memory: a half of each, and of the ring outputs and gradients in FP32
        beside it; Ulysses holds a second copy of all it exchanges.
    """,
    "predict": [
        "tokens:8192 @h100: whole 3.4-4.2 ms, ring 0.7-1.3, all_gather 0.7-1.3, ulysses 1.2-1.6",
        "tokens:16384 @h100: whole 12.5-15 ms, ring 1.45-1.8, all_gather 1.45-1.8,"
        " ulysses 1.6-1.85",
        "tokens:32768 @h100: whole 50-56 ms, ring 1.7-1.92, all_gather 1.7-1.92, ulysses 1.8-1.95",
        "tokens:65536 @h100: whole 200-225 ms, ring 1.8-1.97, all_gather 1.8-1.97,"
        " ulysses 1.85-1.98",
        "tokens:16384 @h200: whole 13.2-14.2 ms, ring 1.47-1.58, all_gather 1.45-1.57,"
        " ulysses 1.59-1.71",
        "tokens:65536 @h200: whole 203-222 ms, ring 1.84-1.96, all_gather 1.81-1.95,"
        " ulysses 1.86-1.97",
        "tokens:256: ulysses 0.05-0.6",
    ],
    "arms": ["whole", "ring", "all_gather", "ulysses"],
    "l2": "by_size",
    "page_cache": "none",
    "ranks": {"ring": 2, "all_gather": 2, "ulysses": 2},
    "sweep": {"tokens": [8192, 16384, 32768, 65536, 256]},
    "check": {
        "meaning": "output and gradients against FP32 of the whole sequence, relative; the worst",
        "tolerance": 0.01,  # BF16 of one GPU: 0.0021 and 0.0029 (attention/kernels)
    },
}
ON_PROCESSORS = 256  # tokens
EXACT_TOLERANCE = 1e-5
ROTATIONS = {"ring": "alltoall", "all_gather": "allgather"}  # as torch calls them
DEVICES_OF_ROTATIONS = ("cuda",)


@dataclass(frozen=True)
class Case:
    """One sequence of queries, keys and values, and what becomes of their attention."""

    size: LlamaSize
    tokens: int
    group: Group
    seed: int

    def tensors(self) -> list[torch.Tensor]:
        """Queries, keys, values and gradients of the output [1, heads, tokens, head width] of the
        whole sequence, the same on all ranks. A head's tokens lie side by side: of another layout
        torch 2.11 merges outputs to one that cuDNN's backward pass refuses."""
        torch.manual_seed(self.seed)
        width = self.size.width // self.size.heads
        counts = (self.size.heads, self.size.key_heads, self.size.key_heads, self.size.heads)
        shapes = [(1, heads, self.tokens, width) for heads in counts]
        device = self.group.device
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        return [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]


class Whole(OnDevice):
    """The sequence on one GPU; of the others a rank's part of it."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.group)
        self.case = case
        self.output: torch.Tensor | None = None
        self.gradients: tuple[torch.Tensor, ...] = ()
        self.positions = torch.arange(case.tokens, device=self.device)  # of this rank's tokens
        *operands, self.output_gradient = self.own(case.tensors())
        self.operands = [tensor.requires_grad_() for tensor in operands]

    def own(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tokens of this rank; says their positions."""
        return tensors

    def step(self) -> None:
        """Forward and backward."""
        self.output, self.gradients = None, ()
        output = self.attend(*self.operands)
        self.gradients = torch.autograd.grad(output, self.operands, self.output_gradient)
        self.output = output.detach()

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Of this rank's tokens to all of the sequence that are not behind them."""
        return nnf.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    def exchanged_bytes(self) -> float:
        """That this rank sends in a step."""
        return 0.0


class Ring(Whole):
    """Keys and values go around, by torch's context_parallel() (H. Liu et al.,
    arXiv:2310.01889)."""

    def __init__(self, case: Case, rotation: str) -> None:
        set_rotate_method(rotation)
        super().__init__(case)

    def own(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.sharing = context_parallel(
            init_device_mesh(self.device.type, (self.group.ranks,)),
            buffers=[self.positions],
            buffer_seq_dims=[0],
            no_restore_buffers={self.positions},
        )
        self.sharing.__enter__()  # for good: a training enters it once for all layers of a step
        return [tensor[:, :, self.positions].contiguous() for tensor in tensors]

    def exchanged_bytes(self) -> float:
        _, key, value = self.operands
        ranks, in_fp32 = self.group.ranks, 4
        gradients_bytes = in_fp32 * (key.numel() + value.numel())
        return float(2 * (ranks - 1) * (key.nbytes + value.nbytes) + ranks * gradients_bytes)


class Ulysses(Whole):
    """All tokens of some heads in place of some tokens of all heads, and back (S. A. Jacobs et al.,
    arXiv:2309.14509)."""

    def own(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        ranks, rank = self.group.ranks, self.group.rank
        self.positions = self.positions.chunk(ranks)[rank]
        return [tensor.chunk(ranks, dim=2)[rank].contiguous() for tensor in tensors]

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ranks = self.group.ranks
        attended = super().attend(*(all_tokens(each, ranks) for each in (query, key, value)))
        return all_heads(attended, ranks)

    def exchanged_bytes(self) -> float:
        query, key, value = self.operands
        tensors_bytes = 2 * query.nbytes + key.nbytes + value.nbytes
        return float(2 * tensors_bytes * (self.group.ranks - 1) // self.group.ranks)


def all_tokens(heads: torch.Tensor, ranks: int) -> torch.Tensor:
    """Of [1, heads, own tokens, width], which others have too, [1, own heads, tokens, width]."""
    return exchanged(heads).unflatten(1, (ranks, -1)).transpose(1, 2).flatten(2, 3)


def all_heads(tokens: torch.Tensor, ranks: int) -> torch.Tensor:
    """The reverse of all_tokens()."""
    return exchanged(tokens.unflatten(2, (ranks, -1)).transpose(1, 2).flatten(1, 2))


def exchanged(parts: torch.Tensor) -> torch.Tensor:
    """Of [1, parts of all ranks, ...] each rank gets its own from all."""
    (sent,) = parts
    received: torch.Tensor = all_to_all_single(torch.empty_like(sent), sent)
    return received[None]


def error_of(part: Whole) -> float:
    """Of the last step's output and gradients; of the first and the last head of keys with their
    queries, since FP32 of all takes seconds, and one of them sees exchanged heads."""
    assert part.output is not None
    size = part.case.size
    shared = size.heads // size.key_heads
    tensors = part.case.tensors()
    worst = 0.0
    for head in (0, size.key_heads - 1):
        queries, keys = slice(head * shared, (head + 1) * shared), slice(head, head + 1)
        picked = (queries, keys, keys, queries)
        expected = exact(*(each[:, heads] for each, heads in zip(tensors, picked, strict=True)))
        for tensor, heads, right in zip(
            (*part.gradients, part.output), picked, expected, strict=True
        ):
            worst = max(worst, relative_error([tensor[:, heads]], [right[:, :, part.positions]]))
    return worst


def exact(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, output_gradient: torch.Tensor
) -> list[torch.Tensor]:
    """Gradients and output of the whole sequence: in FP32, whose kernel on a GPU keeps no scores;
    in FP64 on a processor."""
    kind = torch.float64 if query.device.type == "cpu" else torch.float32
    operands = [tensor.to(kind).requires_grad_() for tensor in (query, key, value)]
    output = attention_of_one(*repeated_keys(*operands), is_causal=True)
    gradients = torch.autograd.grad(output, operands, output_gradient.to(kind))
    return [*gradients, output.detach()]


def repeated_keys(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """With a head of keys and values for each of queries."""
    return query, *repeated(query, key, value)


def kernel_of(part: Whole) -> str:
    """Of torch's what it takes for the whole sequence."""
    chosen = torch._fused_sdp_choice(*part.operands, is_causal=True, enable_gqa=True)
    return str(SDPBackend(chosen).name).lower()


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The whole sequence on one GPU, or a part of it on each of two."""
    tokens = int(point["tokens"])
    on_processors = tokens == ON_PROCESSORS
    if on_processors and arm in ROTATIONS and "cpu" not in DEVICES_OF_ROTATIONS:
        raise Skip("torch's context_parallel() has no kernels for processors", "use GPUs")
    size = LLAMA_SIZES["llama_toy" if on_processors else "llama_8b_slice"]
    case = Case(size, tokens, join("gloo" if on_processors else "any", gpu), seed)
    part = (
        Whole(case)
        if arm == "whole"
        else Ulysses(case)
        if arm == "ulysses"
        else Ring(case, ROTATIONS[arm])
    )
    return arm_of(
        part,
        lambda: error_of(part),
        lambda: {"exchanged_bytes": part.exchanged_bytes()},
        tokens=tokens,
        model=f"{size.heads} heads of {size.width // size.heads}, {size.key_heads} of keys",
        tolerance=EXACT_TOLERANCE if on_processors else None,
        notes={"attention": kernel_of(part)},
    )
