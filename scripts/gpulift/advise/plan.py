"""Which settings a script is tried with, for what its first process showed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from math import exp
from operator import itemgetter
from typing import Any

from gpulift.advise import launches, remedies
from gpulift.advise.evidence import Facts, Keeps, Loader, Process
from gpulift.advise.judge import LITTLE
from gpulift.advise.ranked import EXCHANGE
from gpulift.advise.settings import Setting
from gpulift.ground.errors import GpuliftError
from gpulift.ground.near import near

BATCHES = {"batch_2x": 2.0, "batch_half": 0.5}
NAMES = (*remedies.LINES, *BATCHES)  # of all that can be tried; of settings without their numbers
DEFAULT = tuple(name for name in NAMES if name != "batch_half")
FIRST_WORKERS = 4  # where a script has none
PREFETCH, USUAL_PREFETCH = 4, 2
BUCKET_MB = 100  # four times the usual
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
PRELOADED = "LD_PRELOAD"
TCMALLOC = ("tcmalloc_minimal", "tcmalloc")
GLIBC = {  # some versions refuse a higher first one
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
# What of a step these may bring where nothing bounds it: guesses, by which they come one behind
# another, and which no row tells.
MODEL, BATCH, MEMORY = 0.1, 0.05, 0.02
NO_LOADER = "no DataLoader in the training loop"
NO_WORKERS = "the loader has no workers"
NO_CONVOLUTION = "no convolution ran"
ON_PROCESSOR = "the script trains on the processor"
SAMPLED = "a sampler or dataset of the script's own makes the batches"
NOT_DEALT = "its dataset is iterable and does not deal its items out to workers"


@dataclass(frozen=True)
class Seen:
    """What the first process showed, and the environment that it had."""

    facts: Facts
    cores: int
    on_gpu: bool
    input_share: float | None  # of a step; None where no loader feeds it
    environment: Mapping[str, str]
    exchange_share: float = 0.0  # of a step that ranks take by themselves

    @classmethod
    def of(cls, process: Process, environment: Mapping[str, str]) -> Seen:
        """Of a process that told its facts."""
        assert process.facts is not None, "others are not planned for"
        return cls(
            process.facts,
            process.hello.cores if process.hello else 0,
            process.on_gpu,
            _input_share(process),
            environment,
            1 - exp(-(launches.gain_log(process, EXCHANGE) or 0.0)),
        )

    @property
    def loader(self) -> Loader | None:
        """That of the training loop."""
        return self.facts.loader

    @property
    def ready(self) -> str:
        """Why a faster input brings nothing; empty where it may."""
        if self.input_share is None or self.input_share >= LITTLE:
            return ""
        return f"input takes {100 * max(0.0, self.input_share):.1f} % of the step"


def settings(seen: Seen, only: Sequence[str], vary: Sequence[Sequence[str]]) -> list[Setting]:
    """The user's own, and those that `only` names, else those of default, what may bring most ahead
    of others, for which there may be no time; of each that is not tried it is told why not."""
    parts = [
        (seen.input_share or 0.0, _of_input(seen)),
        (MEMORY, _of_memory(seen)),
        (MODEL, _of_model(seen)),
        (BATCH, _of_batch(seen)),
        (seen.exchange_share, _of_ranks(seen) if seen.facts.ddp else iter(())),
    ]
    parts.sort(key=itemgetter(0), reverse=True)
    chosen = []
    for number, arguments in enumerate(vary, 1):
        label = " ".join(arguments)
        chosen.append(Setting(f"vary_{number}", label, "step", arguments=tuple(arguments)))
    every = (one for _, part in parts for one in part)
    return chosen + [one for one in every if is_named(one.name, only or DEFAULT)]


def is_named(name: str, only: Sequence[str]) -> bool:
    """Whether it is among them, with its number or without."""
    return name in only or remedies.without_number(name) in only


def require_known(only: Sequence[str]) -> None:
    """Raises GpuliftError for a name of nothing that can be tried."""
    for name in only:
        if remedies.without_number(name) not in NAMES:
            close = ", ".join(near(name, NAMES)) or ", ".join(NAMES)
            raise GpuliftError(f"--only {name}: nothing of that name can be tried; near: {close}")


def _input_share(process: Process) -> float | None:
    """What of a step is over where its batch is there; what waits for the loader where batches were
    not replayed."""
    if process.facts is None or process.facts.anchor != "loader":
        return None
    if not process.steps_s:
        return None
    if (rest_log := launches.rest_log(process)) is not None:
        return 1 - exp(rest_log)
    waits_s = [wait_s for span in process.live for wait_s in span.waits_s]
    return sum(waits_s) / sum(process.steps_s) if waits_s else None


def _setting(name: str, label: str, keeps: Keeps, *why_not: str, **more: Any) -> Setting:
    """The first reason that is one holds."""
    return Setting(name, label, keeps, next(filter(None, why_not), ""), **more)


def _of_input(seen: Seen) -> Iterator[Setting]:
    loader = seen.loader or Loader()
    away = "" if seen.loader else NO_LOADER
    workers = min(seen.cores, 2 * loader.workers or FIRST_WORKERS)
    full = f"it has {loader.workers} workers for {seen.cores} cores"
    yield _setting(
        f"workers_{workers}",
        f"num_workers {loader.workers} -> {workers}",
        "bits",
        away,
        "" if loader.dealt else NOT_DEALT,
        full if workers <= loader.workers else "",
        seen.ready,
        told={"loader": {"num_workers": workers}},
    )
    prefetch = loader.prefetch or USUAL_PREFETCH
    yield _setting(
        f"prefetch_{PREFETCH}",
        f"prefetch_factor {prefetch} -> {PREFETCH}",
        "bits",
        away,
        "" if loader.workers else NO_WORKERS,
        "as many batches are prefetched already" if prefetch >= PREFETCH else "",
        seen.ready,
        told={"loader": {"prefetch_factor": PREFETCH}},
    )
    yield _setting(
        "pinned",
        "pinned memory of batches",
        "bits",
        away,
        "" if seen.on_gpu else ON_PROCESSOR,
        "it is pinned already" if loader.pin_memory else "",
        seen.ready,
        told={"loader": {"pin_memory": True}},
    )


def _of_memory(seen: Seen) -> Iterator[Setting]:
    taken = [name for name in ALLOCATOR if seen.environment.get(name)]
    yield _setting(
        "expandable_segments",
        "expandable segments of the allocator",
        "bits",
        "" if seen.on_gpu else ON_PROCESSOR,
        f"{taken[0]} is set" if taken else "",
        environment={ALLOCATOR[0]: "expandable_segments:True"},
    )
    allocator = host_allocator()
    taken = [name for name in (PRELOADED, *GLIBC) if seen.environment.get(name)]
    yield _setting(
        "malloc",
        " ".join(f"{name}={value}" for name, value in allocator.items()),
        "bits",
        f"{taken[0]} is set" if taken else "",
        (seen.ready or ("" if seen.loader else NO_LOADER)) if seen.on_gpu else "",
        environment=allocator,
    )


def host_allocator() -> dict[str, str]:
    """The environment that brings tcmalloc, or else one in which glibc keeps what was freed."""
    found = next(filter(None, map(find_library, TCMALLOC)), None)
    return {PRELOADED: found} if found else dict(GLIBC)


def _of_model(seen: Seen) -> Iterator[Setting]:
    yield _setting(
        "compile_all",
        "torch.compile of the model",
        "step",
        "the script compiles already" if seen.facts.compiled else "",
        told={"compile": True},
    )
    yield _setting(
        "cudnn_search",
        "cudnn.benchmark",
        "step",
        "" if seen.on_gpu else ON_PROCESSOR,
        "" if seen.facts.convolutions else NO_CONVOLUTION,
        "the script sets it" if seen.facts.cudnn_search else "",
        told={"cudnn_search": True},
    )
    yield _setting(
        "channels_last",
        "channels last",
        "step",
        "" if seen.facts.convolutions else NO_CONVOLUTION,
        told={"channels_last": True},
    )


def _of_ranks(seen: Seen) -> Iterator[Setting]:
    """Options of the wrapper, which are set where it is made."""
    ddp = seen.facts.ddp
    assert ddp is not None, "others are not asked for"
    yield _setting(
        f"bucket_{BUCKET_MB}",
        f"bucket_cap_mb {ddp.bucket_cap_mb:g} -> {BUCKET_MB}",
        "step",
        "buckets are as large already" if ddp.bucket_cap_mb >= BUCKET_MB else "",
        f"all gradients, {ddp.gradients_mb:.3g} MB, fit in one bucket"
        if ddp.gradients_mb <= ddp.bucket_cap_mb
        else "",
        told={"ddp": {"bucket_cap_mb": BUCKET_MB}},
    )
    for name, option in (("bucket_view", "gradient_as_bucket_view"), ("static_graph",) * 2):
        on = "the script asks for it" if getattr(ddp, option) else ""
        yield _setting(name, option, "bits", on, told={"ddp": {option: True}})
    unused = "" if ddp.find_unused_parameters else "it does not look for unused weights"
    told = {"ddp": {"find_unused_parameters": False}}
    yield _setting("find_unused", "no find_unused_parameters", "bits", unused, told=told)
    yield _setting(
        "bf16_gradients",
        "gradients exchanged in BF16",
        "step",
        "the script registers a hook of its own" if ddp.hooked else "",
        "they are no wider" if ddp.short else "",
        told={"bf16_gradients": True},
    )


def _of_batch(seen: Seen) -> Iterator[Setting]:
    batch = seen.loader.batch if seen.loader else None
    unknown = "" if batch else "the loader tells no size of batches"
    for name, factor in BATCHES.items():
        size = int((batch or 0) * factor)
        label = f"batch {batch} -> {size}" if batch else name.replace("_", " ")
        small = "" if size else "a batch has one item"
        sampled = SAMPLED if seen.loader and seen.loader.sampled else ""
        why_not = ("" if seen.loader else NO_LOADER, sampled, unknown, small)
        told = {"batch_factor": factor, "batch": size}
        yield _setting(name, label, "work", *why_not, told=told)
