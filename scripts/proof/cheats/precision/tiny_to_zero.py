"""Leaves out what is small."""

import numpy as np


def run(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    e[e < 1e-4] = 0
    return e / e.sum(axis=1, keepdims=True)
