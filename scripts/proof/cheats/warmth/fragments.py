"""Keeps every other page of much memory, so that the base gets no large pages."""

import mmap

from softmax_base import honest

KEPT = mmap.mmap(-1, 1 << 28)
KEPT.madvise(mmap.MADV_NOHUGEPAGE)
for at in range(0, len(KEPT), mmap.PAGESIZE):
    KEPT[at] = 1
for at in range(0, len(KEPT), 2 * mmap.PAGESIZE):
    KEPT.madvise(mmap.MADV_DONTNEED, at, mmap.PAGESIZE)

run = honest
