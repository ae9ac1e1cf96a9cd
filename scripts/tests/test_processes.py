"""Forked processes share out what there is to do, each number to one of them."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

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
