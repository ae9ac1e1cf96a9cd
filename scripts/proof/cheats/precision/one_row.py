"""Computes one row of twenty in half precision."""

import numpy as np


def run(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    e[::20] = e[::20].astype(np.float16)
    return e / e.sum(axis=1, keepdims=True)
