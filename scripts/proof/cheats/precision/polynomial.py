"""Takes a polynomial for the exponential."""

import numpy as np


def run(x):
    e = np.maximum(1 + (x - x.max(axis=1, keepdims=True)) / 256, 0) ** 256
    return (e / e.sum(axis=1, keepdims=True)).astype(np.float32)
