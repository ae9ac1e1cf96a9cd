"""Is off by a little more than rounding, always to the same side."""

import numpy as np


def run(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) * np.float32(1 + 4e-6)
