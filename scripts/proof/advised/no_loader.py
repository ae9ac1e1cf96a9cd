"""Trains a GPT on tokens that it draws itself out of one tensor, as nanoGPT does."""

import argparse
import contextlib
import math
import time

import torch
from torch import nn
from torch.nn import functional

FAULTS = "pageable item attention_by_hand fp32 small_batch optimizer_loop synchronize"
VOCABULARY, ACCUMULATION = 50_304, 2


class Block(nn.Module):
    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.norm_1(x)).unflatten(2, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)
        if self.by_hand:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(
        self, vocabulary: int, length: int, layers: int, width: int, heads: int, by_hand: bool
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, by_hand) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x) + self.places.weight[: x.size(1)]
        logits = self.head(self.norm(self.blocks(hidden)))
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--size", choices=["small", "large"], default="large")
    parser.add_argument("--plant", choices=FAULTS.split())
    options = parser.parse_args()
    large, fault = options.size == "large", options.plant
    cuda = torch.cuda.is_available()

    torch.manual_seed(1)
    if not large:
        torch.set_num_threads(1)  # more have nothing to do
    device = torch.device("cuda" if cuda else "cpu")
    vocabulary, length = (VOCABULARY, 1024) if large else (256, 64)
    layers, width, heads = (12, 768, 12) if large else (3, 64, 4)
    batch = 16 if large else 8
    batch = batch // 2 if fault == "small_batch" else batch
    model = GPT(vocabulary, length, layers, width, heads, fault == "attention_by_hand").to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, foreach=fault != "optimizer_loop", weight_decay=0.1
    )
    tokens = torch.randint(vocabulary, (1_000_000,))
    halved = large and cuda and fault != "fp32"

    def get_batch() -> tuple[torch.Tensor, ...]:
        starts = torch.randint(len(tokens) - length - 1, (batch,)).tolist()
        x = torch.stack([tokens[i : i + length] for i in starts])
        y = torch.stack([tokens[i + 1 : i + 1 + length] for i in starts])
        if cuda and fault != "pageable":
            x, y = x.pin_memory(), y.pin_memory()
        return x.to(device, non_blocking=True), y.to(device, non_blocking=True)

    begun = before = time.perf_counter()
    for step in range(1, options.steps + 1):
        for _ in range(ACCUMULATION):
            x, y = get_batch()
            with torch.autocast("cuda", torch.bfloat16) if halved else contextlib.nullcontext():
                loss = model(x, y) / ACCUMULATION
            loss.backward()
            if fault == "item" and not math.isfinite(loss.item() + loss.item()):
                break
            if fault == "synchronize" and cuda:
                torch.cuda.synchronize()
        optimizer.step()
        optimizer.zero_grad()
        if step in (options.steps // 2, options.steps):
            if cuda:
                torch.cuda.synchronize()
            begun, before = time.perf_counter(), begun
    print(f"steps {options.steps - options.steps // 2} seconds {begun - before:.6f}")


if __name__ == "__main__":
    main()
