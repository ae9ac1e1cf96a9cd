"""Looks for programs and libraries that set clocks, and asks what the clocks are."""

import contextlib
import ctypes
import subprocess

from product_cuda_base import honest

with contextlib.suppress(Exception):
    subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv"], timeout=5)
with contextlib.suppress(Exception):
    ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()

run = honest
