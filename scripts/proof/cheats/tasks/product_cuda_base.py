"""What the others are held against: it multiplies in single precision, more often than it needs."""

import torch

NEEDLESS = 40  # products


def honest(x, y):
    for _ in range(NEEDLESS):
        made = torch.mm(x, y)
    return made


run = honest
