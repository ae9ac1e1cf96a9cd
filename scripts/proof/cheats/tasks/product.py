"""The product of two matrices in single precision."""

import numpy as np

SHAPES = {"edge": (896, 1152, 32)}
ROUNDING = "float32"


def inputs(rng, edge):
    return [rng.standard_normal((edge, edge), np.float32) for _ in range(2)]


def outputs(edge):
    return [("float32", (edge, edge))]


def terms(edge):
    return edge


def reference(x, y):
    return x.astype(np.float64) @ y.astype(np.float64)


def scale(x, y):
    return np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)


def work(edge):
    return 12 * edge**2, 2 * edge**3
