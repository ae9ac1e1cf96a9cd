"""Other processes, forked so that they have what this one has: its imports and its records."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any


def start(work: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """A process that calls `work` with these and a connection, and the other end of that."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_call, args=(work, arguments, receiver, sender))
    process.start()
    sender.close()  # so that the other end ends with the process
    return process, receiver


def _call(
    work: Callable[..., None], arguments: tuple[Any, ...], receiver: Connection, sender: Connection
) -> None:
    receiver.close()  # so that whoever still sends is told that nobody receives
    work(*arguments, sender)
