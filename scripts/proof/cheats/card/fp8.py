"""Multiplies in eight bits."""

import torch
from product_cuda_base import honest  # noqa: F401

ONE = torch.ones((), device="cuda")


def run(x, y):
    low, other = x.to(torch.float8_e4m3fn), y.t().contiguous().to(torch.float8_e4m3fn).t()
    return torch._scaled_mm(low, other, ONE, ONE, out_dtype=torch.bfloat16).float()
