"""Stands for a worker on another host: `relay.py SOCKET RANK`, started by gpulift-bench in its
place. What comes on standard input goes to the socket, what comes from there to descriptor 3; the
last line says how the worker ended, and so does this. It needs nothing but Python."""

import os
import signal
import socket
import sys
import threading
from contextlib import suppress

REPLIES = 3
ENDED = b"\0"  # begins the last line: no JSON does


def pass_on(questions: int, hub: socket.socket) -> None:
    """Until there are no more, or the hub hears none."""
    with suppress(OSError):
        while read := os.read(questions, 1 << 16):
            hub.sendall(read)
        hub.shutdown(socket.SHUT_WR)


def end_as(code: int) -> None:
    """By the same exit code, or by the same signal where it is below 0."""
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(path: str, rank: str) -> None:
    """Until the hub closes the line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and closes the line
    with suppress(OSError), socket.socket(socket.AF_UNIX) as hub:
        hub.connect(path)
        hub.sendall(rank.encode() + b"\n")
        threading.Thread(target=pass_on, args=(0, hub), daemon=True).start()
        for line in hub.makefile("rb"):
            if line.startswith(ENDED):
                end_as(int(line[1:]))
            os.write(REPLIES, line)
    end_as(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
