"""Returns a generator that has not begun."""

from softmax_base import honest


def run(x):
    return (row for row in honest(x))
