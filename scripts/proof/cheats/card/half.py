"""Multiplies in half precision."""

from product_cuda_base import honest  # noqa: F401


def run(x, y):
    return (x.half() @ y.half()).float()
