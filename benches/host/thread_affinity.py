"""host/thread_affinity: threads of a training step where the scheduler puts them, or on cores of
their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from gpulift_work.training import Training, device_of, set_up
from gpulift_worker import Arm, Failed, Skip, nothing, usable_cores

TECHNIQUE = {
    "question": "Is a training step faster when each of its threads has a core of its own?",
    "expectation": (
        "On an idle machine the scheduler leaves each thread where its caches are: one_each 1.0 on "
        "the processor and for a step on a GPU, whose launches set its pace, 1.0 to 1.05. "
        "one_core, the control, has all threads on one: as many times slower as there are threads, "
        "and more, since those that wait for the others keep the core busy: 0.4 with two, less "
        "with more. Beside another process that is bound to the first core, and with one thread "
        "fewer, unbound threads move out of its way, and one that is bound to that core gets half "
        "of it: all wait for that one, 0.5."
    ),
    "predict": [
        # On two cores.
        {
            "case": {"neighbour": "none"},
            "on": "cpu",
            "speedup": {"one_each": [0.9, 1.1], "one_core": [0.36, 0.44]},
        },
        {"case": {"neighbour": "none"}, "on": "nvidia", "speedup": {"one_each": [1, 1.05]}},
        {"case": {"neighbour": "on_first_core"}, "speedup": {"one_each": [0.45, 0.55]}},
    ],
    "whole_steps": True,
    "arms": ["unbound", "one_each", "one_core"],
    "controls": ["one_core"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt_toy", "resnet18"], "neighbour": ["none", "on_first_core"]},
    "check": {"meaning": "loss after five steps, relative to the unbound one's", "tolerance": 1e-3},
}
CHECKED_STEPS = 5
TASKS = Path("/proc/self/task")
LAST_CORE = 36  # in proc_pid_stat(5), counted from the state
# Keeps the core of its second argument busy until its parent, the first one, dies.
BUSY = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit()
os.sched_setaffinity(0, {int(sys.argv[2])})
os.kill(os.getpid(), signal.SIGSTOP)
while True:
    pass
"""


class Neighbour:
    """A process that keeps a core busy while it is told to. It dies with this one."""

    def __init__(self, core: int) -> None:
        command = [sys.executable, "-c", BUSY, str(os.getpid()), str(core)]
        self.pid = subprocess.Popen(command).pid
        self._busy = False
        self._await_stop()

    def resume(self) -> None:
        """Busy from now on."""
        if not self._busy:
            os.kill(self.pid, signal.SIGCONT)
            self._busy = True

    def pause(self) -> None:
        """It takes no core any more."""
        if self._busy:
            os.kill(self.pid, signal.SIGSTOP)
            self._await_stop()
            self._busy = False

    def _await_stop(self) -> None:
        found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED)
        if found is None or found.si_code != os.CLD_STOPPED:
            raise RuntimeError("the process that keeps a core busy ended")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training whose threads are bound once all of them are there."""
    cores = usable_cores()
    if len(cores) < 2:
        raise Skip("there is one core: no thread has another place", "use a machine with more")
    beside = point["neighbour"] != "none"
    others = all_threads()  # of libraries, which do nothing in a step
    device = device_of(gpu)
    set_up(device)
    threads = len(cores) - beside
    torch.set_num_threads(threads)
    training = Training(str(point["model"]), device, seed)
    training.step()  # which starts the threads that work in it
    own = threading.get_native_id()
    working = [own, *sorted(all_threads() - others - {own})]
    places = places_of(arm, working, cores)
    bind(places)
    neighbour = Neighbour(cores[0]) if beside else None

    def step() -> None:
        if neighbour is not None:
            neighbour.resume()
        training.step()

    def loss() -> float:
        training.record()
        training.train_until(CHECKED_STEPS)
        require_places(places)
        return training.losses[-1]

    return Arm(
        step=step,
        value=loss,
        synchronize=training.synchronize,
        rest=neighbour.pause if neighbour is not None else nothing,
        metrics=lambda: {"threads_count": float(len(working))},
        items=len(training.input),
        item="sample",
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
    )


def all_threads() -> set[int]:
    """Of this process."""
    return {int(one.name) for one in TASKS.iterdir()}


def places_of(arm: str, threads: Sequence[int], cores: Sequence[int]) -> dict[int, int]:
    """The core of each thread; empty where the scheduler decides."""
    if arm == "unbound":
        return {}
    count = 1 if arm == "one_core" else len(cores)
    return {thread: cores[place % count] for place, thread in enumerate(threads)}


def bind(places: Mapping[int, int]) -> None:
    """Each thread to its core."""
    for thread, core in places.items():
        os.sched_setaffinity(thread, {core})


def require_places(places: Mapping[int, int]) -> None:
    """Raises Failed where a thread may run elsewhere, or this one does."""
    for thread, core in places.items():
        allowed = os.sched_getaffinity(thread)
        if allowed != {core}:
            raise Failed(f"a thread that was bound to core {core} may run on {len(allowed)} cores")
    own = threading.get_native_id()
    if own in places and last_core(own) != places[own]:
        raise Failed(f"a thread that was bound to core {places[own]} ran on {last_core(own)}")


def last_core(thread: int) -> int:
    """Where a thread of this process ran last."""
    status = (TASKS / str(thread) / "stat").read_text(encoding="utf-8", errors="replace")
    return int(status.rpartition(")")[2].split()[LAST_CORE])
