"""Samples in words: for lines, and for the summary at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift.ground import text
from gpulift.watch.cards import Card
from gpulift.watch.job import Reading
from gpulift.watch.observer import Overhead
from gpulift.watch.samples import History, Sample, Values, throttled

STARVED = 0.1  # of the time in which threads could run
LOOKS = 2  # samples of a job that is shorter than the interval: an early one and its end
UNKNOWN = "–"
LEAST_SHOWN = 0.005  # of a core, or a share: below it, it is nothing


def line(sample: Sample, cores: float, cards: Sequence[Card]) -> str:
    """One line for a log: the most telling."""
    parts = [processor(sample.job, cores), memory(sample.job)]
    parts.append(f"disk {traffic(sample.job, 'disk', 'read', 'written')}")
    for card, gpu in zip(cards, sample.gpus, strict=True):
        parts.append(f"GPU {card.index}: {', '.join(gpu_parts(gpu))}")
    return f"{sample.time_s:.1f} s: {'; '.join(parts)}"


def processor(job: Values, cores: float) -> str:
    """`1.93 of 2 cores, 0.05 wait for one, first thread asleep 4 %`."""
    parts = [f"{job['cpu_cores']:.2f} of {cores:.3g} cores"]
    waiting = job.get("cpu_wait_cores")
    if waiting is not None:
        parts.append(f"{waiting:.2f} threads wait for one")
    asleep = job.get("first_thread_asleep")
    if asleep is not None:
        parts.append(f"first thread asleep {_share(asleep)}")
    return ", ".join(parts)


def memory(job: Values) -> str:
    """`512 MiB in 3 processes`; without the first where it is not told, as of what has ended."""
    count = _processes(round(job["processes"]))
    known = job.get("memory_bytes")
    return count if known is None else f"{text.size(round(known))} in {count}"


def traffic(values: Values, kind: str, inwards: str, outwards: str) -> str:
    """`12.3 MB/s read, 0 B/s written`; a dash where it is not told."""
    told = [(word, values.get(f"{kind}_{word}_bytes_per_s")) for word in (inwards, outwards)]
    parts = [f"{_per_s(value)} {word}" for word, value in told if value is not None]
    return ", ".join(parts) or UNKNOWN


def gpu_parts(gpu: Values) -> Iterator[str]:
    """What a card tells."""
    for name, word in (
        ("sm_activity", "SM"),
        ("tensor_activity", "tensor"),
        ("dram_activity", "DRAM"),
        ("utilisation", "utilisation"),
    ):
        if name in gpu:
            yield f"{word} {_share(gpu[name])}"
    if "memory_used_bytes" in gpu:
        of = f" of {text.size(round(gpu['memory_bytes']))}"
        yield f"memory {text.size(round(gpu['memory_used_bytes']))}{of}"
    if "power_w" in gpu:
        yield f"{gpu['power_w']:.0f} W"
    if "sm_clock_hz" in gpu:
        yield f"{gpu['sm_clock_hz'] / 1e6:.0f} MHz"
    for kind, word in (("pcie", "PCIe"), ("nvlink", "NVLink")):
        if f"{kind}_received_bytes_per_s" in gpu or f"{kind}_sent_bytes_per_s" in gpu:
            yield f"{word} {traffic(gpu, kind, 'received', 'sent')}"
    yield from throttled(gpu)


def summary(
    history: History,
    last: Reading,
    cores: float,
    cards: Sequence[Card],
    joules: Sequence[float | None],
) -> Iterator[str]:
    """The whole job: totals, means and the most, a line for each."""
    whole = history.whole
    if whole is None:
        return
    elapsed_s = sum(one.interval_s for one in history.samples)
    job = whole.job
    yield f"{whole.time_s:.1f} s: {_seconds(job['cpu_cores'] * elapsed_s)} of CPU time"
    yield f"processor: {processor(job, cores)}"
    if starved := _starved(job, cores):
        yield starved
    yield f"memory: {_most_memory(history, last)}"
    for kind, what, both in (
        ("disk", "disk", ("read", "written")),
        ("file", "files, with the cache", ("read", "written")),
        ("network", "network of the machine", ("received", "sent")),
    ):
        yield f"{what}: {_amounts(job, kind, both, elapsed_s)}"
    for card, gpu, used_j in zip(cards, whole.gpus, joules, strict=True):
        parts = [*gpu_parts(gpu), *([] if used_j is None else [text.joules(used_j)])]
        yield f"{card.label}, mean: {', '.join(parts)}"


def _starved(job: Values, cores: float) -> str:
    """That its threads had to wait for processors, and why; nothing where they hardly did."""
    waiting = job.get("cpu_wait_cores", 0.0)
    wanted = job["cpu_cores"] + waiting
    if not waiting > STARVED * wanted:
        return ""
    why = "more of them could run than it has cores" if wanted > cores else "they were not free"
    return f"its threads waited for a processor in {_share(waiting / wanted)} of their time: {why}"


def _most_memory(history: History, last: Reading) -> str:
    """At once of all processes in a sample, or at any time of one; of a job that ended before a
    second look, what the kernel kept."""
    together = round(history.most_of("memory_bytes"))
    most = max(together, last.peak_bytes)
    if last.peak_limit_bytes > most and len(history.samples) <= LOOKS:
        seen = f"{text.size(most)} when it was looked at, and " if most else ""
        return f"{seen}less than {text.size(last.peak_limit_bytes)}"
    return f"at most {text.size(most)}{' in one process' if most > together else ''}"


def unseen(left: int, last_s: float | None) -> str:
    """What was not seen, in a line; of a job of somebody else that is the time since a sample,
    too."""
    if last_s is not None:
        return f"not seen: the last {_seconds(last_s)}, and what left the job before a sample"
    if left:
        return f"not seen: the rest of {_processes(left)} that the job leaves running"
    return ""


def overhead(used: Overhead) -> str:
    """What the watch itself cost, in a line."""
    share = used.cpu_s / used.elapsed_s if used.elapsed_s > 0 else 0.0
    sample = text.seconds(used.of_sample_s)
    return (
        f"the watch itself: {_seconds(used.cpu_s)} of CPU time, {100 * share:.2g} % of a core;"
        f" {sample} for each of {used.samples} readings"
    )


def _amounts(job: Values, kind: str, words: Sequence[str], elapsed_s: float) -> str:
    told = [(word, job.get(f"{kind}_{word}_bytes_per_s")) for word in words]
    parts = [f"{text.size(round(v * elapsed_s))} {word}" for word, v in told if v is not None]
    return ", ".join(parts) or UNKNOWN


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _seconds(value: float) -> str:
    return text.seconds(value) if value > 0 else "0 s"


def _share(value: float) -> str:
    return "0 %" if value < LEAST_SHOWN else f"{100 * value:.0f} %"


def _per_s(value: float) -> str:
    return text.rate(value, "B/s") if value >= 1 else "0 B/s"
