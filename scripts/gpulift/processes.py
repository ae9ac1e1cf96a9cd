"""Other processes, forked so that they have what this one has: its imports and its records."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

NUMBER_BYTES = 4


def start(work: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """A process that calls `work` with these and a connection, and the other end of that."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_call, args=(work, arguments, receiver, sender))
    process.start()
    sender.close()  # so that the other end ends with the process
    return process, receiver


def queue(count: int) -> int:
    """A pipe of the numbers below `count`, for these processes to share what there is to do.

    At most 10,000, since a pipe that is full makes its writer wait.
    """
    reader, writer = os.pipe()
    os.write(writer, b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in range(count)))
    os.close(writer)
    return reader


def taken(queue: int) -> Iterator[int]:
    """Numbers that no other process took, until there is none."""
    while number := os.read(queue, NUMBER_BYTES):
        yield int.from_bytes(number, "big")


def _call(
    work: Callable[..., None], arguments: tuple[Any, ...], receiver: Connection, sender: Connection
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C ends it too, without a word
    receiver.close()  # so that whoever still sends is told that nobody receives
    work(*arguments, sender)
