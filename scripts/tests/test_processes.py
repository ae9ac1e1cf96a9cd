"""Forked processes share out what there is to do, each number to one of them."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

import pytest

from gpulift import processes


def _take(queue: int, sender: Connection) -> None:
    sender.send(list(processes.taken(queue)))


def test_every_number_goes_to_one_process() -> None:
    queue = processes.queue(300)
    started = [processes.start(_take, queue) for _ in range(2)]
    mine = list(processes.taken(queue))
    theirs = [receiver.recv() for _, receiver in started]
    os.close(queue)
    for process, receiver in started:
        receiver.close()
        process.join()
    assert sorted([*mine, *theirs[0], *theirs[1]]) == list(range(300))


def _wait(sender: Connection) -> None:
    sender.send("waiting")
    time.sleep(60)


def test_an_interrupt_ends_it_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    process, receiver = processes.start(_wait)
    receiver.recv()
    os.kill(process.pid or 0, signal.SIGINT)
    process.join(timeout=30)
    assert process.exitcode == -signal.SIGINT
    assert capfd.readouterr().err == ""
