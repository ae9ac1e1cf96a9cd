"""input/decode: JPEGs in memory to arrays of pixels, by the decoders that Python offers."""

from __future__ import annotations

import importlib
import io
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import thread_time
from typing import Any

import numpy as np
from gpulift_work.images import synthetic_jpegs
from gpulift_work.malloc import faults_per_step, fix_malloc
from gpulift_worker import Arm, Skip, cores
from PIL import Image, features

TECHNIQUE = {
    "question": "How much faster than Pillow do other decoders turn JPEGs into pixels?",
    "expectation": (
        "All decode by libjpeg-turbo, which Huffman codes bound: some 133 MB of JPEG a second and "
        "core, 0.27, 0.84 and 6.5 ms for 28, 112 and 760 kB by simplejpeg and torchvision. Pillow "
        "keeps 4 bytes a pixel, 0.39, 0.98 and 12.0 ms, and copies the pixels twice to make an "
        "array, into fresh pages at 2.2 GB/s: 0.2, 0.5 and 5.7 ms more. So the others are 2.2, 1.8 "
        "and 2.7 times as fast. Without SIMD 1.44 ms at 112 kB: 0.6 of libjpeg-turbo, 1.0 of "
        "Pillow. The fast DCT saves 5 % for up to 16 of 255 of difference. All decoders release "
        "Python's lock, but Pillow's copies hold it: on all cores the others decode as many times "
        "the images as there are cores, and Pillow no more than 1 / 0.5 ms = 2,000 images a second "
        "of 112 kB and 175 of 760 kB, what 3 cores do."
    ),
    "predict": [
        "kilobytes:28/threads:one: libjpeg_turbo 1.98-2.42, torchvision 1.98-2.42",
        "kilobytes:112/threads:one: libjpeg_turbo 1.62-1.98, torchvision 1.62-1.98,"
        " libjpeg_turbo_no_simd 0.9-1.1",
        "kilobytes:760/threads:one: libjpeg_turbo 2.43-2.97, torchvision 2.43-2.97",
    ],
    "found": (
        "One thread, 760 kB: Pillow takes 9.4 to 10.3 ms in place of 17.7, as if its copies cost "
        "nothing, and libjpeg-turbo 8.7 to 9.7 in place of 6.5: 1.07; 12.3 to 13.0 and 9.6 to "
        "10.1 in another run of that day. Of 28 kB Pillow takes 0.40 to 0.46 ms, not 0.59, of 112 "
        "kB libjpeg-turbo 1.0 to 1.3, not 0.84. Why is not known: malloc's settings were its own "
        "then, and which pages it kept from step to step was not recorded."
    ),
    "arms": ["pillow", "libjpeg_turbo", "torchvision", "libjpeg_turbo_no_simd", "fast_dct"],
    "controls": ["libjpeg_turbo_no_simd"],
    "l2": "none",
    "page_cache": "none",
    "sweep": {"kilobytes": [28, 112, 760], "threads": ["one", "all_cores"]},
    "quick": [{"kilobytes": 112, "threads": "one"}],
    "check": {"meaning": "largest difference from Pillow's decode, of 255", "tolerance": 0},
    "environment": {"libjpeg_turbo_no_simd": {"JSIMD_FORCENONE": "1"}},
}

# Number, width and height of the images of a mean size. One thread decodes them in 10 to 50 ms.
IMAGES = {28: (48, 256, 256), 112: (16, 500, 375), 760: (4, 1920, 1080)}
NO_SIMD = "JSIMD_FORCENONE"
FAST_DCT_TOLERANCE = 16.0
SLOWER_WITHOUT_SIMD = 1.2  # at least; 1.7 is usual
TIMED_DECODES = 10


@dataclass(frozen=True)
class Decoder:
    """How a library decodes: `given` turns a file into what it takes, ahead of all steps, and
    `pixels` what it gives into an array [height, width, 3], behind them."""

    decode: Callable[[Any], Any]
    given: Callable[[bytes], Any] = bytes
    pixels: Callable[[Any], Any] = np.asarray
    tolerance: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class Decoding:
    """Each thread decodes all images in each step; what the last step gave is kept."""

    def __init__(self, decoder: Decoder, files: Sequence[bytes], threads: int) -> None:
        self._decoder = decoder
        self._files = files
        self._images = [decoder.given(file) for file in files]
        self._threads = threads
        # Without one the only thread is the caller's: no hand-over is measured.
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._decoded: list[list[Any]] = []

    def step(self) -> None:
        """Decodes into new memory, as a loader does; the last step's goes back first."""
        self._decoded = []
        if self._pool is None:
            self._decoded = [self._decode_all()]
        else:
            self._decoded = list(self._pool.map(self._decode_all, range(self._threads)))

    def _decode_all(self, _: int = 0) -> list[Any]:
        return decode_all(self._decoder.decode, self._images)

    def error(self) -> float:
        """The largest difference of all that the last step gave from what Pillow gives."""
        if len(self._decoded) != self._threads:
            raise RuntimeError(f"{len(self._decoded)} of {self._threads} threads decoded")
        wanted = decode_all(pillow_array, self._files)
        return max(
            difference(self._decoder.pixels(found), want)
            for decoded in self._decoded
            for found, want in zip(decoded, wanted, strict=True)
        )


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The point's images, decoded once by each thread in each step."""
    require_right_simd(arm)
    malloc = fix_malloc()
    decoder = DECODERS[arm]()
    kilobytes = int(point["kilobytes"])
    count, width, height = IMAGES[kilobytes]
    files = synthetic_jpegs(count, width, height, 1e3 * kilobytes, seed)
    if arm == "libjpeg_turbo_no_simd":
        require_slower_without_simd(decoder.decode, files[0])
    threads = 1 if point["threads"] == "one" else cores()
    decoding = Decoding(decoder, files, threads)
    sizes = sorted(round(len(file) / 1e3) for file in files)
    return Arm(
        step=decoding.step,
        error=decoding.error,
        metrics=lambda: {"faults_per_step": faults_per_step(decoding.step)},
        tolerance=decoder.tolerance,
        items=count * threads,
        item="image",
        versions=decoder.versions,
        notes={
            **malloc,
            "threads": str(threads),
            "images": f"{count} synthetic JPEGs of {width} x {height} pixels, quality 90, 4:2:0; "
            f"smallest {sizes[0]}, median {sizes[count // 2]}, largest {sizes[-1]} kB",
        },
    )


