"""The rules of published articles on what a job's utilisation means, with their limits.

The articles give no figures for low and high; LOW and HIGH are ours and are said. A rule that
applies is no finding: it names where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpulift.records.files import record_files_below, stem_of
from gpulift.watch.samples import Sample, Values

LOW = 0.5
HIGH = 0.8
NEPTUNE = "neptune.ai"
DIGITALOCEAN = "DigitalOcean"


@dataclass(frozen=True)
class Means:
    """Of the whole job, as shares of what there is; None where it is not known."""

    gpu: float | None  # utilisation as the driver tells it, which is what the articles look at
    cpu: float
    host_memory: float | None
    gpu_memory: float | None


@dataclass(frozen=True)
class Rule:
    """What an article says, when, what it overlooks, and the themes of techniques it points to."""

    source: str
    says: str
    applies: Callable[[Means], bool]
    limit: str
    themes: tuple[str, ...]


def _low(share: float | None) -> bool:
    return share is not None and share < LOW


def _high(share: float | None) -> bool:
    return share is not None and share >= HIGH


RULES = (
    Rule(
        NEPTUNE,
        "low GPU and high CPU utilisation: the job waits for data that the processor prepares",
        lambda of: _low(of.gpu) and _high(of.cpu),
        "a thread that waits for the GPU by spinning counts as work, so that a job of many small"
        " kernels looks the same",
        ("input", "transfer"),
    ),
    Rule(
        NEPTUNE,
        "low GPU and low CPU utilisation: code that is not optimised",
        lambda of: _low(of.gpu) and _low(of.cpu),
        "one busy thread on many cores is low CPU utilisation, and waiting for a disk, the network"
        " or another rank looks the same",
        ("launch", "compile", "state", "host"),
    ),
    Rule(
        NEPTUNE,
        "little host memory used: more workers can load data",
        lambda of: _low(of.host_memory),
        "workers need free cores, too, and bring nothing where nobody waits for data",
        ("input",),
    ),
    Rule(
        NEPTUNE,
        "little GPU memory used: a larger batch fits",
        lambda of: _low(of.gpu_memory),
        "a larger batch changes the training, and a framework may hold more memory than it uses",
        ("batch",),
    ),
    Rule(
        DIGITALOCEAN,
        "high GPU utilisation is not yet efficiency",
        lambda of: _high(of.gpu),
        "the driver's utilisation counts any resident kernel, also one that waits for another rank;"
        " SM, tensor and DRAM activity say more",
        ("precision", "attention", "layout", "compile"),
    ),
)


def means(whole: Sample, cores: float, host_memory_bytes: float) -> Means:
    """Of several GPUs the mean."""
    memory_bytes = whole.job.get("memory_bytes")
    used = [share for one in whole.gpus if (share := _memory_share(one)) is not None]
    return Means(
        gpu=_mean([one["utilisation"] for one in whole.gpus if "utilisation" in one]),
        cpu=whole.job["cpu_cores"] / cores,
        host_memory=None if memory_bytes is None else memory_bytes / host_memory_bytes,
        gpu_memory=_mean(used),
    )


def _memory_share(gpu: Values) -> float | None:
    total = gpu.get("memory_bytes", 0.0)
    return gpu["memory_used_bytes"] / total if total > 0 else None


def _mean(shares: Sequence[float]) -> float | None:
    return sum(shares) / len(shares) if shares else None


def paragraph(of: Means, model: str | None, results: Path) -> str:
    """Which rules apply with which limits, and what was measured on this model of GPU; nothing
    where no GPU was watched, which all of them are about."""
    if of.gpu is None and of.gpu_memory is None:
        return ""
    applying = [rule for rule in RULES if rule.applies(of)]
    parts = [
        f"Of means over the whole job, its start included; low is below {100 * LOW:.0f} % and high"
        f" {100 * HIGH:.0f} % or more here, since the articles give no figures."
    ]
    if of.gpu is None:
        parts.append("The GPU utilisation is not known, so that rules on it cannot be applied.")
    if not applying:
        parts.append("None of the articles' rules applies.")
    for rule in applying:
        parts.append(f"{rule.source}: {rule.says} (its limit: {rule.limit}).")
    themes = dict.fromkeys(theme for rule in applying for theme in rule.themes)
    if themes and model:
        parts += _measured(model, list(themes), results)
    return " ".join(parts)


def _measured(model: str, themes: Sequence[str], results: Path) -> Iterator[str]:
    known = techniques_with_records(results / model, themes)
    if not known:
        yield f"No technique of {', '.join(themes)} has records on {model}: `./gpulift list`."
        return
    filter = f"^({'|'.join(dict.fromkeys(one.partition('/')[0] for one in known))})/"
    yield (
        f"Measured on {model}: {', '.join(known)}."
        f" `./gpulift report results/{model} --filter '{filter}'` shows what they brought."
    )


def techniques_with_records(folder: Path, themes: Sequence[str]) -> list[str]:
    """Ids of techniques of these themes of which a folder holds records."""
    if not folder.is_dir():
        return []
    stems = {stem_of(file) for file in record_files_below(folder)}
    ids = (stem.replace(".", "/", 1) for stem in stems)
    return sorted(one for one in ids if one.partition("/")[0] in themes)
