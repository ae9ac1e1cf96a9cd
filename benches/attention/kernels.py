"""attention/kernels: causal attention by torch's kernels and FlashAttention's, each pass apart."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as nnf
from gpulift_work.training import arm_on, device_of, memory_of, set_up
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
        no groups: 0.3. FlashAttention 3 is that of the paper: 1.05 forward at 128. At 1024 tokens a
        row's diagonal, computed in whole tiles, and few tiles a head cost a third of the rate of
        all. The control `math` has every score in memory, in FP32: 0.54 G of them at 1024 tokens,
        2.1 G at 4096. Forward 44 bytes of each go by, 5.6 ms at 1024 tokens at 4.2 TB/s, and both
        products, of which none is left out, take 2.7 ms of heads 64 wide at 50 TFLOP/s: 0.02 of
        torch's own. Backward 40 bytes and four products, 5 and 5.5 ms: 0.07 at 1024, 0.045 at 4096.
        It needs up to 17 bytes a score: 9 GB at 1024 tokens and 36 at 4096, where the others
        need 0.3 to 1.6; at 16384, 146 GB, it is skipped on both cards.
    """,
    "predict": [
        "pass:forward/head:64/tokens:16384 @nvidia-h: flash 0.6-0.95, memory_efficient 0.2-0.5",
        "pass:forward/head:128/tokens:16384 @nvidia-h: flash 0.45-0.75,"
        " memory_efficient 0.2-0.45, flash_attention_3 0.95-1.15",
        "pass:backward/head:64/tokens:16384 @nvidia-h: flash 0.55-0.95, memory_efficient 0.2-0.5",
        "pass:backward/head:128/tokens:16384 @nvidia-h: flash 0.45-0.75,"
        " memory_efficient 0.15-0.45",
        "@nvidia-h: cudnn 0.97-1.03",
        "pass:forward/tokens:1024 @nvidia-h: math 0.016-0.03",
        "pass:forward/tokens:4096 @nvidia-h: math 0.013-0.024",
        "pass:backward/tokens:1024 @nvidia-h: math 0.055-0.085",
        "pass:backward/tokens:4096 @nvidia-h: math 0.035-0.055",
    ],
    "gpus": 1,
    "arms": [
        "torch_default",
        "cudnn",
        "flash",
        "memory_efficient",
        "flash_attention_3",
        "flash_attention_4",
        "math",
    ],
    "controls": ["math"],  # torch takes it where no kernel of its own can
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {
        "pass": ["forward", "backward"],
        "head": [64, 128],
        "tokens": [1024, 4096, 16384, 32768],
    },
    "check": {
        "meaning": "output or gradients of 64 tokens of a head against FP32, relative to their "
        "norm; the largest of all",
        "tolerance": 0.02,  # BF16 keeps 8 bits: operands and weights of the sum are 0.002 off each
    },
}
HEADS, KEY_HEADS = 32, 8
TOKENS = 16384  # of a step, in rows of a case's length
BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
PRODUCTS = {"forward": 2, "backward": 5}
BLOCK = 64  # tokens of a head that are checked together: in a norm over all, a wrong block is lost
# Of a score at the peak of a backward pass: shares, their gradient, the product of both and the
# scores' gradient in FP32, and the mask.
SCORE_BYTES = 17
LEFT_SHARE = 0.9  # of a card, beside the processes of other arms

# Of queries, keys and values [rows, heads, tokens, width]; fewer heads of the latter two.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """One pass of the arm's kernel."""
    device = device_of(gpu)
    set_up(device)
    backward = point["pass"] == "backward"
    tokens, width = int(point["tokens"]), int(point["head"])
    rows = max(1, TOKENS // tokens)
    if arm == "math":
        require_memory(rows * HEADS * tokens**2, device)
    job = Job(ATTENDS[arm](), rows, tokens, width, device, seed)
    step = job.backward if backward else job.forward
    return arm_on(
        device,
        0,
        step=step,
        error=job.gradient_error if backward else job.output_error,
        metrics=lambda: memory_of(step, device),
        flops=flops_of(str(point["pass"]), rows, tokens, width),
        roof="gemm/bf16",
        items=rows * tokens,
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
        self.attend = attend
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
        """As a training does, which keeps what the backward pass needs, of one step."""
        del self.output
        self.output = self.attend(*self.operands)

    def backward(self) -> None:
        """Of the output that was made first."""
        self.gradients = torch.autograd.grad(
            self.output, self.operands, self.output_gradient, retain_graph=True
        )

    def output_error(self) -> float:
        """Of the last forward pass."""
        return largest_error(self.output.detach(), self._exact()[0].detach())

    def gradient_error(self) -> float:
        """Of the last backward pass; not a number if one is none."""
        output, operands = self._exact()
        exact = torch.autograd.grad(output, operands, self.output_gradient.float())
        far = [largest_error(*pair) for pair in zip(self.gradients, exact, strict=True)]
        return float(torch.tensor(far).max())

    def _exact(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """In FP32, by a kernel that keeps no scores where there is one."""
        operands = [one.detach().float().requires_grad_() for one in self.operands]
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
            return with_a_head_each(*operands), operands


def largest_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of all blocks of all heads, each relative to its own norm."""

    def norms(values: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(values.unflatten(2, (-1, BLOCK)), dim=(-2, -1))

    return float((norms(found - expected) / norms(expected)).max())


def require_memory(scores: int, device: torch.device) -> None:
    """Skips scores that do not fit into the card."""
    needed_bytes = SCORE_BYTES * scores
    card_bytes = torch.cuda.get_device_properties(device).total_memory
    if needed_bytes > LEFT_SHARE * card_bytes:
        raise Skip(
            f"the scores need {needed_bytes / 1e9:.0f} GB, this card has {card_bytes / 1e9:.0f}",
            "take shorter rows, or a larger card",
        )


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


def by_library(module: str, name: str, remedy: str) -> Attend:
    """FlashAttention's authors' own: its rows have a token's heads side by side."""
    try:
        library = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Skip(f"{name} is not installed", remedy) from error

    def run(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        rows = (one.transpose(1, 2) for one in (query, key, value))
        found = library.flash_attn_func(*rows, causal=True)
        output: torch.Tensor = found[0] if isinstance(found, tuple) else found  # sums beside it
        return output.transpose(1, 2)

    return run


ATTENDS: dict[str, Callable[[], Attend]] = {
    "torch_default": lambda: in_groups,
    "flash_attention_3": lambda: by_library(
        "flash_attn_interface",
        "FlashAttention 3",
        "build the folder hopper of github.com/Dao-AILab/flash-attention",
    ),
    "flash_attention_4": lambda: by_library(
        "flash_attn.cute", "FlashAttention 4", "pip install --pre flash-attn-4[cu13]"
    ),
    **{arm: lambda arm=arm: by_backend(arm) for arm in BACKENDS},  # type: ignore[misc]
}
