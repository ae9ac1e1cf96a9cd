"""host/page_faults: batches in memory that is new in each step, by how malloc gets and keeps it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from gpulift_work.malloc import EXPORTED, allocator, faults_per_step
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "What do page faults cost a loader that makes a new batch in each step?",
    "expectation": (
        "torch.stack of samples of 1 MiB, on one thread. Into memory that is there already it is a "
        "copy at 20 GB/s: 1.3, 2.1 and 4.0 ms for 24, 40 and 77 MiB. glibc gives what is larger "
        "than its threshold back to the system at once, so that each 4 KiB of the next batch are a "
        "page fault and a page of zeros: 77 MiB are 19,712 faults of 0.5 to 1.7 us, 10 to 33 ms, "
        "and the batch takes 3 to 9 times as long. The threshold follows the largest block freed "
        "so far, but not beyond 32 MiB: at 24 MiB there are no faults and nothing to gain, 1.0. "
        "Raised thresholds and tcmalloc keep such blocks: as fast as a kept buffer, 5 to 10 above "
        "32 MiB. Huge pages need a 512th of the faults but still zeros: 2 to 5. jemalloc_default "
        "and mimalloc give large blocks back as glibc does: 1. jemalloc_tuned has the MALLOC_CONF "
        "of launch scripts for PyTorch, by which nothing is given back: 1.0 at 24 MiB, and 5 to 10 "
        "beyond. In a virtual machine a fault walks two tables of pages, and takes the longer of "
        "those times. kept_buffer is the control: a loader's batch belongs to whoever took it."
    ),
    "predict": [
        "mebibytes:24: thresholds_raised 0.9-1.1, tcmalloc 0.9-1.1, jemalloc_tuned 0.9-1.1,"
        " kept_buffer 0.9-1.1, huge_pages 0.9-1.1, torch_huge_pages 0.9-1.1",
        "mebibytes:40: thresholds_raised 5-10, tcmalloc 5-10, jemalloc_tuned 5-10,"
        " kept_buffer 5-10, huge_pages 2-5, torch_huge_pages 2-5",
        "mebibytes:77: thresholds_raised 5-10, tcmalloc 5-10, jemalloc_tuned 5-10,"
        " kept_buffer 5-10, huge_pages 2-5, torch_huge_pages 2-5",
        "jemalloc_default 0.9-1.1, mimalloc 0.9-1.1",
    ],
    "found": (
        "At 24 MiB jemalloc and mimalloc have 0.10 of glibc's speed: they give such blocks back, "
        "too, 6,145 and 6,151 faults a step of 1.6 us where glibc, below its threshold, has none. "
        "PyTorch's huge pages have 0.39: 524 faults a step, and zeros; why these blocks are not "
        "kept is not known."
    ),
    "arms": [
        "glibc",
        "thresholds_raised",
        "huge_pages",
        "torch_huge_pages",
        "tcmalloc",
        "jemalloc_default",
        "jemalloc_tuned",
        "mimalloc",
        "kept_buffer",
    ],
    "controls": ["kept_buffer"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"mebibytes": [24, 40, 77]},
    "quick": [{"mebibytes": 40}],
    "check": {
        "meaning": "values of the batch that differ from the samples",
        "tolerance": 0,
    },
    "environment": {
        "thresholds_raised": {
            "MALLOC_MMAP_THRESHOLD_": "1073741824",
            "MALLOC_TRIM_THRESHOLD_": "1073741824",
        },
        "huge_pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
        "torch_huge_pages": {"THP_MEM_ALLOC_ENABLE": "1"},
        "jemalloc_tuned": {
            "MALLOC_CONF": "oversize_threshold:1,background_thread:true,metadata_thp:auto,"
            "dirty_decay_ms:-1,muzzy_decay_ms:-1"
        },
    },
    "preload": {
        "tcmalloc": "libtcmalloc_minimal.so.4",
        "jemalloc_default": "libjemalloc.so.2",
        "jemalloc_tuned": "libjemalloc.so.2",
        "mimalloc": "libmimalloc.so.2",
    },
}

ENVIRONMENT: Mapping[str, Mapping[str, str]] = cast("Any", TECHNIQUE["environment"])
SAMPLE_VALUES = 2**20 // 4
SETTINGS = (  # of malloc, which only the arms above may set
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_MAX_",
    "GLIBC_TUNABLES",
    "MALLOC_CONF",
    "THP_MEM_ALLOC_ENABLE",
)
CPUINFO = Path("/proc/cpuinfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FIRST_GLIBC = (2, 35)  # that knows glibc.malloc.hugetlb


class Batches:
    """As a loop over a loader holds them: the last batch goes when the next one is there."""

    def __init__(self, samples: Sequence[torch.Tensor], kept: bool) -> None:
        self._samples = samples
        self._buffer = torch.zeros(len(samples), SAMPLE_VALUES) if kept else None
        self._batch: torch.Tensor | None = None

    def step(self) -> None:
        """The samples as one batch."""
        self._batch = torch.stack(list(self._samples), out=self._buffer)

    def wrong_values(self) -> float:
        """Of the last batch."""
        if self._batch is None:
            raise RuntimeError("no batch was made")
        pairs = zip(self._batch, self._samples, strict=True)
        return float(sum(int((found != wanted).sum()) for found, wanted in pairs))


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """Batches of samples that are in memory."""
    require_allocator(arm)
    require_settings(arm)
    pages = huge_pages()
    if arm in ("huge_pages", "torch_huge_pages"):
        require_huge_pages(pages)
    if arm == "huge_pages":
        require_glibc()
    torch.set_num_threads(1)  # as in a worker process of a loader
    torch.manual_seed(seed)
    count = int(point["mebibytes"])
    batches = Batches([torch.randn(SAMPLE_VALUES) for _ in range(count)], arm == "kept_buffer")
    return Arm(
        step=batches.step,
        error=batches.wrong_values,
        metrics=lambda: {"faults_per_step": faults_per_step(batches.step)},
        bytes=2 * count * 2**20,
        roof="host_memory",
        notes={
            "threads": "1",
            "transparent_huge_pages": pages,
            "libc": libc(),
            "faults": "in a virtual machine" if is_virtual() else "no virtual machine is told of",
        },
    )


def require_allocator(arm: str) -> None:
    """malloc must be of the library that the arm is named for, which only that one exports."""
    found = allocator()
    wanted = next((name for name in EXPORTED if arm.startswith(name)), "glibc")
    if found == wanted:
        return
    if wanted == "glibc":
        raise Skip(f"malloc is {found}'s in this process", "unset LD_PRELOAD")
    raise RuntimeError(f"malloc is {found}'s here, not {wanted}'s")


def require_settings(arm: str) -> None:
    """Those of malloc must be the arm's own and no others."""
    own = ENVIRONMENT.get(arm, {})
    for name in SETTINGS:
        if name in os.environ and name not in own:
            raise Skip(
                f"{name} is set, which this arm is to be measured without",
                f"unset {name}",
            )
    for name, text in own.items():
        if os.environ.get(name) != text:
            raise RuntimeError(f"started without {name}={text}")


def is_virtual() -> bool:
    """Whether the processor says so, as x86 does."""
    lines = CPUINFO.read_text(encoding="ascii", errors="replace").splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return "hypervisor" in flags.split()


def huge_pages() -> str:
    """Who gets them: always, madvise or never; unknown where the kernel does not say."""
    try:
        said = HUGE_PAGES.read_text(encoding="ascii")
    except OSError:
        return "unknown"
    return said.partition("[")[2].partition("]")[0] or "unknown"


def require_huge_pages(pages: str) -> None:
    """Throws Skip where asking for them changes nothing."""
    remedy = f"echo madvise > {HUGE_PAGES}, as root"
    if pages == "always":
        raise Skip("every arm has huge pages here: the kernel gives them always", remedy)
    if pages != "madvise":
        raise Skip(f"transparent huge pages: {pages}", remedy)


def require_glibc() -> None:
    """Throws Skip where the C library does not know the tunable."""
    name, _, version = libc().partition(" ")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name != "glibc" or numbers < FIRST_GLIBC:
        raise Skip(
            f"{libc()} has no glibc.malloc.hugetlb",
            "use a system with glibc 2.35 or later",
        )


def libc() -> str:
    """The C library with its version."""
    return " ".join(platform.libc_ver())
