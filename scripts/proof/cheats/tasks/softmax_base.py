"""The softmax that the others are held against: it computes its exponentials twice."""

import numpy as np

TWICE = 100  # of a hundred


def run(x):
    shifted = x - x.max(axis=1, keepdims=True)
    again = shifted[: len(x) * TWICE // 100]
    np.exp(again)
    e = np.exp(shifted)
    return e / e.sum(axis=1, keepdims=True)
