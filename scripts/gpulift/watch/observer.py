"""Takes the samples: differences of two readings of a job, of the machine's network, and cards."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from gpulift.watch.cards import Card
from gpulift.watch.job import Job, Reading
from gpulift.watch.samples import Sample

LOOPBACK = "lo"
TICK_S = 0.01  # of the slowest clock that Linux counts CPU time by


@dataclass(frozen=True)
class Overhead:
    """What the watch itself took while the job ran."""

    samples: int
    sampling_s: float
    cpu_s: float
    elapsed_s: float

    @property
    def of_sample_s(self) -> float:
        """Mean wall time of taking a sample."""
        return self.sampling_s / self.samples if self.samples else 0.0


class Observer:
    """Keeps what was read last, and counts its own cost."""

    def __init__(self, job: Job, cards: Sequence[Card]) -> None:
        self._job = job
        self._cores = job.cores()
        self._late_s = 0.0
        self._cards = cards
        self._began_cpu_s = time.process_time()
        self._began_s = time.monotonic()
        self._energy_j = [card.energy_j() for card in cards]
        self._readings = 0
        self._sampling_s = 0.0
        self._network = _network()
        before, _ = self._read()  # which also sets the cards' counters
        self._before = self.first = job.beginning() or before

    def sample(self) -> Sample:
        """What happened since the sample before."""
        before, network = self._before, self._network
        self._before, gpus = self._read()
        # From before the one reading until after the other: no more was used than there was then.
        elapsed_s = max(self._before.time_s - before.time_s + before.took_s, 1e-9)
        job = dict(_rates(before, self._before, elapsed_s))
        job["cpu_cores"] = self._told_in_time(job["cpu_cores"] * elapsed_s, elapsed_s) / elapsed_s
        self._network = _network()
        apart_s = max(self._network[0] - network[0], 1e-9)
        for at, direction in enumerate(("received", "sent"), start=1):
            moved = max(self._network[at] - network[at], 0)
            job[f"network_{direction}_bytes_per_s"] = moved / apart_s
        return Sample(self._before.time_s - self.first.time_s, elapsed_s, job, gpus)

    def _told_in_time(self, used_s: float, elapsed_s: float) -> float:
        """CPU seconds that can have been used in this time. The kernel tells those of a thread that
        runs, and of children that ended, by ticks: what came late counts with the next sample. More
        than ticks explain is left as it is: then the job has more cores than it was said to have.
        """
        used_s += self._late_s
        late_s = used_s - self._cores * elapsed_s
        is_late = 0 < late_s <= 2 * TICK_S * (self._before.processes + self._cores)
        self._late_s = late_s if is_late else 0.0
        return used_s - self._late_s

    @property
    def last(self) -> Reading:
        """The reading of the last sample."""
        return self._before

    @property
    def seen_s(self) -> float:
        """From the first reading to the last."""
        return self._before.time_s - self.first.time_s

    def joules(self) -> list[float | None]:
        """Of each card since the watch began."""
        now = [card.energy_j() for card in self._cards]
        return [
            None if begin is None or end is None else end - begin
            for begin, end in zip(self._energy_j, now, strict=True)
        ]

    def overhead(self) -> Overhead:
        """Until now, all threads of the watch together."""
        return Overhead(
            self._readings,
            self._sampling_s,
            time.process_time() - self._began_cpu_s,
            time.monotonic() - self._began_s,
        )

    def _read(self) -> tuple[Reading, tuple[dict[str, float], ...]]:
        began_s = time.monotonic()
        reading, gpus = self._job.reading(), tuple(card.reading() for card in self._cards)
        self._sampling_s += time.monotonic() - began_s
        self._readings += 1
        return reading, gpus


def _rates(before: Reading, now: Reading, elapsed_s: float) -> Iterator[tuple[str, float]]:
    """What is known of both moments. Counts that became smaller are those of processes that ended
    and were waited for by nobody of the job."""

    def rate(then: float, later: float) -> float:
        return max(later - then, 0.0) / elapsed_s

    yield "cpu_cores", rate(before.cpu_s, now.cpu_s)
    yield "processes", float(now.processes)
    yield "threads", float(now.threads)
    if now.memory_bytes:
        yield "memory_bytes", float(now.memory_bytes)
    if before.cpu_wait_s is not None and now.cpu_wait_s is not None:
        yield "cpu_wait_cores", rate(before.cpu_wait_s, now.cpu_wait_s)
    asleep_s = _asleep_s(before, now, elapsed_s)
    if asleep_s is not None:
        yield "first_thread_asleep", asleep_s / elapsed_s
    for kind in ("disk", "file"):
        then, later = getattr(before, f"{kind}_bytes"), getattr(now, f"{kind}_bytes")
        if then is not None and later is not None:
            yield f"{kind}_read_bytes_per_s", rate(then[0], later[0])
            yield f"{kind}_written_bytes_per_s", rate(then[1], later[1])


def _asleep_s(before: Reading, now: Reading, elapsed_s: float) -> float | None:
    """Time in which the first process' main thread neither ran nor waited for a processor."""
    then = (before.first_run_s, before.first_wait_s)
    later = (now.first_run_s, now.first_wait_s)
    if None in then or None in later:
        return None
    busy_s = sum(b - a for a, b in zip(then, later, strict=True) if a is not None and b is not None)
    return min(max(elapsed_s - busy_s, 0.0), elapsed_s)


def _network() -> tuple[float, int, int]:
    """When, and bytes received and sent by the machine, but not to itself: no process has its own
    count."""
    found = psutil.net_io_counters(pernic=True, nowrap=False)
    cards = [one for name, one in found.items() if name != LOOPBACK]
    received, sent = sum(one.bytes_recv for one in cards), sum(one.bytes_sent for one in cards)
    return time.monotonic(), received, sent
