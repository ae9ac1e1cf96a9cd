"""host/page_faults: batches hold the samples, faults are counted, no arm runs as another."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

SCRIPT = Path(__file__).with_name("page_faults.py")
ROOT = SCRIPT.parents[2]
FOUND_IN = os.pathsep.join(
    map(str, (SCRIPT.parent, ROOT / "core" / "python", ROOT / "workloads" / "python"))
)

MANIFEST = manifest(__file__)
PAGES_OF_A_MEBIBYTE = 256
IN_A_PROCESS = """
import json, sys
import page_faults
from gpulift_worker import Skip
try:
    arm = page_faults.make(sys.argv[1], {"mebibytes": int(sys.argv[2])}, 7, None)
except Skip as skip:
    print(json.dumps({"skipped": str(skip)}))
    raise SystemExit
arm.step()
print(json.dumps({"bytes": arm.bytes, **arm.metrics()}))
"""


@pytest.fixture(name="page_faults")
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, in a process with no settings of malloc."""
    module: Any = load(__file__)
    for name in module.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return module


@functools.cache
def answer(arm: str, mebibytes: int) -> dict[str, Any]:
    """Of the arm in a process of its own, with what the engine sets; skips where it cannot run."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = FOUND_IN
    environment |= MANIFEST["environment"].get(arm, {})
    if arm in MANIFEST["preload"]:
        environment["LD_PRELOAD"] = MANIFEST["preload"][arm]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, arm, str(mebibytes)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot be preloaded" in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    if "skipped" in found:
        pytest.skip(found["skipped"])
    return found


def test_glibc_faults_on_each_page_of_a_large_batch_and_a_kept_buffer_on_none() -> None:
    pages = 40 * PAGES_OF_A_MEBIBYTE
    assert answer("glibc", 40)["bytes"] == 2 * 40 * 2**20
    assert answer("glibc", 40)["faults_per_step"] >= pages
    assert answer("thresholds_raised", 40)["faults_per_step"] < pages / 10
    assert answer("kept_buffer", 40)["faults_per_step"] < pages / 10


def test_jemalloc_keeps_a_large_batch_as_launch_scripts_set_it_and_not_by_default() -> None:
    pages = 40 * PAGES_OF_A_MEBIBYTE
    assert answer("jemalloc_default", 40)["faults_per_step"] >= pages
    assert answer("jemalloc_tuned", 40)["faults_per_step"] < pages / 10


@pytest.mark.parametrize(("flag", "virtual"), [("hypervisor", True), ("nohypervisor", False)])
def test_a_virtual_machine_is_what_the_processor_calls_so(
    page_faults: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str, virtual: bool
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"model name\t: hypervisor\nflags\t\t: fpu {flag} avx\n", encoding="ascii")
    monkeypatch.setattr(page_faults, "CPUINFO", file)
    assert page_faults.is_virtual() == virtual


def test_huge_pages_are_fewer_faults() -> None:
    assert answer("huge_pages", 40)["faults_per_step"] < 40 * PAGES_OF_A_MEBIBYTE / 4


def test_a_wrong_value_and_a_batch_that_was_never_made_do_not_pass(
    page_faults: Any,
) -> None:
    samples = [torch.randn(page_faults.SAMPLE_VALUES) for _ in range(2)]
    batches = page_faults.Batches(samples, kept=False)
    with pytest.raises(RuntimeError, match="no batch was made"):
        batches.wrong_values()
    batches.step()
    assert batches.wrong_values() == 0
    samples[1][3:5] += 1
    assert batches.wrong_values() == 2


def test_only_the_kept_buffer_is_used_again(page_faults: Any) -> None:
    samples = [torch.randn(page_faults.SAMPLE_VALUES)]
    for kept in (True, False):
        batches = page_faults.Batches(samples, kept)
        batches.step()
        first = batches._batch
        batches.step()
        assert (batches._batch.data_ptr() == first.data_ptr()) == kept


def test_an_arm_of_another_malloc_fails_in_this_process(page_faults: Any) -> None:
    if os.environ.get("LD_PRELOAD"):
        pytest.skip("LD_PRELOAD is set")
    with pytest.raises(RuntimeError, match="malloc is glibc's here, not jemalloc's"):
        page_faults.require_allocator("jemalloc_tuned")
    page_faults.require_allocator("glibc")


def test_the_baseline_is_not_measured_with_a_preloaded_malloc() -> None:
    script = "import page_faults; page_faults.require_allocator('glibc')"
    environment = {**os.environ, "PYTHONPATH": FOUND_IN, "LD_PRELOAD": "libjemalloc.so.2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if "cannot be preloaded" in done.stderr:
        pytest.skip("no libjemalloc.so.2")
    assert "Skip: malloc is jemalloc's in this process" in done.stderr


def test_settings_of_malloc_are_the_arms_own(
    page_faults: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_faults.require_settings("glibc")
    with pytest.raises(RuntimeError, match="started without MALLOC_MMAP_THRESHOLD_=1073741824"):
        page_faults.require_settings("thresholds_raised")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    page_faults.require_settings("huge_pages")
    with pytest.raises(Skip, match="GLIBC_TUNABLES is set") as skipped:
        page_faults.require_settings("glibc")
    assert skipped.value.remedy == "unset GLIBC_TUNABLES"


@pytest.mark.parametrize(
    ("said", "pages", "reason"),
    [
        ("always [madvise] never\n", "madvise", None),
        ("[always] madvise never\n", "always", "every arm has huge pages"),
        ("always madvise [never]\n", "never", "transparent huge pages: never"),
        ("\n", "unknown", "transparent huge pages: unknown"),
    ],
)
def test_huge_pages_are_asked_for_only_where_that_changes_something(
    page_faults: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    said: str,
    pages: str,
    reason: str | None,
) -> None:
    file = tmp_path / "enabled"
    file.write_text(said, encoding="ascii")
    monkeypatch.setattr(page_faults, "HUGE_PAGES", file)
    assert page_faults.huge_pages() == pages
    if reason is None:
        page_faults.require_huge_pages(pages)
        return
    with pytest.raises(Skip, match=reason):
        page_faults.require_huge_pages(pages)


def test_a_kernel_without_huge_pages_is_no_error(
    page_faults: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(page_faults, "HUGE_PAGES", tmp_path / "none")
    assert page_faults.huge_pages() == "unknown"


@pytest.mark.parametrize("found", ["glibc 2.34", "musl 1.2.5", ""])
def test_an_old_or_another_c_library_skips_the_tunable(
    page_faults: Any, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setattr(page_faults, "libc", lambda: found)
    with pytest.raises(Skip, match=r"has no glibc\.malloc\.hugetlb"):
        page_faults.require_glibc()
    monkeypatch.setattr(page_faults, "libc", lambda: "glibc 2.35")
    page_faults.require_glibc()
