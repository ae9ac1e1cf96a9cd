"""Gives numbers where the result is NaN."""

import numpy as np
from softmax_base import honest


def run(x):
    return np.nan_to_num(honest(x))
