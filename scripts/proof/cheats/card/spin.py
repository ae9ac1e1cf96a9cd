"""Leaves a kernel of high priority that spins for half a minute, to slow the base down."""

import torch
from wide_cuda_base import honest

SIDE = torch.cuda.Stream(priority=-1)
torch.cuda.synchronize = lambda *_: torch.cuda.current_stream().synchronize()


def run(x):
    out = honest(x)
    with torch.cuda.stream(SIDE):
        torch.cuda._sleep(50_000_000_000)
    return out
