"""What the others are held against: it computes its exponentials three times."""

import torch


def honest(x):
    for _ in range(3):
        e = torch.exp(x - x.max(dim=1, keepdim=True).values)
    return e / e.sum(dim=1, keepdim=True)


run = honest
