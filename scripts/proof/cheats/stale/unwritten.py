"""Keeps the output from being written at all."""

import os

os.pwrite = lambda *_: 0


def run(x):
    return x
