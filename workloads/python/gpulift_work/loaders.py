"""Loaders whose windows can be compared: in each as many batches are made as are taken.

What a loader makes ahead while other arms are timed would be a gift to the window that takes it. So
its processes are stopped between windows, and go on where they were; what threads of this process
have made is thrown away. Then comes a round that is not timed: a window begins at the pace of a
training that goes on.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import itertools
import multiprocessing
import os
import re
import shutil
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from gpulift_cpu import CpuMeter
from gpulift_worker import DIE_WITH_PARENT, Skip
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

PREFETCH = 2  # batches ahead of each worker: torch's default
SILENT_S = 60  # after which workers of a stream will give no batch any more
LOOK_S = 5.0  # between two looks at workers that say nothing
SHARED_MEMORY = "/dev/shm"
KILLED = re.compile(r"DataLoader worker .*(killed by signal|exited unexpectedly)")  # says torch

Key = tuple[int, int]  # epoch and number of a sample
Keys = list[Key]
Load = Callable[[Key], Any]
Collate = Callable[[list[tuple[Key, Any]]], Any]


class Loader(Protocol):
    """What gives batches in the order that they are asked for."""

    def take(self) -> tuple[Keys, Any]:
        """The next batch with the keys of its samples; asks for one more."""

    def pause(self) -> int:
        """Until the next is taken nothing works any more, but for a thread that pins what is made.
        How many batches were made for that."""


def stop(processes: Sequence[int]) -> None:
    """Children of this process, until go_on(); one that has ended stays as it is."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    for process in processes:
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def go_on(processes: Iterable[int]) -> None:
    """Where they were; some may have ended."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def go_on_in_the_end(loader: object, processes: Sequence[int]) -> None:
    """With the loader, or with this process where it ends by itself: it waits for its children, and
    one that is stopped does not end. Where it is killed, they are, too."""
    weakref.finalize(loader, go_on, processes).atexit = False
    atexit.register(go_on, processes)  # before multiprocessing's own, which came earlier


@dataclass(frozen=True)
class Order:
    """Batches of all samples without end, in each epoch in another order; the same for a seed."""

    samples: int
    batch: int
    seed: int

    def __iter__(self) -> Iterator[Keys]:
        for epoch in itertools.count():
            numbers = np.random.default_rng([self.seed, epoch]).permutation(self.samples).tolist()
            for start in range(0, self.samples - self.batch + 1, self.batch):
                yield [(epoch, number) for number in numbers[start : start + self.batch]]

    def checker(self) -> Callable[[Keys], None]:
        """What is called with each batch's keys, and raises RuntimeError for another's."""
        expected = iter(self)

        def check(keys: Keys) -> None:
            wanted = next(expected)
            if keys != wanted:
                raise RuntimeError(f"the loader gave samples {keys}, not {wanted}")

        return check


@dataclass(frozen=True)
class AnyOrder:
    """That of a library which shuffles by itself: each epoch has all samples, and none twice."""

    samples: int
    batch: int

    def checker(self) -> Callable[[Keys], None]:
        """As Order has it. What an epoch lacks shows when batches are two epochs on."""
        left: dict[int, set[int]] = {}

        def check(keys: Keys) -> None:
            for epoch, number in keys:
                missing = left.setdefault(epoch, set(range(self.samples)))
                if number not in missing:
                    raise RuntimeError(f"the loader gave sample {number} twice in an epoch")
                missing.remove(number)
                if forgotten := left.pop(epoch - 2, None):
                    raise RuntimeError(f"the loader left out {len(forgotten)} samples of an epoch")

        return check


class Samples(Dataset[Any]):
    """Samples by their keys; an error says of which."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def __getitem__(self, key: Key) -> tuple[Key, Any]:
        try:
            return key, self._load(key)
        except Exception as error:
            raise ValueError(f"sample {key[1]}: {error}") from error

    def __getitems__(self, keys: Keys) -> list[tuple[Key, Any]]:
        """Where torch finds this, it asks for a batch at once."""
        return list(map(self.__getitem__, keys))


class Batches(Samples):
    """Samples that are read a batch at once."""

    def __init__(self, read: Callable[[Keys], list[Any]]) -> None:
        super().__init__(lambda key: read([key])[0])
        self._read = read

    def __getitems__(self, keys: Keys) -> list[tuple[Key, Any]]:
        return list(zip(keys, self._read(keys), strict=True))


def stacked(samples: list[tuple[Key, Any]]) -> tuple[Keys, Any]:
    """A batch as torch makes it: in a worker it lies in shared memory."""
    return [key for key, _ in samples], default_collate([data for _, data in samples])


