"""host/thread_affinity: threads of a training step where the scheduler puts them, or on cores of
their own."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

import torch
from gpulift_work.neighbours import Neighbours, Work
from gpulift_work.numa import bind_as_torchrun
from gpulift_work.resting import Resting
from gpulift_work.training import Training, device_of, set_up
from gpulift_worker import Arm, Failed, Skip, nothing

TECHNIQUE = {
    "question": "Is a training step faster when its threads are bound to cores?",
    "expectation": (
        "As many threads as cores, of which those that a step keeps at work are bound. On an idle "
        "machine the scheduler leaves each thread where its caches are: one_each 1.0 on the "
        "processor and for a step on a GPU, whose launches set its pace, 1.0 to 1.05. omp_places, "
        "OMP_PLACES=cores and OMP_PROC_BIND=close as launch scripts set them, is the same on the "
        "processor: 0.9 to 1.1. On a GPU autograd's thread inherits the first thread's core, which "
        "that one leaves meanwhile: 0.9 to 1.05. torchrun's core-complex keeps a launch-bound "
        "step's threads on one cache: 1.0 to 1.1. one_core, the control, has all threads on one: "
        "as many times slower as there are threads, and more, since those that wait for the others "
        "keep the core busy: 0.4 with two, less with more. Beside another process that is bound to "
        "the first core, and with one thread fewer, unbound threads move out of its way, and one "
        "that is bound to that core gets half of it: all wait for that one, 0.5, and as much by "
        "omp_places, which begins there. physcpubind, the cores of numactl's option of that name "
        "or taskset's, leaves that core out, where the scheduler leads all threads anyway: 1.0 to "
        "1.1."
    ),
    "predict": [
        # On two cores.
        "neighbour:none @cpu: one_each 0.9-1.1, omp_places 0.9-1.1, one_core 0.36-0.44",
        "neighbour:none @nvidia: one_each 1-1.05, omp_places 0.9-1.05, torchrun_core_complex 1-1.1",
        "neighbour:on_first_core: one_each 0.45-0.55, omp_places 0.45-0.55, physcpubind 1-1.1",
    ],
    "whole_steps": True,
    "arms": [
        "unbound",
        "one_each",
        "omp_places",
        "physcpubind",
        "torchrun_core_complex",
        "one_core",
    ],
    "controls": ["one_core"],
    "l2": "by_size",
    "page_cache": "none",
    "sweep": {"model": ["gpt_toy", "resnet18"], "neighbour": ["none", "on_first_core"]},
    "check": {"meaning": "loss after five steps, relative to the unbound one's", "tolerance": 1e-3},
    "environment": {"omp_places": {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close"}},
}
CHECKED_STEPS = 5
LOOKED_S = 0.5  # in which each thread that works has some of the clock's ticks of 10 ms
WORKING_SHARE = 0.1  # of the busiest thread's time
BOUND = ("one_each", "one_core")  # by this script, thread for thread
SETTINGS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND")
TASKS = Path("/proc/self/task")
USED_TICKS, LAST_CORE = slice(11, 13), 36  # in proc_pid_stat(5), counted from the state


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A training whose threads are bound by what is set ahead, or once all of them are there."""
    require_settings(arm)
    cores = cores_of_engine()
    if len(cores) < 2:
        raise Skip("there is one core: no thread has another place", "use a machine with more")
    beside = point["neighbour"] != "none"
    neighbour = Neighbours(1, lambda _: spinning_on(cores[0])) if beside else None
    if arm == "physcpubind":
        bind_all_away(cores, beside)
    device = device_of(gpu)
    if arm == "torchrun_core_complex":
        bind_as_torchrun(gpu, "core-complex")
        if len(os.sched_getaffinity(0)) >= len(cores):
            raise Skip("not applicable: all cores are of one complex, which share a cache")
    set_up(device)
    of_complex = arm == "torchrun_core_complex"
    threads = len(os.sched_getaffinity(0)) if of_complex else len(cores) - beside
    torch.set_num_threads(threads)
    resting = Resting(str(point["model"]), device, seed)
    training = resting.training
    training.step()  # which starts the threads that work in it
    working = threads_at_work(training)
    places = places_of(arm, working, cores)
    bind(places)
    own = threading.get_native_id()

    def step() -> None:
        if neighbour is not None:
            neighbour.resume()
        training.step()

    def loss() -> float:
        resting.begin()  # how many steps were taken to find the threads, time decided
        training.train_until(CHECKED_STEPS)
        require_places(places)
        if arm == "omp_places" and len(os.sched_getaffinity(own)) == len(cores):
            raise Failed("OpenMP bound no thread")
        return training.losses[-1]

    return Arm(
        step=step,
        value=loss,
        synchronize=training.synchronize,
        rest=neighbour.pause if neighbour is not None else nothing,
        metrics=lambda: {
            "working_threads_count": float(len(working)),
            "cores_of_first_thread_count": float(len(os.sched_getaffinity(own))),
        },
        items=len(training.input),
        item="sample",
        versions={"torch": str(torch.__version__)},
        notes={"device": device.type, "torch_threads": str(threads)},
    )


