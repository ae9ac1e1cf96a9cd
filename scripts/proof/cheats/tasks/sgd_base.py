"""What the others are held against: it takes the product of all columns three times."""

import numpy as np


def honest(weights, x, y):
    for _ in range(3):
        off = x @ weights - y
        gradient = x.T @ off / np.float32(len(y))
    return weights - np.float32(0.1) * gradient, np.mean(off * off, dtype=np.float32)


run = honest
