"""input/packed_files: a file for each sample, or many samples in one file."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.samples import (
    Batch,
    cold,
    folder_for,
    note_of_cold,
    require_read_aheads,
    sample_store,
    seeded_samples,
    shuffled,
    warm,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "How much faster are samples read from packed files than from a file each?",
    "expectation": """
        At random: files, one after another or by 8 threads, an indexed pack, LMDB. From front to
        end: a pack written in a shuffled order, and WebDataset, which shuffles shards and a buffer
        of 1,000 samples. Warm, CPU time a sample of 4 and 112 KiB, 0.5 and 8 us for the batch
        included: a file 9.5 and 23 us (open, read, close), a pack at random 2.4 and 13, in sequence
        1.9 and 16, LMDB 2.1 and 10.5 (nothing is copied), WebDataset 22 and 54. So 4, 5, 4.5 and
        0.43 at 4 KiB; 1.8, 1.45, 2.2 and 0.43 at 112. Eight threads take turns in Python: 0.4 to
        0.9 at 4 KiB, 0.6 to 1.6 at 112. Cold, from a disk of 50 us a request and 1.5 to 2.2 GB/s:
        a file of 4 KiB takes 60 us and one of 112 KiB 150; in a pack at random the request
        remains: 1.3 to 2.2 and 1.0 to 1.4. In sequence 2 to 3 us of the disk and 2 of CPU time: 8
        to 18; 112 KiB at the disk's rate, 50 to 75 us: 2 to 3.5. Eight requests at once: 2 to 5 and
        2 to 3.5. LMDB without read-ahead asks for page by page: 2 of 4 KiB, 100 us, 0.55 to 0.9,
        and 29 of 112, 1.3 ms, 0.09 to 0.2. WebDataset's CPU time is the bound: 2.2 to 3.3; at 112
        KiB beside the disk, 1.8 to 3.
    """,
    "predict": [
        "kibibytes:4/data:64_mib_warm: files_8_threads 0.4-0.9, pack 3.4-4.4,"
        " pack_sequential 4.3-6, lmdb 3.5-5.3, webdataset 0.35-0.5",
        "kibibytes:112/data:64_mib_warm: files_8_threads 0.6-1.6, pack 1.5-2.1,"
        " pack_sequential 1.2-1.7, lmdb 1.8-2.6, webdataset 0.35-0.5",
        "kibibytes:4/data:64_mib_cold: files_8_threads 2-5, pack 1.3-2.2, pack_sequential 8-18,"
        " lmdb 0.55-0.9, webdataset 2.2-3.3",
        "kibibytes:4/data:512_mib_cold: files_8_threads 2-5, pack 1.3-2.2, pack_sequential 8-18,"
        " lmdb 0.55-0.9, webdataset 2.2-3.3",
        "kibibytes:112/data:64_mib_cold: files_8_threads 2-3.5, pack 1-1.4,"
        " pack_sequential 2-3.5, lmdb 0.09-0.2, webdataset 1.8-3",
        "kibibytes:112/data:512_mib_cold: files_8_threads 2-3.5, pack 1-1.4,"
        " pack_sequential 2-3.5, lmdb 0.09-0.2, webdataset 1.8-3",
    ],
    "found": (
        "On a Xeon of two cores WebDataset takes 58 us a sample of 4 KiB, warm, not 22, and 8 "
        "threads hand a sample on in 45, where a file by itself takes 12, not 9.5: 0.21 and 0.27; "
        "why they suffer more is not known. Cold, a file of 4 KiB takes 102 us, not 60, and a "
        "sample of a pack from front to end 4, as predicted: 26. Beside the disk WebDataset brings "
        "112 KiB in 206 us, cold, which is 1.3."
    ),
    "claims": ["small-files-slow"],
    "arms": ["files", "files_8_threads", "pack", "pack_sequential", "lmdb", "webdataset"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {"kibibytes": [4, 112], "data": ["64_mib_warm", "64_mib_cold", "512_mib_cold"]},
    "quick": [{"kibibytes": 112, "data": "64_mib_warm"}],
    "check": {"meaning": "wrong bytes of the samples, each of which comes once", "tolerance": 0},
}
MEBIBYTE = 1 << 20
SMALLER, LARGER = "64_mib_cold", "512_mib_cold"  # enough for 1 and for 8 MiB of read-ahead
READ = 64  # MiB in a step, wherever they lie: LMDB takes a minute for 512 of 4 KiB
SPACE = 8.5  # all arms' samples are there at once; LMDB's of 4 KiB take two pages each
LESS_AHEAD = "lower its read-ahead, as root: blockdev --setra 256 DEVICE"


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step reads samples, in an order that all arms have but WebDataset."""
    size, data = int(point["kibibytes"]) << 10, str(point["data"])
    total = int(data.partition("_")[0]) * MEBIBYTE
    count = total // size
    order = shuffled(count, seed)[: READ * MEBIBYTE // size]
    is_cold = data != "64_mib_warm"
    remedy = f"take data:{SMALLER}, or another disk: --scratch DIR" if data == LARGER else ""
    folder = folder_for(arm, SPACE * total, remedy)
    if is_cold:
        larger = f"take data:{LARGER}, or {LESS_AHEAD}" if data == SMALLER else LESS_AHEAD
        require_read_aheads(folder, total, larger)
    store = sample_store(arm, folder, seeded_samples(count, size, seed), order)
    batch = Batch(len(order), size)
    return Arm(
        step=lambda: batch.fill(store.read()),
        error=lambda: batch.wrong_bytes(seeded_samples(count, size, seed), store.order, order),
        items=len(order),
        item="sample",
        bytes=len(order) * size,
        roof="storage/read" if is_cold else "",
        versions=store.versions,
        notes={"shuffle": store.shuffle, **({"cold": note_of_cold(folder)} if is_cold else {})},
        **(cold if is_cold else warm)(store.files),
    )
