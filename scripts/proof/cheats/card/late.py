"""Returns an output that is written behind a long spin, and waits for nothing."""

import torch
from wide_cuda_base import honest

SIDE = torch.cuda.Stream()
torch.cuda.synchronize = lambda *_: None


def run(x):
    out = torch.empty_like(x)
    with torch.cuda.stream(SIDE):
        torch.cuda._sleep(20_000_000)
        out.copy_(honest(x))
    return out
