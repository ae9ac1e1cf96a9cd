"""Samples in words: for lines, for the live view, for the summary at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpulift import text
from gpulift.watch.cards import Card
from gpulift.watch.observer import Overhead
from gpulift.watch.samples import History, Sample, Values, throttled

UNKNOWN = "–"
LEAST_SHOWN = 0.005  # of a core, or a share: below it, it is nothing


def rows(sample: Sample, cores: float, cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
    """What was seen, and of what; a row for each GPU."""
    yield "processor", processor(sample.job, cores)
    yield "memory", memory(sample.job)
    yield "disk", traffic(sample.job, "disk", "read", "written")
    yield "files, with the cache", traffic(sample.job, "file", "read", "written")
    yield "network of the machine", traffic(sample.job, "network", "received", "sent")
    for card, gpu in zip(cards, sample.gpus, strict=True):
        yield card.label, ", ".join(gpu_parts(gpu))


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
    """`512 MiB in 3 processes`."""
    count = round(job["processes"])
    return f"{text.size(round(job['memory_bytes']))} in {count} process{'' if count == 1 else 'es'}"


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
    history: History, cores: float, cards: Sequence[Card], joules: Sequence[float | None]
) -> Iterator[str]:
    """The whole job: totals, means and the most, a line for each."""
    whole = history.whole
    if whole is None:
        return
    elapsed_s = sum(one.interval_s for one in history.samples)
    job = whole.job
    yield f"{elapsed_s:.1f} s: {_seconds(job['cpu_cores'] * elapsed_s)} of CPU time"
    yield f"processor: {processor(job, cores)}"
    yield f"memory: at most {text.size(round(history.most_of('memory_bytes')))}"
    for kind, what, both in (
        ("disk", "disk", ("read", "written")),
        ("file", "files, with the cache", ("read", "written")),
        ("network", "network of the machine", ("received", "sent")),
    ):
        yield f"{what}: {_amounts(job, kind, both, elapsed_s)}"
    for card, gpu, used_j in zip(cards, whole.gpus, joules, strict=True):
        parts = [*gpu_parts(gpu), *([] if used_j is None else [text.joules(used_j)])]
        yield f"{card.label}, mean: {', '.join(parts)}"


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


def _seconds(value: float) -> str:
    return text.seconds(value) if value > 0 else "0 s"


def _share(value: float) -> str:
    return "0 %" if value < LEAST_SHOWN else f"{100 * value:.0f} %"


def _per_s(value: float) -> str:
    return text.rate(value, "B/s") if value >= 1 else "0 B/s"
