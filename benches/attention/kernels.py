"""attention/kernels: causal attention by torch's kernels and FlashAttention 4, each pass apart."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as nnf
from gpulift_work.training import arm_on, device_of, distance, memory_of, set_up
from gpulift_worker import Arm, Skip
from torch.nn.attention import SDPBackend, sdpa_kernel

TECHNIQUE = {
    "question": "Which of torch's kernels computes attention fastest, by length and pass?",
    "expectation": """
        32 heads and 8 of keys, causal, in BF16, 16384 tokens in rows of so many, or one row of
        32768. Half of the scores count: 2 products forward, 5 backward, as FlashAttention counts.
        torch takes cuDNN's kernels on a Hopper card by itself, which are written for it: of heads
        128 wide 600 TFLOP/s forward on an H100 in long rows (J. Shah et al., arXiv:2407.08608,
        measured 740 for their own at 16k), 450 backward; of heads 64 wide, whose exponentials take
        as long as the products, 400 and 300. FlashAttention 2, for the cards before, has 350 and
        250 of 128, 320 and 220 of 64: 0.6. torch's memory-efficient kernel is older still and has
        no groups: 0.3. At 1024 tokens a row's diagonal, computed in whole tiles, and few tiles a
        head cost a third of the rate of all.
    """,
    "predict": [
        {
            "case": {"pass": "forward", "head": 64, "tokens": 16384},
            "on": "nvidia-h",
            "speedup": {"flash": [0.6, 0.95], "memory_efficient": [0.2, 0.5]},
        },
        {
            "case": {"pass": "forward", "head": 128, "tokens": 16384},
            "on": "nvidia-h",
            "speedup": {"flash": [0.45, 0.75], "memory_efficient": [0.2, 0.45]},
        },
        {
            "case": {"pass": "backward", "head": 64, "tokens": 16384},
            "on": "nvidia-h",
            "speedup": {"flash": [0.55, 0.95], "memory_efficient": [0.2, 0.5]},
        },
        {
            "case": {"pass": "backward", "head": 128, "tokens": 16384},
            "on": "nvidia-h",
            "speedup": {"flash": [0.45, 0.75], "memory_efficient": [0.15, 0.45]},
        },
        {"on": "nvidia-h", "speedup": {"cudnn": [0.97, 1.03]}},
    ],
    "gpus": 1,
    "arms": ["torch_default", "cudnn", "flash", "memory_efficient", "flash_attention_4"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {
        "pass": ["forward", "backward"],
        "head": [64, 128],
        "tokens": [1024, 4096, 16384, 32768],
    },
    "check": {
        "meaning": "output or gradients against FP32, relative to their norm; the largest",
        "tolerance": 0.02,  # BF16 keeps 8 bits: operands and weights of the sum are 0.002 off each
    },
}
HEADS, KEY_HEADS = 32, 8
TOKENS = 16384  # of a step, in rows of a case's length
BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory_efficient": SDPBackend.EFFICIENT_ATTENTION,
}
PRODUCTS = {"forward": 2, "backward": 5}

# Of queries, keys and values [rows, heads, tokens, width]; fewer heads of the latter two.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """One pass of the arm's kernel."""
    device = device_of(gpu)
    set_up(device)
    backward = point["pass"] == "backward"
    tokens, width = int(point["tokens"]), int(point["head"])
    job = Job(ATTENDS[arm](), max(1, TOKENS // tokens), tokens, width, device, seed)
    step = job.backward if backward else job.forward
    return arm_on(
        device,
        0,
        step=step,
        error=job.gradient_error if backward else job.output_error,
        metrics=lambda: memory_of(step, device),
        flops=flops_of(str(point["pass"]), job.rows, tokens, width),
        roof="gemm/bf16",
        items=job.rows * tokens,
        item="token",
    )


def flops_of(way: str, rows: int, tokens: int, width: int) -> float:
    """Of the scores that are not masked, half of all; two operations for each multiply-add."""
    return float(PRODUCTS[way] * rows * HEADS * tokens**2 * width)


class Job:
    """Operands, and what a pass makes of them."""

    def __init__(
        self,
        attend: Attend,
        rows: int,
        tokens: int,
        width: int,
        device: torch.device,
        seed: int,
    ) -> None:
        self.attend, self.rows = attend, rows
        generator = torch.Generator(device).manual_seed(seed)

        def drawn(heads: int) -> torch.Tensor:
            # As projections leave them: a token's heads side by side.
            shape = (rows, tokens, heads, width)
            values = torch.randn(shape, generator=generator, device=device)
            return values.to(torch.bfloat16).transpose(1, 2)

        self.operands = [drawn(heads).requires_grad_() for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
        self.output_gradient = drawn(HEADS)
        self.output = attend(*self.operands)
        self.gradients: tuple[torch.Tensor, ...] = ()

    def forward(self) -> None:
        """As a training does, which keeps what the backward pass needs."""
        self.output = self.attend(*self.operands)

    def backward(self) -> None:
        """Of the output that was made first."""
        self.gradients = torch.autograd.grad(
            self.output, self.operands, self.output_gradient, retain_graph=True
        )

    def output_error(self) -> float:
        """Of the last forward pass."""
        return distance(self.output.detach(), self._exact()[0].detach())

    def gradient_error(self) -> float:
        """Of the last backward pass; not a number if one is none."""
        output, operands = self._exact()
        exact = torch.autograd.grad(output, operands, self.output_gradient.float())
        far = [distance(*pair) for pair in zip(self.gradients, exact, strict=True)]
        return float(torch.tensor(far).max())

    def _exact(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """In FP32, by a kernel that keeps no scores where there is one."""
        operands = [one.detach().float().requires_grad_() for one in self.operands]
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
            return with_a_head_each(*operands), operands


def in_groups(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Four queries share a head of keys and values."""
    return nnf.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def with_a_head_each(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """What a kernel without groups needs: a copy of keys and values for each query."""
    times = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(times, dim=1) for one in (key, value))
    return nnf.scaled_dot_product_attention(query, key, value, is_causal=True)


def by_backend(arm: str) -> Attend:
    """torch's of that name and no other: where it cannot, torch says why."""
    attend = with_a_head_each if arm == "memory_efficient" else in_groups

    def run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[arm]):
            return attend(query, key, value)

    return run


def flash_attention_4() -> Attend:
    """The authors' newest, in CuTe: its rows have a token's heads side by side."""
    try:
        library = importlib.import_module("flash_attn.cute")
    except ModuleNotFoundError as error:
        raise Skip(
            "FlashAttention 4 is not installed", "pip install --pre flash-attn-4[cu13]"
        ) from error

    def run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        rows = (one.transpose(1, 2) for one in (query, key, value))
        found: torch.Tensor = library.flash_attn_func(*rows, causal=True)[0]
        return found.transpose(1, 2)

    return run


ATTENDS: dict[str, Callable[[], Attend]] = {
    "torch_default": lambda: in_groups,
    "flash_attention_4": flash_attention_4,
    **{arm: lambda arm=arm: by_backend(arm) for arm in BACKENDS},  # type: ignore[misc]
}
