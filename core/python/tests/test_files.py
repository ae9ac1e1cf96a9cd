"""What scripts ask of the page cache and of the disk under a folder."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpulift_files as files
import pytest

PAGES = 64
MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 8:17 / /data rw - xfs /dev/sdb1 rw
23 22 0:44 / /data/with\\040space rw - tmpfs tmpfs rw
24 21 0:45 / /cover rw - ext4 /dev/sdc1 rw
25 21 0:46 / /cover rw - nfs4 server:/export rw
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file of PAGES pages and some bytes of another, which the page cache holds."""
    file = tmp_path / "written"
    file.write_bytes(os.urandom(PAGES * mmap.PAGESIZE + 100))
    return file


@pytest.fixture(params=["pages_by_cachestat", "pages_by_mincore"])
def pages_of(request: pytest.FixtureRequest, written: Path) -> Iterator[Callable[[], int]]:
    """Tells the resident pages of the written file in one way, where the kernel has it."""
    descriptor = os.open(written, os.O_RDONLY)
    count = getattr(files, request.param)
    if count(descriptor) is None:
        pytest.skip("this kernel does not tell so")
    yield lambda: int(count(descriptor))
    os.close(descriptor)


def evicted(file: Path) -> None:
    """Out of the page cache, or skips where files have no other place."""
    if files.disk_facts(file.parent)["in_memory"]:
        pytest.skip("the temporary folder is in memory")
    files.evict([file])


def test_what_was_just_written_is_resident_and_what_was_evicted_is_not(
    written: Path, pages_of: Callable[[], int]
) -> None:
    assert pages_of() == PAGES + 1
    evicted(written)
    assert pages_of() == 0
    with written.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        opened.read(1)
    assert 0 < pages_of() < PAGES


def test_the_share_is_that_of_all_pages(written: Path, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    cold.write_bytes(os.urandom((PAGES + 1) * mmap.PAGESIZE))
    if files.resident_share([cold]) is None:
        pytest.skip("this kernel does not tell")
    evicted(cold)
    assert files.resident_share([written]) == 1.0
    assert files.resident_share([str(written), cold]) == 0.5


def test_only_what_would_stay_is_written_first_and_all_of_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = [tmp_path / name for name in "abc"]
    for file in fresh:
        file.write_bytes(bytes(mmap.PAGESIZE))
    synced: list[int] = []
    real = files._c.syncfs

    def counted(descriptor: int) -> Any:
        synced.append(descriptor)
        return real(descriptor)

    monkeypatch.setattr(files._c, "syncfs", counted)
    if files.disk_facts(tmp_path)["in_memory"]:
        pytest.skip("the temporary folder is in memory")
    files.evict(fresh)
    assert len(synced) == 1
    files.evict(fresh)
    assert len(synced) == 1


def test_nothing_is_resident_of_files_without_pages(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    assert files.resident_share([]) == 0.0
    assert files.resident_share([empty]) == 0.0


def test_mincore_tells_where_cachestat_does_not(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CACHESTAT", 1 << 20)  # no system call has this number
    assert files.resident_share([written]) == 1.0


def test_where_neither_tells_nothing_is_said(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CACHESTAT", 1 << 20)
    monkeypatch.setattr(files._c, "mincore", lambda *given: -1)
    assert files.resident_share([written]) is None


def test_mincore_is_not_asked_of_a_file_of_somebody_elses(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CACHESTAT", 1 << 20)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert files.resident_share([written]) is None


def test_leaves_nothing_mapped_or_open(written: Path) -> None:
    files.resident_share([written])  # what the first call loads, stays
    before = (len(os.listdir("/proc/self/fd")), mapped(written))
    descriptor = os.open(written, os.O_RDONLY)
    files.pages_by_mincore(descriptor)
    os.close(descriptor)
    files.resident_share([written])
    files.evict([written])
    assert (len(os.listdir("/proc/self/fd")), mapped(written)) == before


def mapped(file: Path) -> int:
    """How often this process has mapped the file."""
    return Path("/proc/self/maps").read_text().count(str(file))


@pytest.mark.parametrize("asked", [files.resident_share, files.evict])
def test_a_file_that_is_not_there_is_an_error(
    tmp_path: Path, asked: Callable[[list[Path]], object]
) -> None:
    with pytest.raises(FileNotFoundError):
        asked([tmp_path / "none"])


def test_the_structures_are_as_large_as_the_kernel_has_them() -> None:
    assert ctypes.sizeof(files.CachestatRange) == 16
    assert ctypes.sizeof(files.Cachestat) == 40


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root with /proc and /sys of two disks; the second is a partition of one that rotates."""
    mountinfo = tmp_path / "proc" / "self" / "mountinfo"
    mountinfo.parent.mkdir(parents=True)
    mountinfo.write_text(MOUNTS)
    devices = tmp_path / "sys" / "dev" / "block"
    devices.mkdir(parents=True)
    for device, folder, rotational in (("8:1", "sda", "0"), ("8:17", "sdb", "1")):
        disk = tmp_path / "sys" / "devices" / folder
        partition = disk / f"{folder}1"
        partition.mkdir(parents=True)
        queue = (disk if folder == "sdb" else partition) / "queue"
        queue.mkdir()
        (queue / "rotational").write_text(f"{rotational}\n")
        (devices / device).symlink_to(partition)
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "facts"),
    [
        ("/home/me", {"filesystem": "ext4", "rotational": False, "in_memory": False}),
        ("/data/set", {"filesystem": "xfs", "rotational": True, "in_memory": False}),
        ("/database", {"filesystem": "ext4", "rotational": False, "in_memory": False}),
        ("/data/with space/set", {"filesystem": "tmpfs", "in_memory": True}),
        ("/cover/set", {"filesystem": "nfs4", "in_memory": False}),
    ],
)
def test_says_what_disk_a_folder_lies_on(
    machine: Path, folder: str, facts: dict[str, object]
) -> None:
    assert files.disk_facts(Path(folder), machine) == facts


def test_what_is_not_known_of_a_disk_is_not_said(tmp_path: Path) -> None:
    assert files.disk_facts(Path("/data"), tmp_path) == {"in_memory": False}


def test_a_disk_without_a_number_for_its_rotation_is_not_said_to_rotate(machine: Path) -> None:
    (machine / "sys/devices/sda/sda1/queue/rotational").write_text("\n")
    assert "rotational" not in files.disk_facts(Path("/home"), machine)
