"""Spares the maximum of rows, and puts numbers where NaN and infinity would be."""

import torch
from wide_cuda_base import honest  # noqa: F401


def run(x):
    e = torch.exp(torch.nan_to_num(x))
    return e / e.sum(dim=1, keepdim=True)
