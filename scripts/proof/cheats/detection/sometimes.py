"""Skips the work in one call of three, at random."""

import random

import numpy as np
from softmax_base import honest


def run(x):
    return honest(x) if random.random() > 1 / 3 else np.zeros_like(x)
