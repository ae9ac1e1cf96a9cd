"""Writes into the pipe that answers go through, before the answer to its second question."""

import fcntl
import os
import stat

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a worker that prints rubbish on its pipe?",
    "expectation": "An error that names the worker and shows the rubbish.",
    "arms": ["baseline", "other"],
    "sweep": {"says": ["no_json", "no_window"]},
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}

RUBBISH = {"no_json": b"rubbish\n", "no_window": b'{"rubbish": 1}\n'}


def is_answer_pipe(descriptor):
    """Whether it is a pipe to write to, and none of the three that every process has."""
    try:
        mode = os.fstat(descriptor).st_mode
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return False
    return descriptor > 2 and stat.S_ISFIFO(mode) and access == os.O_WRONLY


def make(arm, point, seed, gpu):
    """An arm whose steps after the check write rubbish."""
    checked = []

    def step():
        if checked:
            for descriptor in filter(is_answer_pipe, range(64)):
                os.write(descriptor, RUBBISH[point["says"]])

    return Arm(step=step, error=lambda: checked.append(True) or 0.0)
