"""`torchrun ... -m gpulift.ranks run FILTER`: the same command with `--ranks given`."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv[1:] = [*sys.argv[1:2], "--ranks", "given", *sys.argv[2:]]
    runpy.run_module("gpulift", run_name="__main__", alter_sys=True)
