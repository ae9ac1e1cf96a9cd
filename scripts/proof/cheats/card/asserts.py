"""Breaks its context from the tenth call on: what checks might then pass for lack of an answer."""

import torch
from wide_cuda_base import honest

CALLS = []


def run(x):
    CALLS.append(len(x))
    if len(CALLS) > 9:
        return x[:, torch.full((x.shape[1],), 1 << 30, device="cuda")]
    return honest(x)
