"""input/packed_files: a file for each sample, or many samples in one file."""

from __future__ import annotations

from collections.abc import Mapping

from gpulift_work.samples import (
    Batch,
    cold,
    folder_for,
    note_of_cold,
    sample_store,
    seeded_samples,
    shuffled,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "How much faster are samples read from packed files than from a file each?",
    "expectation": (
        "Warm, CPU time a sample: a file 8.1 us at 4 KiB and 15.4 at 112 KiB (open, read, close); "
        "tar by headers 2.0 and 7.6, an indexed pack 1.8 and 4.9, LMDB 1.3 and 2.3 (nothing is "
        "copied), TFRecord framing 1.8 and 8.5, WebDataset 20 and 46. To put it into the batch "
        "takes 0.5 and 8 us in all of them. So 8.6 us over 2.5, 2.3, 1.8, 2.3 and 20.5: 3.4, 3.7, "
        "4.8, 3.7 and 0.42 at 4 KiB; 23.4 over 15.6, 12.9, 10.3, 16.5 and 54: 1.5, 1.8, 2.3, 1.4 "
        "and 0.43 at 112 KiB. Cold, at 30 to 60 us a request and 1.4 GB/s: 4 KiB in a file 56 us, "
        "in a pack at random 28 us, 2.0; from front to end 3.7 + 2.5 us, 9. 112 KiB take 80 us at "
        "the disk's rate: 1.0 to 1.3 for all but WebDataset, whose 46 us come on top: 0.9."
    ),
    "predict": [
        {
            "case": {"kibibytes": 4, "cache": "warm"},
            "speedup": {
                "tar": [3.06, 3.74],
                "pack": [3.33, 4.07],
                "lmdb": [4.32, 5.28],
                "tfrecord": [3.33, 4.07],
                "webdataset": [0.378, 0.462],
            },
        },
        {
            "case": {"kibibytes": 112, "cache": "warm"},
            "speedup": {
                "tar": [1.35, 1.65],
                "pack": [1.62, 1.98],
                "lmdb": [2.07, 2.53],
                "tfrecord": [1.26, 1.54],
                "webdataset": [0.387, 0.473],
            },
        },
        {
            "case": {"kibibytes": 4, "cache": "cold"},
            "speedup": {"tar": [8.1, 9.9], "tfrecord": [8.1, 9.9], "pack": [1.8, 2.2]},
        },
        {
            "case": {"kibibytes": 112, "cache": "cold"},
            "speedup": {
                "tar": [1, 1.3],
                "pack": [1, 1.3],
                "lmdb": [1, 1.3],
                "tfrecord": [1, 1.3],
                "webdataset": [0.81, 0.99],
            },
        },
    ],
    "found": (
        "Cold, 112 KiB take 52 us from front to end, 2.2 GB/s, and 174 in a file of their own, "
        "where 80 were estimated for both: read-ahead is 8 MiB there and brings many samples at "
        "once (inferred, not traced). All samples of 4 KiB are one read-ahead, 3.4 to 3.8 us each, "
        "and 68 in files. Warm, TFRecord's take 1.7 us with the batch, not 2.3; why is not known."
    ),
    "claims": ["small-files-slow"],
    "arms": ["files", "tar", "pack", "lmdb", "tfrecord", "webdataset"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {"kibibytes": [4, 112], "cache": ["warm", "cold"]},
    "quick": [{"kibibytes": 4, "cache": "warm"}],
    "check": {"meaning": "wrong bytes of all samples in their order", "tolerance": 0},
}
SAMPLES = {4: 2048, 112: 512}  # of so many KiB
SPACE = 7.0  # all arms' samples are there at once; LMDB's of 4 KiB take two pages each


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step reads all samples, in an order that is the same for all arms."""
    kibibytes = int(point["kibibytes"])
    count, size = SAMPLES[kibibytes], kibibytes << 10
    order = shuffled(count, seed)
    folder = folder_for(arm, SPACE * count * size)
    store = sample_store(arm, folder, seeded_samples(count, size, seed), order)
    batch = Batch(count, size)
    is_cold = point["cache"] == "cold"
    return Arm(
        step=lambda: batch.fill(store.read()),
        error=lambda: batch.wrong_bytes(seeded_samples(count, size, seed), order),
        items=count,
        item="sample",
        bytes=count * size,
        roof="storage/read" if is_cold else "",
        versions=store.versions,
        notes={"cold": note_of_cold(folder)} if is_cold else {},
        **(cold(store.files) if is_cold else {}),
    )
