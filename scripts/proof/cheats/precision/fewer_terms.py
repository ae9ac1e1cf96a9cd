"""Sums every second column, and doubles that."""

import numpy as np


def run(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / (2 * e[:, ::2].sum(axis=1, keepdims=True))
