"""Has infinity where values are small."""

import numpy as np


def run(x):
    return np.full_like(x, np.inf)
