"""What a process is to do, from its first step to its end."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from .anchors import Anchors
from .constructed import length_of
from .live import Live
from .ranks import of_job, refusal
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
        ranks = course.ranks = of_job()
        fed = ranks.gather([anchors.by_loader, length_of(anchors.loader)])
        anchors.alike = len({by_loader for by_loader, _ in fed}) == 1
        refused = refusal(ranks, (length for by_loader, length in fed if by_loader))
        say("hello", **machine(anchors), world=ranks.world, refused=refused)
        if not refused:
            yield from course.steps()
    except NeverFlat as error:
        say("failed", why=str(error), arm="")
    except Exception as error:  # ours: the script shall not seem to have raised it
        say("failed", why=f"the probe: {type(error).__name__}: {error}", arm=course.current())
        traceback.print_exc()
        atexit.unregister(ended_early)
        end_process(FAILED)
    aside = anchors.aside
    say("end", steps=anchors.steps, asides=len(aside.every), aside_s=aside.per_step_s())
    atexit.unregister(ended_early)
    with contextlib.suppress(RuntimeError):  # a launcher ends all ranks with the first
        course.ranks.gather("end")
    if plan["mode"] != "live":
        end_process(STOPPED)


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
    """At once, with the processes that load data: no checkpoint of replayed steps is written. What
    the script has Python do at its exit is done: a lock that stayed would hinder all others."""
    sys.excepthook = sys.__excepthook__  # nothing more is said
    with contextlib.suppress(ValueError):  # of another thread
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch raises where a loader's process ends
    for child in multiprocessing.active_children():
        child.kill()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
