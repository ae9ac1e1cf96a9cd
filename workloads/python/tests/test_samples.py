"""Samples on a disk: every form gives the same ones, and what is broken is named."""

from __future__ import annotations

import importlib
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

COUNT, SIZE = 12, 5000
FORMS = ("files", "files_8_threads", "pack", "pack_sequential", "lmdb", "webdataset")
PACKAGES = {"lmdb": "lmdb", "webdataset": "webdataset"}
LEAVES_FILES_OPEN = (
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)
READABLE = (*FORMS[:-1], pytest.param(FORMS[-1], marks=LEAVES_FILES_OPEN))


@pytest.fixture(name="samples")
def samples_module() -> Any:
    """The module that arms import."""
    return importlib.import_module("gpulift_work.samples")


@pytest.fixture(name="worker")
def worker_module(samples: Any) -> Any:
    """The module that has what it raises."""
    return importlib.import_module("gpulift_worker")


@pytest.fixture
def case_folder(
    samples: Any, worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk wherever tests have their files."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(samples, "disk_facts", lambda _: {"in_memory": False})
    worker.scratch.cache_clear()
    yield tmp_path / "case"
    worker.scratch.cache_clear()


def read(store: Any) -> list[bytes]:
    return [bytes(sample) for sample in store.read()]


# --- Samples and their folder ---


def test_a_seed_gives_the_same_samples_and_order(samples: Any) -> None:
    seed = 2**64 - 1  # the largest that the engine gives
    found = samples.seeded_samples(COUNT, SIZE, seed)
    assert found.shape == (COUNT, SIZE)
    assert np.array_equal(found, samples.seeded_samples(COUNT, SIZE, seed))
    assert not np.array_equal(found, samples.seeded_samples(COUNT, SIZE, 7))
    order = samples.shuffled(100, seed)
    assert order == samples.shuffled(100, seed)
    assert order != sorted(order) == list(range(100))


def test_a_folder_is_empty_also_when_an_earlier_process_left_something(
    samples: Any, case_folder: Path
) -> None:
    left = samples.folder_for("tar", 1.0) / "left"
    left.write_text("by a process that was killed")
    assert samples.folder_for("tar", 1.0) == case_folder / "tar"
    assert not left.exists()


@pytest.mark.usefixtures("case_folder")
def test_too_little_space_says_how_much_is_needed(
    samples: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3_000_000))
    with pytest.raises(worker.Skip) as skip:
        samples.folder_for("tar", 4e6)
    said = "the files need 4 MB, and the disk of the scratch folder has 3 MB free"
    assert str(skip.value) == said
    assert "--scratch DIR" in skip.value.remedy
    samples.folder_for("tar", 3e6)  # is enough
    with pytest.raises(worker.Skip) as skip:
        samples.folder_for("tar", 4e6, "take the smaller case")
    assert skip.value.remedy == "take the smaller case"


@pytest.mark.usefixtures("case_folder")
def test_a_folder_in_memory_is_no_disk(
    samples: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "disk_facts", lambda _: {"in_memory": True})
    with pytest.raises(worker.Skip, match="the scratch folder is in memory"):
        samples.folder_for("tar", 1.0)


# --- Cold ---


