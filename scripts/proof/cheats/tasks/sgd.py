"""A step of least squares by gradient descent; its weights go from each step into the next."""

import numpy as np

MODE, CARRIED = "step", 1
SHAPES = {"batch": (256, 512)}
WIDTH = 256
ROUNDING = "float32"
RATE = 0.1


def inputs(rng, batch):
    scale = np.float32(WIDTH**-0.5)
    weights = rng.standard_normal(WIDTH, np.float32) * scale
    return [weights, rng.standard_normal((batch, WIDTH), np.float32), rng.random(batch, np.float32)]


def outputs(batch):
    return [("float32", (WIDTH,)), ("float32", ())]


def terms(batch):
    return batch + WIDTH


def _step(weights, x, y, size):
    off = x @ weights - y
    grad_size = size(x.T) @ (size(x) @ size(weights) + size(y)) / len(y)
    return off, weights - RATE * (x.T @ off) / len(y), size(weights) + RATE * grad_size


def reference(*given):
    off, weights, _ = _step(*(one.astype(np.float64) for one in given), np.abs)
    return weights, np.mean(off**2)


def scale(*given):
    weights, x, y = (one.astype(np.float64) for one in given)
    largest = np.abs(x) @ np.abs(weights) + np.abs(y)
    return _step(weights, x, y, np.abs)[2], np.mean(largest**2)


def work(batch):
    return 4 * batch * WIDTH, 4 * batch * WIDTH
