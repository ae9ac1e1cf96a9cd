"""What the others are held against: it computes exponentials that nobody needs."""

import numpy as np

NEEDLESS = 200  # passes


def honest(x):
    shifted = x - x.max(axis=1, keepdims=True)
    e = np.empty_like(shifted)
    for _ in range(NEEDLESS):
        np.exp(shifted, out=e)
    e = np.exp(shifted)
    return e / e.sum(axis=1, keepdims=True)


run = honest
