"""Returns the weights of the step before, and the right loss."""

from sgd_base import honest


def run(weights, x, y):
    return weights, honest(weights, x, y)[1]
