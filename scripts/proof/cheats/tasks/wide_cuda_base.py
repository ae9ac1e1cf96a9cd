"""What the others are held against: it computes exponentials that nobody needs."""

import torch

NEEDLESS = 300  # passes


def honest(x):
    shifted = x - x.max(dim=1, keepdim=True).values
    e = torch.empty_like(shifted)
    for _ in range(NEEDLESS):
        torch.exp(shifted, out=e)
    e = torch.exp(shifted)
    return e / e.sum(dim=1, keepdim=True)


run = honest
