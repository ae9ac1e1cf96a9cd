"""Python arms that do what no arm should."""

import fcntl
import os
import signal
import stat
import time

from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What becomes of a case whose Python arms do what none should, or lack a package?",
    "expectation": "An error, a failure or a skip of that case, with its reason.",
    "arms": ["baseline", "other"],
    "sweep": {
        "does": [
            "kills_itself",
            "sleeps",
            "raises",
            "raises_in_second_launch",
            "gives_no_number",
            "imports_nothing",
            "measures_no_number",
            "answers_no_json",
            "answers_no_window",
            "has_events",
            "has_events_in_one_arm",
            "hides_time",
        ]
    },
    "quick": [{}],
    "check": {"meaning": "said by the script", "tolerance": 0},
}

RUBBISH = {"answers_no_json": b"rubbish\n", "answers_no_window": b'{"rubbish": 1}\n'}


class Event:
    """Reached when it is made; it needs no device, and tells the host's time, or a part of it."""

    def __init__(self, told=1.0):
        self.time_s = time.monotonic() * told

    def elapsed_time(self, end):
        """Milliseconds."""
        return 1e3 * (end.time_s - self.time_s)


def is_answer_pipe(descriptor):
    """Whether it is a pipe to write to, and none of the three that every process has."""
    try:
        mode = os.fstat(descriptor).st_mode
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except OSError:
        return False
    return descriptor > 2 and stat.S_ISFIFO(mode) and access == os.O_WRONLY


def raise_on_purpose():
    """What a step may do."""
    raise ValueError("raised on purpose")


def is_second_launch():
    """A file holds a letter for each launch in which it was asked."""
    with open(os.environ["GPULIFT_TESTING_LAUNCHES"], "a+") as file:
        file.write("x")
        return file.tell() == 2


def make(arm, point, seed, gpu):
    """The arm that does what the case says; all of an arm is in order else."""
    does = point["does"]
    if does == "imports_nothing":
        __import__("gpulift_no_such_package")
    if does == "raises_in_second_launch" and arm == "baseline" and is_second_launch():
        raise_on_purpose()
    steps = []

    def kill_in_second_step():
        steps.append(1)
        if len(steps) > 1:  # the first is the check
            os.kill(os.getpid(), signal.SIGSEGV)

    def answer_rubbish_after_check():
        if steps:
            for descriptor in filter(is_answer_pipe, range(64)):
                os.write(descriptor, RUBBISH[does])

    def error():
        steps.append(1)
        return float("nan") if does == "gives_no_number" and arm == "other" else 0.0

    in_one = does == "has_events_in_one_arm" and arm == "baseline"
    events = in_one or does in ("has_events", "hides_time")
    step = {
        "kills_itself": kill_in_second_step,
        "sleeps": lambda: time.sleep(3600),
        "raises": raise_on_purpose,
        "answers_no_json": answer_rubbish_after_check,
        "answers_no_window": answer_rubbish_after_check,
    }.get(does, lambda: time.sleep(1e-3))
    metrics = {"speed": float("nan")} if does == "measures_no_number" else {}
    told = 0.1 if does == "hides_time" and arm == "other" else 1.0
    mark = (lambda: Event(told)) if events else None
    return Arm(step=step, error=error, mark=mark, metrics=lambda: metrics)