def test_a_window_is_cold_when_the_share_is_small(
    samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evicted: list[Any] = []
    monkeypatch.setattr(samples, "evict", evicted.append)
    monkeypatch.setattr(samples, "resident_share", lambda files: 0.25)
    around = samples.cold([tmp_path])
    around["before"]()
    assert evicted == [[tmp_path]]
    required = around["precondition"]
    assert (required.name, required.look(), required.most) == ("resident_share", 0.25, 0.01)


def test_where_the_kernel_does_not_tell_the_arm_is_skipped_with_a_remedy(
    samples: Any, worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "resident_share", lambda files: None)
    required = samples.cold([tmp_path])["precondition"]
    with pytest.raises(worker.Skip, match="resident_share cannot be told here") as skip:
        worker.look_first(required)
    assert "cachestat" in skip.value.remedy


def test_a_window_is_warm_when_nearly_all_is_there(
    samples: Any, worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    shares = iter([1.0, 0.5, None])
    monkeypatch.setattr(samples, "resident_share", lambda files: next(shares))
    around = samples.warm([tmp_path / "file"])
    around["before"]()
    assert worker.look_first(around["precondition"]) == 0
    with pytest.raises(worker.Failed, match=r"absent_share is 0\.5"):
        worker.look_first(around["precondition"])
    with pytest.raises(worker.Skip, match="absent_share cannot be told here"):
        worker.look_first(around["precondition"])


@pytest.mark.parametrize(
    ("kibibytes", "said"),
    [
        (128, ""),
        (1024, "63 MiB are less than 64 times what the disk reads ahead, 1024 KiB"),
        (None, "the read-ahead of the scratch folder's disk cannot be told"),
    ],
)
def test_too_few_samples_for_the_disks_read_ahead_are_skipped(
    samples: Any,
    worker: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kibibytes: int | None,
    said: str,
) -> None:
    monkeypatch.setattr(samples, "read_ahead_kib", lambda folder: kibibytes)
    if not said:
        samples.require_read_aheads(tmp_path, 8 << 20, "")
        return
    with pytest.raises(worker.Skip) as skip:
        samples.require_read_aheads(tmp_path, 63 << 20, "take the larger case")
    assert str(skip.value) == said
    assert skip.value.remedy == ("take the larger case" if kibibytes else worker.NAME_A_DISK)


def test_the_note_says_how_cold_it_is(samples: Any, tmp_path: Path) -> None:
    said = samples.note_of_cold(tmp_path)
    assert said.startswith("cold in this machine: file contents, not names; read-ahead ")
    assert str(tmp_path) not in said


# --- Forms ---


def written(samples: Any, form: str, folder: Path) -> tuple[Any, Any, list[int]]:
    """A store with its samples and their order."""
    if form in PACKAGES:
        pytest.importorskip(PACKAGES[form])
    content = samples.seeded_samples(COUNT, SIZE, 7)
    order = samples.shuffled(COUNT, 7)
    return samples.sample_store(form, folder, content, order), content, order


@pytest.mark.parametrize("form", READABLE)
def test_each_form_gives_all_samples_in_their_order_in_every_epoch(
    samples: Any, tmp_path: Path, form: str
) -> None:
    store, content, order = written(samples, form, tmp_path)
    for _ in range(2):
        found = read(store)
        assert found == [content[number].tobytes() for number in store.order]
        assert sorted(store.order) == sorted(order)
        assert (store.order == order) == (form != "webdataset")


@pytest.mark.parametrize("form", FORMS)
def test_its_files_are_all_that_it_wrote(samples: Any, tmp_path: Path, form: str) -> None:
    store, _, _ = written(samples, form, tmp_path)
    assert sorted(store.files) == sorted(tmp_path.iterdir())
    assert len(store.files) == (COUNT if form.startswith("files") else 1)


@pytest.mark.parametrize("form", sorted(PACKAGES))
def test_a_package_that_is_missing_is_said(
    samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, PACKAGES[form], None)
    with pytest.raises(ModuleNotFoundError):
        samples.sample_store(form, tmp_path, [b"1"], [0])


def test_shards_divide_the_order(samples: Any) -> None:
    content = [b"1" * 100] * 7
    order = [6, 5, 4, 3, 2, 1, 0]
    assert samples.in_shards(content, order, 350) == [[6, 5, 4], [3, 2, 1, 0]]
    assert samples.in_shards(content, order, 10_000) == [order]


def test_each_shard_has_its_part_of_the_order(samples: Any, tmp_path: Path) -> None:
    content, order = samples.seeded_samples(COUNT, SIZE, 7), samples.shuffled(COUNT, 7)
    shards = samples.TarShards(tmp_path, content, order, 3 * SIZE).files
    assert len(shards) == 4
    members = [member for shard in shards for member in members_of(samples, shard)]
    assert members == [(f"{number:06}.bin", content[number].tobytes()) for number in order]
    with tarfile.open(shards[1]) as archive:
        assert archive.getnames() == [name for name, _ in members[3:6]]


def members_of(samples: Any, shard: Path) -> list[tuple[str, bytes]]:
    """By the reader of a shard that has headers alone to go by."""
    with shard.open("rb") as file:
        return [(name, bytes(sample)) for name, sample in samples.tar_members(file)]


def test_threads_read_no_more_than_their_window_ahead(
    samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "PART", 1)
    monkeypatch.setattr(samples, "THREADS", 2)
    store, content, order = written(samples, "files_8_threads", tmp_path)
    asked: list[int] = []
    real = store._read_one

    def counted(number: int) -> Any:
        asked.append(number)
        return real(number)

    monkeypatch.setattr(store, "_read_one", counted)
    reading = store.read()
    assert next(reading) == content[order[0]].tobytes()
    assert len(asked) <= 2 * samples.WINDOW
    assert len(list(reading)) == COUNT - 1
    assert sorted(asked) == sorted(order)


def test_lmdb_does_not_read_ahead(
    samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lmdb = pytest.importorskip("lmdb")
    store, _, _ = written(samples, "lmdb", tmp_path)
    asked: list[bool] = []
    real = lmdb.open

    def opened(*given: Any, readahead: bool, **more: Any) -> Any:
        asked.append(readahead)
        return real(*given, readahead=readahead, **more)

    monkeypatch.setattr(lmdb, "open", opened)
    read(store)
    assert asked == [False]


def cut(file: Path, size: int) -> None:
    os.truncate(file, size)


def test_a_truncated_tar_names_the_sample(samples: Any, tmp_path: Path) -> None:
    content, order = samples.seeded_samples(COUNT, SIZE, 7), samples.shuffled(COUNT, 7)
    (shard,) = samples.TarShards(tmp_path, content, order).files
    of_member = 512 + SIZE + -SIZE % 512
    cut(shard, 2 * of_member + 512 + 100)
    with pytest.raises(
        ValueError, match=f"sample {order[2]:06}.bin is truncated: 100 of 5000 bytes"
    ):
        members_of(samples, shard)
    cut(shard, 2 * of_member)  # as where a copy stopped between two of them
    with pytest.raises(ValueError, match=f"truncated behind {order[1]:06}.bin"):
        members_of(samples, shard)


@pytest.mark.parametrize("form", ["pack", "pack_sequential"])
def test_a_truncated_pack_names_the_sample(samples: Any, tmp_path: Path, form: str) -> None:
    store, _, order = written(samples, form, tmp_path)
    cut(store.files[0], (COUNT - 1) * SIZE + 10)
    last = order[-1] if form == "pack_sequential" else COUNT - 1
    with pytest.raises(ValueError, match=f"sample {last} is truncated: 10 of 5000 bytes"):
        read(store)


def test_a_map_that_is_full_says_at_which_sample_and_what_helps(
    samples: Any, tmp_path: Path
) -> None:
    pytest.importorskip("lmdb")
    content = samples.seeded_samples(COUNT, SIZE, 7)
    with pytest.raises(ValueError, match=r"map of 0\.1 MB is full at sample \d+ of 12: make map_b"):
        samples.Lmdb(tmp_path, content, range(COUNT), map_bytes=65_536)


# --- Batches ---


def test_a_batch_finds_wrong_bytes_wrong_order_and_nothing_at_all(samples: Any) -> None:
    content = samples.seeded_samples(3, SIZE, 7)
    batch = samples.Batch(3, SIZE)
    order = [2, 0, 1]

    def wrong(rows: list[Any]) -> float:
        batch.fill(iter(rows))
        return float(batch.wrong_bytes(content, order))

    assert wrong([content[number].tobytes() for number in order]) == 0
    assert batch.wrong_bytes(content, order) > 2.9 * SIZE  # what was found is forgotten
    changed = content[0].copy()
    changed[17] ^= 1
    assert wrong([content[2], changed, content[1]]) == 1
    assert wrong([content[2], content[1], content[0]]) > 1.9 * SIZE
    with pytest.raises(RuntimeError, match="a sample is missing, or came twice"):
        batch.wrong_bytes(content, [2, 0, 0])


@pytest.mark.parametrize("number", [2, 4])
def test_a_batch_takes_neither_fewer_nor_more_samples(samples: Any, number: int) -> None:
    batch = samples.Batch(3, SIZE)
    with pytest.raises(ValueError, match="zip"):
        batch.fill(iter([bytes(SIZE)] * number))


# --- io_uring ---


@pytest.fixture(name="uring")
def uring_module(samples: Any) -> Any:
    """The module, where the system allows it."""
    return importlib.import_module("gpulift_uring")


@pytest.fixture(name="ring")
def ring_of_four(uring: Any, worker: Any) -> Iterator[Any]:
    """A ring with place for four requests."""
    try:
        ring = uring.Ring(4)
    except worker.Skip as skip:
        pytest.skip(str(skip))
    yield ring
    ring.close()


Opened = Callable[[Path], int]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens files, and closes them."""
    descriptors: list[int] = []

    def opening(file: Path) -> int:
        descriptors.append(os.open(file, os.O_RDWR | os.O_CREAT))
        return descriptors[-1]

    yield opening
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.parametrize("count", [1, 3, 4, 33])
def test_a_ring_moves_every_row_in_both_directions(
    uring: Any, ring: Any, opened: Opened, tmp_path: Path, count: int
) -> None:
    rows = np.frombuffer(os.urandom(count * 700), np.uint8).reshape(count, 700)
    offsets = 700 * np.random.default_rng(7).permutation(count)
    descriptor = opened(tmp_path / "file")
    ring.transfer(uring.WRITE, descriptor, offsets, rows)
    wanted = np.zeros_like(rows)
    wanted[offsets // 700] = rows
    assert (tmp_path / "file").read_bytes() == wanted.tobytes()
    found = np.zeros_like(rows)
    ring.transfer(uring.READ, descriptor, offsets, found)
    assert np.array_equal(found, rows)


def test_a_ring_says_where_a_file_ends_too_early(
    uring: Any, ring: Any, opened: Opened, tmp_path: Path
) -> None:
    (tmp_path / "short").write_bytes(bytes(1000))
    rows = np.zeros((2, 700), np.uint8)
    with pytest.raises(OSError, match="at byte 700: 300 of 700 bytes"):
        ring.transfer(uring.READ, opened(tmp_path / "short"), np.array([0, 700]), rows)


def test_a_ring_says_what_the_system_refuses(uring: Any, ring: Any) -> None:
    rows = np.zeros((1, 700), np.uint8)
    with pytest.raises(OSError, match="at byte 0: Bad file descriptor"):
        ring.transfer(uring.READ, 999_999, np.array([0]), rows)


def test_where_io_uring_is_forbidden_the_arm_is_skipped_with_a_remedy(
    uring: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uring, "_c", SimpleNamespace(syscall=lambda *_: -1))
    monkeypatch.setattr(uring.ctypes, "get_errno", lambda: 1)
    with pytest.raises(worker.Skip) as skip:
        uring.Ring(4)
    assert str(skip.value) == "io_uring cannot be used here: Operation not permitted"
    assert "containers" in skip.value.remedy
