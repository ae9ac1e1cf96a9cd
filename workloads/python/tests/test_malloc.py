"""malloc's settings are what the record says, and page faults are counted."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sys

import pytest
from gpulift_work import malloc

PAGES = 64
HUGE_PAGES = 4 * 20  # of four blocks of 40 MiB: no fewer, however large the kernel makes them
# Blocks whose frees would raise a threshold that is not fixed, and give memory back where it is.
FAULTS = """
import sys
from gpulift_work import malloc
if sys.argv[1] == "fixed":
    print(malloc.fix_malloc()["malloc"])
print(malloc.faults_per_step(lambda: [bytearray(int(sys.argv[2]) << 20) for _ in range(4)]))
"""


def run(*arguments: str) -> list[str]:
    """Lines that a process of its own prints, whose heap is as it begins."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FAULTS, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_blocks_below_the_threshold_keep_their_pages_and_larger_ones_do_not() -> None:
    said, faults = run("fixed", "12")
    if "glibc" not in said:
        pytest.skip(said)
    assert "M_MMAP_THRESHOLD=33554432, M_TRIM_THRESHOLD=67108864, M_ARENA_MAX=" in said
    large = float(run("fixed", "40")[1])
    assert float(faults) < HUGE_PAGES <= large


def test_a_setting_that_is_refused_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("no glibc")
    # M_MXFAST, which takes no more than some hundred bytes.
    monkeypatch.setattr(malloc, "M_MMAP_THRESHOLD", 1)
    with pytest.raises(RuntimeError, match=r"mallopt\(\) refuses M_MMAP_THRESHOLD=33554432"):
        malloc.fix_malloc()


def test_another_malloc_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc, "allocator", lambda: "jemalloc")
    assert malloc.fix_malloc() == {"malloc": "jemalloc, with settings of its own"}


def test_each_new_page_is_a_fault_of_the_process_that_touches_it() -> None:
    mapped = mmap.mmap(-1, PAGES * mmap.PAGESIZE)
    mapped.madvise(mmap.MADV_NOHUGEPAGE)

    def touch() -> None:
        for page in range(PAGES):
            mapped[page * mmap.PAGESIZE] = 1

    before, of_self = malloc.page_faults(), malloc.page_faults_of([os.getpid()])
    touch()
    assert malloc.page_faults() - before >= PAGES
    assert malloc.page_faults_of([os.getpid()]) - of_self >= PAGES
    assert malloc.page_faults_of([]) == 0


def test_warm_up_steps_are_not_counted() -> None:
    steps: list[int] = []
    malloc.faults_per_step(lambda: steps.append(1))
    assert len(steps) == malloc.WARM_UP_STEPS + malloc.COUNTED_STEPS