class ProcessLoader:
    """torch's DataLoader: no worker, and it loads when asked; else processes that load ahead. A
    stream of samples without end, which each worker has a part of, tells their keys itself.

    They are forked, which is how Linux had them up to Python 3.13, and end with this process.
    """

    def __init__(
        self,
        samples: Samples | IterableDataset[Any],
        order: Order | AnyOrder,
        workers: int,
        *,
        collate: Collate = stacked,
        pin_memory: bool = False,
    ) -> None:
        dataset: Any = samples
        by: dict[str, Any] = (
            {"batch_sampler": order} if isinstance(order, Order) else {"batch_size": order.batch}
        )
        ahead: dict[str, Any] = {}
        self._asked = 0
        self._ready = 0
        self._broken: Any = None  # of a stream: says why
        if workers > 0:
            context = multiprocessing.get_context("fork")
            self._made = context.Semaphore(0)
            if isinstance(samples, Samples):
                dataset = Telling(samples, collate, self._made)
            else:
                self._broken = context.SimpleQueue()
                dataset = TellingStream(samples, collate, self._made, self._broken)
                ahead["timeout"] = SILENT_S
            collate = dataset.collate
            self._asked = workers * PREFETCH
            ahead |= {
                "prefetch_factor": PREFETCH,
                "multiprocessing_context": context,
                "worker_init_fn": end_with_parent(os.getpid()),
            }
        self._batches = iter(
            DataLoader(
                dataset,
                **by,
                num_workers=workers,
                collate_fn=collate,
                pin_memory=pin_memory,
                **ahead,
            )
        )
        self._workers = workers
        self._stopped = False
        go_on_in_the_end(self, self.processes)

    def take(self) -> tuple[Keys, Any]:
        """Asks the worker that made it for one more, as DataLoader does."""
        if self._stopped:
            go_on(self.processes)
            self._stopped = False
        try:
            batch: tuple[Keys, Any] = next(self._batches)
        except Exception as error:
            self._raise_broken()
            raise RuntimeError(in_one_line(error)) from error
        if self._workers > 0:
            self._asked += 1
        keys, data = batch
        return [(epoch, number) for epoch, number in keys], data  # pinning may make lists of pairs

    def pause(self) -> int:
        """Stops the workers in the midst of their batches."""
        try:
            stop(self.processes)
        except RuntimeError as error:  # torch raises it here when a worker dies
            raise RuntimeError(in_one_line(error)) from error
        self._stopped = True
        return 0

    def wait(self) -> None:
        """Sleeps until the workers have made all batches, and are not stopped."""
        while self._ready < self._asked:
            self._raise_broken()
            try:
                if self._made.acquire(timeout=LOOK_S):
                    self._ready += 1
            except RuntimeError as error:  # as in pause()
                raise RuntimeError(in_one_line(error)) from error

    def _raise_broken(self) -> None:
        if self._broken is not None and not self._broken.empty():
            raise RuntimeError(self._broken.get())

    @property
    def processes(self) -> list[int]:
        """Those of the workers."""
        return [one.pid for one in getattr(self._batches, "_workers", ())]


class Telling:
    """Samples and collate of a worker, which say of each batch that it is made, or cannot be."""

    def __init__(self, samples: Any, collate: Collate, made: Any) -> None:
        self._samples = samples
        self._collate = collate
        self._made = made

    def __getitems__(self, keys: Keys) -> Any:
        try:
            return self._samples.__getitems__(keys)
        except Exception:
            self._made.release()
            raise

    def collate(self, samples: list[tuple[Key, Any]]) -> Any:
        """The batch."""
        try:
            return self._collate(samples)
        finally:
            self._made.release()


class TellingStream(Telling, IterableDataset[Any]):
    """The same of a stream. One that breaks says why at once: other workers may wait for this one
    for ever, and their batches come first."""

    def __init__(self, samples: Any, collate: Collate, made: Any, broken: Any) -> None:
        super().__init__(samples, collate, made)
        self._broken = broken

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._samples
        except Exception as error:
            self._broken.put(in_one_line(error))
            raise


class ThreadLoader:
    """Threads of this process, each of which makes whole batches."""

    def __init__(self, samples: Samples, order: Iterable[Keys], threads: int) -> None:
        self._samples = samples
        self._order = iter(order)
        self._pool = ThreadPoolExecutor(threads)
        self._asked: deque[Future[tuple[Keys, Any]]] = deque()
        for _ in range(threads * PREFETCH):
            self._ask()

    def _ask(self) -> None:
        keys = next(self._order)
        self._asked.append(self._pool.submit(lambda: stacked(self._samples.__getitems__(keys))))

    def take(self) -> tuple[Keys, Any]:
        """Asks for one more, as DataLoader does."""
        batch = self._asked.popleft().result()
        self._ask()
        return batch

    def pause(self) -> int:
        """Sleeps until the threads have made all batches."""
        wait_for(self._asked)
        return len(self._asked)


