"""Returns the input."""


def run(x):
    return x
