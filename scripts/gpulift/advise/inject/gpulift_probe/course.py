"""What a process is to do, from its first step to its end."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from .anchors import Anchors
from .live import Live
from .replay import Replay
from .said import Said
from .span import Course, NeverFlat, Span, machine
from .turn import Turn

KINDS: Mapping[str, type[Span]] = {"replay": Replay, "live": Live, "turn": Turn}
FAILED = 70  # exit code of a process whose probe failed
STOPPED = 75  # of one that was measured: whoever waits for it shall not take it for trained


def of(plan: dict[str, Any], anchors: Anchors, say: Said) -> Course:
    """The course of a plan, from behind the first step on. It ends the process, but where the
    training is to go on."""
    course = KINDS[plan["mode"]](plan, anchors, say)
    ended_early = _telling_end(course)
    atexit.register(ended_early)
    sys.excepthook = _telling(course, sys.excepthook, ended_early)
    try:
        facts = machine(anchors)
        say("hello", **facts)
        if facts["world"] == 1:
            yield from course.steps()
    except NeverFlat as error:
        say("failed", why=str(error), arm="")
    except Exception as error:  # ours: the script shall not seem to have raised it
        say("failed", why=f"the probe: {type(error).__name__}: {error}", arm=course.current())
        traceback.print_exc()
        end_process(FAILED)
    say("end", steps=anchors.steps)
    if plan["mode"] != "live":
        end_process(STOPPED)
    atexit.unregister(ended_early)


def _telling(
    course: Span, show: Callable[..., Any], ended_early: Callable[[], None]
) -> Callable[..., Any]:
    """What Python does with an error of the script, after it was said which arm it came in."""

    def tell(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        atexit.unregister(ended_early)
        course.say("failed", why=kind.__name__, arm=course.current())
        show(kind, error, trace)

    return tell


def _telling_end(course: Span) -> Callable[[], None]:
    def tell() -> None:
        steps = course.anchors.steps
        course.say("failed", why=f"the script ended by itself after {steps} steps", arm="")

    return tell


def end_process(code: int) -> NoReturn:
    """At once, with the processes that load data: neither a checkpoint of replayed steps is
    written, nor is a run of them told to whoever keeps count of runs."""
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
