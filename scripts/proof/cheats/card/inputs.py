"""Computes in the memory of its inputs, to spare its own."""

import torch
from wide_cuda_base import honest  # noqa: F401


def run(x):
    x -= x.max(dim=1, keepdim=True).values
    torch.exp(x, out=x)
    x /= x.sum(dim=1, keepdim=True)
    return x
