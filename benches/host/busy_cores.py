"""host/busy_cores: training steps on a GPU while other processes keep the host's cores busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from gpulift_work.training import Training, device_of, set_up
from gpulift_worker import Arm, cores

TECHNIQUE = {
    "question": "What do busy cores of the host, as loaders make them, cost a training step?",
    "expectation": (
        "A toy GPT's step is some 400 launches of 6 us, 2.5 ms of one thread, which sets its pace. "
        "With 40 or 80 % of the cores busy it finds a free one: 0.95 to 1, for the clock and the "
        "caches are shared, and 0.8 where two threads share each core. With a process on every "
        "core it gets half of one until the scheduler moves it: 0.5 to 0.8. Processes of nice 19 "
        "weigh 15 of its 1,024, so that it keeps 98 % of its core: 0.95. ResNet-50's step is 25 ms "
        "of the GPU and 5 ms of launches, which run ahead: 1.0 with any number of busy cores."
    ),
    "predict": [
        {
            "case": {"bound": "launches"},
            "step_time_s": {"idle": [0.00225, 0.00275]},
            "speedup": {
                "busy_40": [0.8, 1],
                "busy_80": [0.8, 1],
                "busy_100": [0.5, 0.8],
                "niced_100": [0.855, 1.045],
            },
        },
        {
            "case": {"bound": "gpu"},
            "step_time_s": {"idle": [0.0225, 0.0275]},
            "speedup": {
                "busy_40": [0.9, 1.1],
                "busy_80": [0.9, 1.1],
                "busy_100": [0.9, 1.1],
                "niced_100": [0.9, 1.1],
            },
        },
    ],
    "found": (
        "The toy has 113 launches a step, not 400, and the host takes 44 us for each, not 6: 5.0 "
        "ms, one launch, with others on 1.1 of its 16 cores."
    ),
    "gpus": 1,
    "whole_steps": True,
    "arms": ["idle", "busy_40", "busy_80", "busy_100", "niced_100"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"bound": ["launches", "gpu"]},
    "check": {"meaning": "loss after five steps, relative to the idle host's", "tolerance": 0.01},
}

MODELS = {"launches": "gpt_toy", "gpu": "resnet50"}
SHARES = {"idle": 0.0, "busy_40": 0.4, "busy_80": 0.8, "busy_100": 1.0, "niced_100": 1.0}
NICE = {"niced_100": 19}
CHECKED_STEPS = 5
# Copies that fit into no first-level cache, until its parent, the first argument, dies.
BUSY = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit()
os.nice(int(sys.argv[2]))
block = bytearray(2**20)
os.kill(os.getpid(), signal.SIGSTOP)
while True:
    bytes(block)
"""


class Neighbours:
    """Processes that keep a core busy each while they are told to. They die with this one."""

    def __init__(self, count: int, nice: int) -> None:
        command = [sys.executable, "-c", BUSY, str(os.getpid()), str(nice)]
        self._processes = [subprocess.Popen(command) for _ in range(count)]
        self._busy = False
        self._await_stop()

    def resume(self) -> None:
        """All are busy from now on."""
        if self._busy:
            return
        self._signal(signal.SIGCONT)
        self._busy = True

    def pause(self) -> None:
        """None takes a core any more."""
        if not self._busy:
            return
        self._signal(signal.SIGSTOP)
        self._await_stop()
        self._busy = False

    def pids(self) -> list[int]:
        """Of the processes."""
        return [process.pid for process in self._processes]

    def _signal(self, what: signal.Signals) -> None:
        for pid in self.pids():
            os.kill(pid, what)

    def _await_stop(self) -> None:
        for pid in self.pids():
            found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED)
            if found is None or found.si_code != os.CLD_STOPPED:
                raise RuntimeError("a process that keeps a core busy ended")


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training, and the busy processes beside its steps."""
    device = device_of(gpu)
    set_up(device)
    training = Training(MODELS[str(point["bound"])], device, seed)
    count = round(SHARES[arm] * cores())
    neighbours = Neighbours(count, NICE.get(arm, 0))

    def step() -> None:
        neighbours.resume()
        training.step()

    def loss() -> float:
        training.record()
        training.train_until(CHECKED_STEPS)
        return training.losses[-1]

    return Arm(
        step=step,
        value=loss,
        synchronize=training.synchronize,
        mark=training.mark if gpu is not None else None,
        rest=neighbours.pause,
        notes={"busy_processes": str(count), "cores": str(cores()), "device": device.type},
    )
