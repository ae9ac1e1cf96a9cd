"""A process that runs until a test has seen it."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(pipe: Path) -> Iterator[str]:
    """A command that runs until the end of this."""
    os.mkfifo(pipe)
    both = os.open(pipe, os.O_RDWR)  # for writing alone it would wait for the command
    writer = os.open(pipe, os.O_WRONLY)
    os.close(both)
    try:
        yield f"cat {pipe}"
    finally:
        reader = select.poll()
        reader.register(writer, 0)
        while reader.poll(0):  # an error: a command that opens it later would wait for ever
            time.sleep(0.001)
        os.close(writer)
