"""input/offline: images decoded and resized in every epoch, or once ahead of all of them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gpulift_work.images import QUALITY, synthetic_jpegs
from gpulift_work.samples import (
    Pack,
    Sample,
    cold,
    folder_for,
    note_of_cold,
    shuffled,
)
from gpulift_worker import Arm
from PIL import Image, features

TECHNIQUE = {
    "question": "What is it worth to decode and resize images once, ahead of the training?",
    "expectation": (
        "Online, an image of 112 kB and 500 x 375 takes Pillow 0.98 + 0.67 ms, and 0.25 to array, "
        "flip and copy: 1.9 ms. As a JPEG of 224 x 224, some 30 kB, 0.3 + 0.1: 0.4 ms. As raw "
        "pixels, 150 kB, 0.03 ms warm. The pass takes 1.65 ms and the encoder's 0.4 or nothing. "
        "One epoch with its pass: 1.9 / (2.1 + 0.4) = 0.76 and 1.9 / (1.7 + 0.1) = 1.05. Twenty, "
        "of which each bears a twentieth of it: 1.9 / (0.4 + 0.1) = 3.8 and 1.9 / (0.03 + 0.09) = "
        "16. Cold, at 1 GB/s, 0.11, 0.03 and 0.15 ms more: 3.8 and 7.4. From an S3 server on the "
        "loopback, 16 requests at once, s3fs takes 1.3 ms of processor for each, whatever it "
        "brings: 3.4 ms over 1.7 + 0.2 and over 1.7 + 0.2, 1.8 for both; of one epoch that has "
        "asked for the images twice 0.6."
    ),
    "predict": [
        "store:warm: online 34.2-41.8 ms",
        "store:warm/epochs:1: pre_resized_jpeg 0.684-0.836, raw_pixels 0.945-1.155",
        "store:warm/epochs:20: pre_resized_jpeg 3.42-4.18, raw_pixels 14.4-17.6",
        "store:cold/epochs:20: pre_resized_jpeg 3.42-4.18, raw_pixels 6.66-8.14",
        "store:s3/epochs:1: pre_resized_jpeg 0.5-0.75, raw_pixels 0.5-0.8",
        "store:s3/epochs:20: pre_resized_jpeg 1.5-2.2, raw_pixels 1.5-2.2",
    ],
    "found": (
        "Raw pixels have 6.6 and 4.5 over twenty epochs, warm and cold: the estimate forgets the "
        "0.25 ms to array, flip and copy, which it counts in online alone. With them raw pixels "
        "take 0.37 and 0.52 ms an image; 0.33 and 0.51 were measured, and 2.2 for online. Beside "
        "an H200 online takes 2.9 ms: a core there decodes 112 kB in 1.3 to 1.4 ms (input/decode), "
        "not 0.84. That the rest is slower in proportion is inferred."
    ),
    "claims": ["offline-preprocessing-frees-cpu"],
    "arms": ["online", "pre_resized_jpeg", "raw_pixels"],
    "l2": "none",
    "page_cache": "by_case",
    "sweep": {"store": ["warm", "cold", "s3"], "epochs": [1, 20]},
    "check": {"meaning": "mean difference from the online pixels, of 255", "tolerance": 0},
}
COUNT = 20  # a twentieth of them has to be a whole number
WIDTH, HEIGHT, MEAN_BYTES = 500, 375, 112e3
SIDE = 224
JPEG_TOLERANCE = 8.0  # what being compressed twice costs; another image is 60 and more away
IN_FLIGHT = 16  # requests

# Of an object's name, and of sizes and offsets in it.
Parts = Callable[[str, Sequence[tuple[int, int]]], Iterator[Sample]]


class Images:
    """A pack of images that is read in an epoch, from the disk or, part by part, as an object."""

    def __init__(self, bucket: Path, contents: Sequence[Sample], parts: Parts | None) -> None:
        bucket.mkdir(parents=True)
        self._pack = Pack(bucket, contents, [])
        self.files = self._pack.files
        self._name = f"{bucket.name}/{self.files[0].name}"
        self._parts = parts

    def read(self, order: Sequence[int]) -> Iterator[Sample]:
        """In this order."""
        if self._parts is not None:
            return self._parts(self._name, list(map(self._pack.place, order)))
        self._pack.order = order
        return self._pack.read()


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """A step is an epoch, and ahead of it the part of the pass that an epoch bears: of so many
    epochs one n-th."""
    folder = folder_for(arm, 10.0 * COUNT * SIDE * SIDE * 3)
    stored = folder / "store"
    files = synthetic_jpegs(COUNT, WIDTH, HEIGHT, MEAN_BYTES, seed)
    contents = [prepared(arm, number, file) for number, file in enumerate(files)]
    parts, said = served(stored) if point["store"] == "s3" else (None, {})
    source = Images(stored / "source", files, parts)
    images = source if arm == "online" else Images(stored / "prepared", contents, parts)
    if point["store"] == "cold":
        said = {"notes": {"cold": note_of_cold(folder)}}
        said |= cold(sorted({*source.files, *images.files}))
    share = 0 if arm == "online" else COUNT // int(point["epochs"])
    epochs = Epochs(arm, images, seed)
    written = folder / "written"

    def step() -> None:
        if share:
            prepare(arm, source.read(range(share)), written)
        epochs.step()

    size = sum(map(len, contents)) / COUNT
    return Arm(
        step=step,
        error=lambda: epochs.error(files),
        tolerance=JPEG_TOLERANCE if arm == "pre_resized_jpeg" else None,
        items=COUNT,
        item="image",
        metrics=lambda: {"image_bytes": size},
        versions={
            "libjpeg-turbo of pillow": str(features.version("libjpeg_turbo")),
            **said.pop("versions", {}),
        },
        notes={
            **said.pop("notes", {}),
            "images": f"{COUNT} synthetic JPEGs of {WIDTH} x {HEIGHT} pixels, mean 112 kB",
        },
        **said,
    )


def served(folder: Path) -> tuple[Parts, dict[str, Any]]:
    """What asks a server of this folder for parts of its objects, and what an arm says of it."""
    from gpulift_work.object_store import ObjectStore, parts_of  # a large package

    folder.mkdir()
    store = ObjectStore(folder)
    objects = store.files(IN_FLIGHT, max_concurrency=1)
    return partial(parts_of, objects), {"versions": store.versions, "notes": store.notes}


def pixels_of(number: int, file: Sample) -> Any:
    """Decoded, and resized where it is not of the training's size. Raises ValueError, which names
    the sample, where it cannot be."""
    try:
        image: Image.Image = Image.open(io.BytesIO(file))
        image.load()
    except (OSError, SyntaxError) as error:
        raise ValueError(f"sample {number}: {error}") from error
    if image.size != (SIDE, SIDE):
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(image)


def prepared(arm: str, number: int, file: Sample) -> bytes:
    """What this arm reads in each epoch."""
    if arm == "online":
        return bytes(file)
    pixels = pixels_of(number, file)
    if arm == "raw_pixels":
        return bytes(pixels.tobytes())
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "JPEG", quality=QUALITY)
    return encoded.getvalue()


def prepare(arm: str, files: Iterator[Sample], written: Path) -> None:
    """The pass over these files, whose result is written to the disk."""
    with open(written, "wb") as output:
        for number, file in enumerate(files):
            output.write(prepared(arm, number, file))


class Epochs:
    """Reads all images in an order of its own each time, and flips half of them: what is drawn at
    random stays random, however the images were prepared."""

    def __init__(self, arm: str, images: Images, seed: int) -> None:
        self._raw = arm == "raw_pixels"
        self._images = images
        self._seed = seed
        self._epoch = 0
        self.rows = np.zeros((COUNT, SIDE, SIDE, 3), np.uint8)

    def step(self) -> None:
        """The next one."""
        self._epoch += 1
        order, flips = self.drawn()
        for row, number, flip, content in zip(
            self.rows, order, flips, self._images.read(order), strict=True
        ):
            pixels = self._pixels(number, content)
            row[:] = pixels[:, ::-1] if flip else pixels

    def drawn(self) -> tuple[list[int], list[bool]]:
        """The epoch's order, and which of the images that then come are flipped."""
        generator = random.Random(self._epoch)  # as many in every launch
        return (
            shuffled(COUNT, self._seed + self._epoch),
            [generator.random() < 0.5 for _ in range(COUNT)],
        )

    def error(self, files: Sequence[bytes]) -> float:
        """How far the last epoch's pixels are from those that are decoded and resized online."""
        order, flips = self.drawn()
        differences = []
        for row, number, flip in zip(self.rows, order, flips, strict=True):
            wanted = pixels_of(number, files[number])
            found = row[:, ::-1] if flip else row
            differences.append(float(np.abs(found.astype(np.int16) - wanted).mean()))
        return float(np.mean(differences))

    def _pixels(self, number: int, content: Sample) -> Any:
        if not self._raw:
            return pixels_of(number, content)
        wanted = SIDE * SIDE * 3
        if len(content) != wanted:
            raise ValueError(f"sample {number} is truncated: {len(content)} of {wanted} bytes")
        return np.frombuffer(content, np.uint8).reshape(SIDE, SIDE, 3)