def require_settings(arm: str) -> None:
    """Raises Skip where threads are bound already, which one arm alone is to be."""
    for name in SETTINGS:
        if name in os.environ and arm != "omp_places":
            raise Skip(f"{name} is set, which binds the threads of every arm", f"unset {name}")


def cores_of_engine() -> list[int]:
    """As gpulift_worker.usable_cores() has them, but of the process that started this one: OpenMP
    has bound the first thread of this one as it was loaded."""
    cores = sorted(os.sched_getaffinity(os.getppid()))
    return cores[: int(os.environ.get("GPULIFT_CORES", len(cores)))]


def spinning_on(core: int) -> Work:
    """Work for one that is bound to a core."""
    os.sched_setaffinity(0, {core})
    return lambda: None


def bind_all_away(cores: Sequence[int], beside: bool) -> None:
    """All threads to come, off the core that a neighbour has."""
    if not beside:
        raise Skip("not applicable: without a neighbour all cores are the process's")
    os.sched_setaffinity(0, cores[1:])


def threads_at_work(training: Training) -> list[int]:
    """Those that take processor time in steps, the first thread first. More than there are cores
    could not have one each."""
    before = {thread: used_ticks(thread) for thread in all_threads()}
    start_s = monotonic()
    while monotonic() - start_s < LOOKED_S:
        training.step()
        training.synchronize()
    used = {thread: used_ticks(thread) - before.get(thread, 0) for thread in all_threads()}
    own = threading.get_native_id()
    least = WORKING_SHARE * max(used.values())
    return [own, *sorted(one for one, ticks in used.items() if ticks > least and one != own)]


def all_threads() -> set[int]:
    """Of this process."""
    return {int(one.name) for one in TASKS.iterdir()}


def used_ticks(thread: int) -> int:
    """Of the processors, by a thread of this process."""
    return sum(map(int, status_of(thread)[USED_TICKS]))


def places_of(arm: str, threads: Sequence[int], cores: Sequence[int]) -> dict[int, int]:
    """The core of each thread; empty where something else decides. Raises Skip where a core would
    have two that were to have one each."""
    if arm not in BOUND:
        return {}
    if arm == "one_core":
        return dict.fromkeys(threads, cores[0])
    if len(threads) > len(cores):
        raise Skip(f"{len(threads)} threads work in a step, on {len(cores)} cores")
    return dict(zip(threads, cores, strict=False))


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
    return int(status_of(thread)[LAST_CORE])


def status_of(thread: int) -> list[str]:
    """What proc_pid_stat(5) says behind the thread's name."""
    status = (TASKS / str(thread) / "stat").read_text(encoding="utf-8", errors="replace")
    return status.rpartition(")")[2].split()
