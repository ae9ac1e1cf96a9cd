"""host/omp_threads: how many threads each of several processes on a machine takes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from gpulift_work.loaders import end_with_parent
from gpulift_work.training import TWINS, Training
from gpulift_worker import Arm, Failed, Skip, cores

TECHNIQUE = {
    "question": "How many threads should each process take whose steps run on the host's cores?",
    "expectation": (
        "torchrun gives each of several processes one thread; torch alone takes as many as there "
        "are cores. One process: ResNet-18's step is large products, which all cores share: 0.85 "
        "times their number, 1.7 on two. The toy GPT's operations are of some 10 us, most of them "
        "too small to be shared: 1.1 on two cores, and below 1 on many. As many processes as cores "
        "keep all of them busy with a thread each. With all cores' threads each, every parallel "
        "piece waits for a thread that is not running, milliseconds at a time: 0.5 and less. "
        "cores_per_process is all cores for one process, 1.7, and one thread each where there are "
        "as many: 1.0; with two processes on more cores 0.85 times half of their number."
    ),
    "predict": [  # on two cores
        {
            "case": {"processes": 1, "model": "resnet18"},
            "on": "cpu",
            "speedup": {"all_cores": [1.53, 1.87], "cores_per_process": [1.53, 1.87]},
        },
        {
            "case": {"processes": 1, "model": "gpt_toy"},
            "on": "cpu",
            "speedup": {"all_cores": [0.99, 1.21], "cores_per_process": [0.99, 1.21]},
        },
        {"case": {"processes": 2}, "on": "cpu", "speedup": {"cores_per_process": [0.9, 1.1]}},
    ],
    "found": (
        "Two threads keep both cores busy, 624 ms of CPU time in 317, and are worth 1.03; in the "
        "arm that is the same there 1.25, for windows of each differ by a third. That the two "
        "cores are threads of one is inferred: the machine does not tell. One launch of five "
        "blocks."
    ),
    "whole_steps": True,
    "arms": ["one", "all_cores", "cores_per_process"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"processes": [1, 2, 8], "model": ["gpt_toy", "resnet18"]},
    "check": {"meaning": "loss after five steps, relative to one thread's", "tolerance": 1e-3},
}
CHECKED_STEPS = 5
SETTINGS = ("GOMP_", "KMP_", "OMP_")  # of the threads, beside their number
NUMBER = "OMP_NUM_THREADS"  # which torch.set_num_threads replaces


class Worker:
    """A process that trains a model of its own with so many threads, a step when it is told to."""

    def __init__(self, model: str, seed: int, threads: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        die_with_parent = end_with_parent(os.getpid())
        arguments = (other, die_with_parent, model, seed, threads)
        self._process = context.Process(target=train, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def tell(self, what: str) -> None:
        """Starts it."""
        self._pipe.send(what)

    def answer(self) -> Any:
        """Waits until it is done. Raises Failed where the process ended, and Skip where
        it says so."""
        try:
            said = self._pipe.recv()
        except EOFError:
            raise Failed("a process of the arm ended") from None
        if isinstance(said, Skip):
            raise said
        return said

    def end(self) -> None:
        """Of the process."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()


def train(
    pipe: Connection, die_with_parent: Callable[[int], None], model: str, seed: int, threads: int
) -> None:
    """What a worker does until nobody listens."""
    die_with_parent(0)
    torch.set_num_threads(threads)
    try:
        training = Training(model, torch.device("cpu"), seed)
        training.step()  # which starts its threads
        pipe.send(torch.get_num_threads())
        while True:
            if pipe.recv() == "step":
                training.step()
                pipe.send(None)
            else:
                training.record()
                training.train_until(CHECKED_STEPS)
                pipe.send(training.losses[-1])
    except Skip as skip:
        pipe.send(skip)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is one of each process at once, and as long as the slowest."""
    require_unset()
    processes, model = int(point["processes"]), str(point["model"])
    if processes > cores():
        raise Skip(
            f"{processes} processes would share {cores()} cores", "use a machine with more cores"
        )
    threads = threads_of(arm, processes)
    # Before torch starts a thread of this process: none of them lives through a fork.
    workers = [Worker(model, seed, threads) for _ in range(processes)]
    found = [one.answer() for one in workers]
    if found != [threads] * processes:
        raise Failed(f"asked for {threads} threads a process, and torch has {found}")

    def step() -> None:
        ask(workers, "step")

    return Arm(
        step=step,
        value=lambda: float(max(ask(workers, "loss"))),  # all of them are the same
        metrics=lambda: {"threads_count": float(processes * threads)},
        items=processes * TWINS[model].batch,
        item="sample",
        versions={"torch": str(torch.__version__)},
        notes={"device": "cpu", "cores": str(cores())},
    )


def ask(workers: Sequence[Worker], what: str) -> list[Any]:
    """Of all at once."""
    for one in workers:
        one.tell(what)
    return [one.answer() for one in workers]


def threads_of(arm: str, processes: int) -> int:
    """Of each process."""
    return {
        "one": 1,
        "all_cores": cores(),
        "cores_per_process": max(1, cores() // processes),
    }[arm]


def require_unset() -> None:
    """Raises Skip where the threads have other settings, such as how they wait."""
    for name in sorted(os.environ):
        if name.startswith(SETTINGS) and name != NUMBER:
            raise Skip(f"{name} is set, which all arms are to be measured without", f"unset {name}")
