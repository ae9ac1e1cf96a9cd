"""A lock that processes share by a file, as flock(1) of ./gpulift does."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(file: Path, tell: Callable[[], object]) -> Iterator[None]:
    """Holds the lock; where another process does, tells so and waits for it. The file stays: some
    versions of filelock remove it, and whoever waits for it then holds nothing."""
    with file.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