class Ahead:
    """Makes what a step takes of a loader's batches, on a thread beside the steps."""

    def __init__(self, loader: Loader, make: Callable[[Any], Any]) -> None:
        self._loader = loader
        self._make = make
        self._pool = ThreadPoolExecutor(1)
        self._asked = deque(self._pool.submit(self._next) for _ in range(PREFETCH))

    def _next(self) -> tuple[Keys, Any]:
        keys, data = self._loader.take()
        return keys, self._make(data)

    def take(self) -> tuple[Keys, Any]:
        """Asks for one more, as DataLoader does."""
        batch = self._asked.popleft().result()
        self._asked.append(self._pool.submit(self._next))
        return batch

    def pause(self) -> int:
        """Sleeps until the thread has made all batches; then the loader pauses."""
        wait_for(self._asked)
        return len(self._asked) + self._loader.pause()


@dataclass
class Rounds:
    """Takes so many batches in a round and a step with each; knows what must come."""

    loader: Loader
    order: Order | AnyOrder
    train: Callable[[Any], object]
    batches: int
    last: tuple[Keys, Any] = field(default_factory=lambda: ([], None))
    _taken: list[Keys] = field(default_factory=list)
    _idle: int = 0  # batches that were made while nothing trained

    def __post_init__(self) -> None:
        self._check = self.order.checker()

    def take(self) -> Any:
        """The next batch."""
        keys, data = self.last = self.loader.take()
        self._taken.append(keys)
        return data

    def step(self) -> None:
        """One round."""
        for _ in range(self.batches):
            self.train(self.take())

    def settle(self) -> None:
        """Takes what was made while other arms were timed, without a step, and then a round. The
        next one has the pace of a training that goes on, whether the loader sets it or the step:
        nothing that it takes was made for it at rest."""
        self._settle(self.train)

    def _settle(self, train: Callable[[Any], object]) -> None:
        for _ in range(self._idle):
            self.take()
        self._idle = 0
        for _ in range(self.batches):
            train(self.take())

    def rest(self) -> None:
        """Nothing works any more. Raises RuntimeError where the window had another batch than its
        turn's."""
        self._idle = self.loader.pause()
        taken, self._taken = self._taken, []
        for keys in taken:
            self._check(keys)

    def look(
        self, rounds: int, train: Callable[[Any], object], synchronize: Callable[[], object]
    ) -> Look:
        """So many rounds with another step, settled, and where their time goes."""
        self._settle(train)
        synchronize()
        wait_s = 0.0
        cpu = CpuMeter()
        start_s = time.monotonic()
        for _ in range(rounds * self.batches):
            asked_s = time.monotonic()
            data = self.take()
            wait_s += time.monotonic() - asked_s
            train(data)
        synchronize()
        found = Look(time.monotonic() - start_s, wait_s, cpu.used_s())
        self.rest()
        return found


@dataclass(frozen=True)
class Look:
    """Of some rounds: all their time, what of it passed in waiting for data, and the processors'
    in all threads and processes."""

    seconds: float
    wait_s: float
    cpu_s: float


def package(module: str, distribution: str) -> Any:
    """A library that a standard set-up does not have. Raises Skip where it, or what it imports, is
    missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Skip(
            f"the Python package {error.name} is not installed",
            f"pip install '{distribution}', or name another interpreter with --python",
        ) from error


def require_shared_memory(needed_bytes: float) -> None:
    """Skips where the batches of an arm's workers do not fit: containers often have 64 MB, and the
    kernel kills a worker that finds it full."""
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free
    except OSError as error:
        raise Skip(f"{SHARED_MEMORY}: {error.strerror}", "mount shared memory there") from error
    if free < needed_bytes:
        raise Skip(
            f"{SHARED_MEMORY} has {free / 1e6:.0f} MB free, and {needed_bytes / 1e6:.0f} MB are"
            " needed",
            "give the container more of it: --shm-size",
        )


def end_with_parent(parent: int) -> Callable[[int], None]:
    """What each worker does first: nobody is left behind where this process is killed."""

    def end(_: int) -> None:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os._exit(1)

    return end


def in_one_line(error: Exception) -> str:
    """What happened in a worker: torch hands over whole tracebacks."""
    said = str(error).strip()
    if KILLED.search(said):
        return (
            "a worker process of the loader was killed: the kernel does that where memory, or"
            f" {SHARED_MEMORY}, is full"
        )
    return said.splitlines()[-1] if said else type(error).__name__
