"""io_uring(7) for Python arms: reads and writes of one file, many at once, by one thread.

Numpy fills the queue in whole batches, so that Python takes microseconds per batch and not per
request.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Any

import numpy as np
from gpulift_worker import Skip

SETUP, ENTER = 425, 426  # io_uring_setup(2), io_uring_enter(2): the same on all architectures
SUBMISSIONS_AT, COMPLETIONS_AT, ENTRIES_AT = 0, 0x8000000, 0x10000000  # offsets of mmap(2)
WAIT = 1  # IORING_ENTER_GETEVENTS
READ, WRITE = 22, 23  # IORING_OP_READ, IORING_OP_WRITE: since Linux 5.6
REMEDY = "allow io_uring: containers and kernel.io_uring_disabled forbid it"

_c = ctypes.CDLL(None, use_errno=True)


class Offsets(ctypes.Structure):
    """struct io_sqring_offsets and io_cqring_offsets of <linux/io_uring.h>."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("head", "tail", "mask", "entries")),
        *((name, ctypes.c_uint32) for name in ("of_ring_4", "of_ring_5", "of_ring_6", "reserved")),
        ("address", ctypes.c_uint64),
    )


class Parameters(ctypes.Structure):
    """struct io_uring_params of <linux/io_uring.h>."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("submissions", "completions", "flags", "cpu")),
        *((name, ctypes.c_uint32) for name in ("idle", "features", "workers")),
        ("reserved", ctypes.c_uint32 * 3),
        ("submission", Offsets),  # of_ring_6: where the ring's indices of entries lie
        ("completion", Offsets),  # of_ring_5: where its entries lie
    )


ENTRY = np.dtype(  # struct io_uring_sqe, as far as reads and writes need it
    {
        "names": ["opcode", "descriptor", "offset", "address", "length", "number"],
        "formats": ["u1", "i4", "u8", "u8", "u4", "u8"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
COMPLETION = np.dtype([("number", "u8"), ("result", "i4"), ("flags", "u4")])  # struct io_uring_cqe


class Ring:
    """Keeps up to `depth` requests in flight. Raises Skip where the system forbids it."""

    def __init__(self, depth: int) -> None:
        parameters = Parameters()
        self._descriptor = _c.syscall(SETUP, depth, ctypes.byref(parameters))
        if self._descriptor < 0:
            reason = os.strerror(ctypes.get_errno())
            raise Skip(f"io_uring cannot be used here: {reason}", REMEDY)
        self._depth = depth
        submission, completion = parameters.submission, parameters.completion
        submissions, completions = parameters.submissions, parameters.completions
        ring = self._map(submission.of_ring_6 + 4 * submissions, SUBMISSIONS_AT)
        done = self._map(completion.of_ring_5 + COMPLETION.itemsize * completions, COMPLETIONS_AT)
        entries = self._map(ENTRY.itemsize * submissions, ENTRIES_AT)
        self._tail = np.frombuffer(ring, np.uint32, 1, submission.tail)
        self._entries = np.frombuffer(entries, ENTRY, submissions)
        indices = np.frombuffer(ring, np.uint32, submissions, submission.of_ring_6)
        indices[:] = np.arange(submissions)  # an entry's place in the ring is its own
        self._done_head = np.frombuffer(done, np.uint32, 1, completion.head)
        self._done_tail = np.frombuffer(done, np.uint32, 1, completion.tail)
        self._done = np.frombuffer(done, COMPLETION, completions, completion.of_ring_5)

    def close(self) -> None:
        """Frees the queue; nothing is in flight between two transfers."""
        os.close(self._descriptor)

    def transfer(self, opcode: int, descriptor: int, offsets: Any, rows: Any) -> None:
        """Reads or writes each row of an array at its offset in the file; returns when all is done.
        Raises OSError where one fails or is cut short."""
        count, length = rows.shape
        requests = np.zeros(count, ENTRY)
        requests["opcode"], requests["descriptor"] = opcode, descriptor
        requests["offset"], requests["length"] = offsets, length
        requests["address"] = rows.ctypes.data + length * np.arange(count, dtype=np.uint64)
        requests["number"] = np.arange(count)
        queued = finished = 0
        while finished < count:
            new = min(self._depth - (queued - finished), count - queued)
            self._queue(requests[queued : queued + new])
            queued += new
            # A quarter of them: the queue stays filled, and each call has several to hand over.
            self._enter(new, min(queued - finished, max(1, self._depth // 4)))
            finished += self._reap(length, offsets)

    def _map(self, length: int, offset: int) -> mmap.mmap:
        return mmap.mmap(self._descriptor, length, offset=offset)

    def _queue(self, requests: Any) -> None:
        """The kernel looks at the tail when it is entered, and copies what is there."""
        tail = int(self._tail[0])
        self._entries[(tail + np.arange(len(requests))) % len(self._entries)] = requests
        self._tail[0] = (tail + len(requests)) % 2**32

    def _enter(self, new: int, wanted: int) -> None:
        taken = _c.syscall(ENTER, self._descriptor, new, wanted, WAIT, None, 0)
        if taken != new and not (taken < 0 and new == 0 and ctypes.get_errno() == errno.EINTR):
            code = ctypes.get_errno() if taken < 0 else errno.EIO
            raise OSError(code, f"io_uring took {taken} of {new} requests: {os.strerror(code)}")

    def _reap(self, length: int, offsets: Any) -> int:
        """How many are done since the last look."""
        head, tail = int(self._done_head[0]), int(self._done_tail[0])
        count = (tail - head) % 2**32
        done = self._done[(head + np.arange(count)) % len(self._done)]
        for part in done[done["result"] != length]:
            require_whole(int(part["result"]), length, int(offsets[int(part["number"])]))
        self._done_head[0] = tail
        return count


def require_whole(result: int, length: int, offset: int) -> None:
    """Raises OSError where a request failed or moved fewer bytes than it was to."""
    if result < 0:
        raise OSError(-result, f"at byte {offset}: {os.strerror(-result)}")
    if result < length:
        raise OSError(errno.EIO, f"at byte {offset}: {result} of {length} bytes")