def decode_all(decode: Callable[[Any], Any], images: Sequence[Any]) -> list[Any]:
    """All images decoded; of one that cannot be, the error says which it is."""
    decoded: list[Any] = []
    try:
        for image in images:
            decoded.append(decode(image))
    except Exception as error:
        raise ValueError(f"image {len(decoded)} of {len(images)}: {error}") from error
    return decoded


def difference(found: Any, wanted: Any) -> float:
    """The largest of two arrays of pixels, whose shapes and types must be the same."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(f"decoded {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}")
    if np.array_equal(found, wanted):
        return 0.0
    return float(np.abs(found.astype(np.int16) - wanted).max())


def pillow_array(file: bytes) -> Any:
    """By Pillow."""
    return np.asarray(Image.open(io.BytesIO(file)))


def pillow() -> Decoder:
    """Pillow with the libjpeg-turbo that it brings."""
    version = features.version("libjpeg_turbo")
    return Decoder(
        pillow_array, versions={"libjpeg-turbo of pillow": version} if version is not None else {}
    )


def libjpeg_turbo() -> Decoder:
    """libjpeg-turbo as simplejpeg brings it."""
    simplejpeg = importlib.import_module("simplejpeg")
    return Decoder(
        lambda file: simplejpeg.decode_jpeg(file, "RGB"),
        versions={"simplejpeg": simplejpeg.__version__},
    )


def fast_dct() -> Decoder:
    """The same with an inverse DCT of fewer bits."""
    simplejpeg = importlib.import_module("simplejpeg")
    return Decoder(
        lambda file: simplejpeg.decode_jpeg(file, "RGB", fastdct=True),
        tolerance=FAST_DCT_TOLERANCE,
        versions={"simplejpeg": simplejpeg.__version__},
    )


def torchvision() -> Decoder:
    """torchvision, from tensors of bytes to tensors [3, height, width]."""
    torch, vision = map(importlib.import_module, ("torch", "torchvision"))
    mode = vision.io.ImageReadMode.RGB
    return Decoder(
        lambda file: vision.io.decode_jpeg(file, mode=mode),
        given=lambda file: torch.frombuffer(bytearray(file), dtype=torch.uint8),
        pixels=lambda tensor: tensor.permute(1, 2, 0).numpy(),
        versions={"torch": torch.__version__, "torchvision": vision.__version__},
    )


DECODERS: Mapping[str, Callable[[], Decoder]] = {
    "pillow": pillow,
    "libjpeg_turbo": libjpeg_turbo,
    "torchvision": torchvision,
    "libjpeg_turbo_no_simd": libjpeg_turbo,
    "fast_dct": fast_dct,
}


def require_right_simd(arm: str) -> None:
    """Whether the process was started with SIMD switched off must be what the arm's name says."""
    off = NO_SIMD in os.environ
    if arm == "libjpeg_turbo_no_simd" and not off:
        raise RuntimeError(f"started without {NO_SIMD}=1: it would measure libjpeg-turbo with SIMD")
    if arm != "libjpeg_turbo_no_simd" and off:
        raise Skip(f"{NO_SIMD} is set: libjpeg-turbo would run without SIMD", f"unset {NO_SIMD}")


def require_slower_without_simd(decode: Callable[[Any], Any], image: Any) -> None:
    """Skips where the variable changes nothing: libjpeg-turbo may be built without SIMD, too."""
    without_s = decode_time_s(decode, image)
    value = os.environ.pop(NO_SIMD)
    with_s = decode_time_s(decode, image)
    os.environ[NO_SIMD] = value
    if without_s < SLOWER_WITHOUT_SIMD * with_s:
        raise Skip(
            f"{NO_SIMD} takes nothing from this libjpeg-turbo: {1e3 * without_s:.2f} ms with it, "
            f"{1e3 * with_s:.2f} ms without"
        )


def decode_time_s(decode: Callable[[Any], Any], image: Any) -> float:
    """CPU time of a decode on a new thread: libjpeg-turbo reads the variable once in each."""
    times_s: list[float] = []

    def measure() -> None:
        for _ in range(TIMED_DECODES):
            start_s = thread_time()
            decode(image)
            times_s.append(thread_time() - start_s)

    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    return min(times_s)
