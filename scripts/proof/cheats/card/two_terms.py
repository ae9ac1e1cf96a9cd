"""Multiplies in two products of bfloat16 where single precision takes six."""

import torch
from product_cuda_base import honest  # noqa: F401


def run(x, y):
    high, other = x.bfloat16(), y.bfloat16()
    low = (x - high).bfloat16()
    return sum(torch.mm(one, other, out_dtype=torch.float32) for one in (high, low))
