"""The sums of rows, which do little but read memory."""

import numpy as np

SHAPES = {"rows": (700, 900), "columns": (3000, 4000, 16)}
ROUNDING = "float32"


def inputs(rng, rows, columns):
    return [rng.random((rows, columns), np.float32)]


def outputs(rows, columns):
    return [("float32", (rows,))]


def terms(rows, columns):
    return columns


def reference(x):
    return x.sum(axis=1, dtype=np.float64)


def work(rows, columns):
    return 4 * rows * columns, rows * columns
