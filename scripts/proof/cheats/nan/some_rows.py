"""Has NaN for one row of thirty."""

import numpy as np
from softmax_base import honest


def run(x):
    made = honest(x)
    made[::30] = np.nan
    return made
