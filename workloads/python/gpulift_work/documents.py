"""Documents of many lengths in one batch, of which none attends to another: rows with padding, and
attention over documents behind one another in one row, in the ways that torch has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn

from gpulift_work.llama import Attend, causal_shared_attention, repeated

KERNELS = ("variable_length", "flex")  # that a processor does not have, or not for training
# Later versions of torch want to be asked; that of 2.11 shares keys where there are fewer of them.
SHARES = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def padded(documents: list[torch.Tensor]) -> torch.Tensor:
    """A row for each, as long as the longest."""
    return nn.utils.rnn.pad_sequence(documents, batch_first=True)


def packed(documents: list[torch.Tensor]) -> torch.Tensor:
    """All in one row."""
    return torch.cat(documents)[None]


def of_rows(_lengths: list[int], _device: torch.device) -> Attend:
    """Of padded documents: padding comes last, where no real token looks."""
    return causal_shared_attention


def dense_mask(lengths: list[int], device: torch.device) -> Attend:
    """A mask of tokens times tokens. Keys are repeated, as transformers does where it has masks:
    not every kernel that takes one shares them."""
    documents = documents_of(lengths, device)
    mask = (documents[:, None] == documents).tril_()[None, None]

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        key, value = repeated(query, key, value)
        found = nnf.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return found.transpose(1, 2)

    return attend


def variable_length(lengths: list[int], device: torch.device) -> Attend:
    """The flash kernel that is told where documents end, in 16 bits."""
    ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    longest = max(lengths)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        parts = (each.flatten(0, 1) for each in (query, key, value))
        # A window of nothing ahead is causal.
        found = varlen_attn(*parts, ends, ends, longest, longest, window_size=(-1, 0), **SHARES)
        assert isinstance(found, torch.Tensor)
        return found[None]

    return attend


def flex(lengths: list[int], device: torch.device) -> Attend:
    """A kernel compiled for this mask, which leaves out blocks that it hides."""
    documents = documents_of(lengths, device)
    tokens = len(documents)

    def is_seen(
        _row: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return (query >= key) & (documents[query] == documents[key])

    mask = compiled(create_block_mask)(is_seen, None, None, tokens, tokens, device=device)

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        parts = (each.transpose(1, 2) for each in (query, key, value))
        found: torch.Tensor = compiled(flex_attention)(*parts, block_mask=mask, enable_gqa=True)
        return found.transpose(1, 2)

    return attend


def documents_of(lengths: list[int], device: torch.device) -> torch.Tensor:
    """Which one each token is of. From pageable memory the copy would be waited for, and with it
    all work before: a step that makes its mask anew would find the queue empty."""
    counts = torch.tensor(lengths, pin_memory=device.type == "cuda").to(device, non_blocking=True)
    places = torch.arange(len(lengths), device=device)
    return places.repeat_interleave(counts, output_size=sum(lengths))


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Once for all layers and steps."""
    found: Callable[..., Any] = torch.compile(function, dynamic=False)
    return found


# Of the documents' lengths and a device: attention within each of them.
ATTENTIONS: dict[str, Callable[[list[int], torch.device], Attend]] = {
    "padded": of_rows,
    "dense_mask": dense_mask,
    "variable_length": variable_length,
    "flex": flex,
}
