"""Cuts the input to the eight bits of bfloat16."""

import numpy as np


def run(x):
    x = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
