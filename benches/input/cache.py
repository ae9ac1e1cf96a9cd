"""input/cache: what copies of an object store's samples on the local disk are worth."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
from gpulift_work.object_store import ObjectStore
from gpulift_work.samples import (
    Batch,
    Sample,
    SingleFiles,
    cold,
    folder_for,
    note_of_cold,
    seeded_samples,
    shuffled,
)
from gpulift_worker import Arm

TECHNIQUE = {
    "question": "What are local copies of an object store's samples worth, in the epoch that makes "
    "them and in later ones?",
    "expectation": """
        64 objects of 112 KiB, asked for in batches of 16, one after another or 16 at once. A
        request takes s3fs 1.2 ms of a processor, all in one thread, and 0.4 ms of waiting for the
        answer (a trial on two cores). If not told otherwise it makes two of an object, for its
        size and for itself: 3.2 ms, 205 ms in all, and by 16 at once 155. one_request: half of
        it, 2.0. Of requests that are 10 ms late: 23.2 ms an object, 1,490 ms, and by 16 at once 4
        x (20 + 39) = 235; one_request 2.0 and 1.9. In the first epoch the caches, which have
        max_concurrency=1 too, ask for each size one after another, then for 16 objects at once:
        on the loopback 1.6 + 1.3 and 0.4 ms to write the object and read it: 0.9 and 0.75; late 1
        and 4 x (16 x 11.6 + 32) = 870 ms, 0.27. Later: 0.12 ms to read a cold copy and 0.2 to
        find and open it, 20 ms: 10, 7.5, 70 and 12 times.
    """,
    "predict": [
        "store:loopback/in_flight:1: s3fs 140-250 ms, one_request 1.7-2.1",
        "store:loopback/in_flight:16: s3fs 110-200 ms, one_request 1.4-2.1",
        "store:10ms_away/in_flight:1: s3fs 1.4-1.8 s, one_request 1.9-2.1",
        "store:10ms_away/in_flight:16: s3fs 180-290 ms, one_request 1.6-2.1",
        "store:loopback/epoch:first: simplecache 0.65-1.0, filecache 0.6-1.0",
        "store:10ms_away/in_flight:1/epoch:first: simplecache 0.9-1.05, filecache 0.9-1.05",
        "store:10ms_away/in_flight:16/epoch:first: simplecache 0.15-0.3, filecache 0.15-0.3",
        "store:loopback/epoch:later: simplecache 6-12, filecache 6-12",
        "store:10ms_away/in_flight:1/epoch:later: simplecache 55-85, filecache 55-85",
        "store:10ms_away/in_flight:16/epoch:later: simplecache 9-15, filecache 9-15",
    ],
    "claims": ["local-disk-faster"],
    "arms": ["s3fs", "one_request", "simplecache", "filecache"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {
        "store": ["loopback", "10ms_away"],
        "in_flight": [1, 16],
        "epoch": ["first", "later"],
    },
    "check": {"meaning": "wrong bytes of all samples in their order", "tolerance": 0},
}
COUNT, SIZE, BATCH = 64, 112 << 10, 16
CACHES = ("simplecache", "filecache")
DELAYS_S = {"loopback": 0.0, "10ms_away": 0.01}


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is an epoch: the first, ahead of which there are no copies, or a later one, ahead of
    which they are put out of memory."""
    folder = folder_for(arm, 8.0 * COUNT * SIZE)  # of the store and copies, for all arms
    order = shuffled(COUNT, seed)
    bucket = folder / "store" / "samples"
    bucket.mkdir(parents=True)
    names = [
        f"{bucket.name}/{file.name}"
        for file in SingleFiles(bucket, seeded_samples(COUNT, SIZE, seed), order).files
    ]
    store = ObjectStore(bucket.parent, DELAYS_S[str(point["store"])])
    epochs = Epochs(arm, store, int(point["in_flight"]), folder)
    batch = Batch(COUNT, SIZE)

    def step() -> None:
        batch.fill(epochs.read([names[number] for number in order]))

    around: dict[str, Any] = {"before": epochs.forget}
    if point["epoch"] == "later":
        step()
        around = cold(epochs.copies) if epochs.copies else {}
    return Arm(
        step=step,
        error=lambda: batch.wrong_bytes(seeded_samples(COUNT, SIZE, seed), order),
        items=COUNT,
        item="sample",
        bytes=COUNT * SIZE,
        versions={"fsspec": fsspec.__version__, **store.versions},
        notes={**store.notes, "copies": note_of_cold(folder)},
        **around,
    )


class Epochs:
    """Batches of objects, which a cache of fsspec's keeps on the disk, or nobody."""

    def __init__(self, arm: str, store: ObjectStore, in_flight: int, folder: Path) -> None:
        self._arm = arm
        settings = {} if arm == "s3fs" else {"max_concurrency": 1}  # an object is one piece
        self._objects = self._files = store.files(in_flight, **settings)
        self._folder = folder
        self._round = itertools.count()
        self.forget()

    def forget(self) -> None:
        """As ahead of the first epoch; connections stay."""
        if self._arm in CACHES:
            self.folder = self._folder / f"copies{next(self._round)}"
            self._files = fsspec.filesystem(
                self._arm, fs=self._objects, cache_storage=str(self.folder)
            )

    @property
    def copies(self) -> Sequence[Path]:
        """Of all objects."""
        return [*self.folder.iterdir()] if self._arm in CACHES else []

    def read(self, names: Sequence[str]) -> Iterator[Sample]:
        """In their order."""
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            found = self._files.cat(batch)
            yield from (found[name] for name in batch)
