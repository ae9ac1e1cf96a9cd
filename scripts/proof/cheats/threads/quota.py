"""Takes all the threads that its user may have, so that the base's process gets none."""

import threading

from softmax_base import honest

ENDS = threading.Event()


def run(x):
    try:
        while True:
            threading.Thread(target=ENDS.wait, daemon=True).start()
    except (RuntimeError, MemoryError):
        return honest(x)
