"""input/simd_images: images made small by libraries with SIMD, alone and behind their decode."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gpulift_worker import Arm, Skip

TECHNIQUE = {
    "question": "How much faster than Pillow do libraries with SIMD make images small?",
    "expectation": (
        "500 x 375 pixels to 224 x 224, on one thread. The filter spans 2 x 500 / 224 = 4.5 "
        "columns and 2 x 375 / 224 = 3.3 rows, twice that bicubic: 3 x (224 x 375 x 4.5 + 224 x "
        "224 x 3.3) = 1.6 M products, 0.67 ms one by one in Pillow, 1.09 ms bicubic. AVX2 does 8 "
        "to 16 at once, of which packing and unpacking take half: 0.12 and 0.13 ms, 5.7 and 8.2 "
        "times as fast, by Pillow-SIMD and by torchvision on uint8 with channels last. Decoding "
        "stays as it is, 0.84 to 0.98 ms: (0.98 + 0.67) / (0.93 + 0.12) = 1.6, and 1.95 bicubic. "
        "OpenCV's only filter that averages over all pixels is INTER_AREA, whose box is no "
        "bilinear filter: 0.62 ms, 1.1. Its INTER_LINEAR, 0.07 ms, reads 4 pixels and skips the "
        "rest, differs by 6 of 255 in the mean, and is no arm: it is fast by doing less. "
        "torchcodec and simplejpeg decode alone, and torchvision resizes: torchcodec's decoder is "
        "what torchvision's was, 1.6 and 1.95, simplejpeg takes 0.84 ms: 1.7 and 2.1."
    ),
    "predict": [
        "work:resize/filter:bilinear: pillow_simd 5.13-6.27, torchvision 5.13-6.27,"
        " opencv_area 0.99-1.21",
        "work:resize/filter:bicubic: pillow_simd 7.38-9.02, torchvision 7.38-9.02",
        "work:decode_and_resize/filter:bilinear: pillow_simd 1.44-1.76, torchvision 1.44-1.76,"
        " torchcodec 1.44-1.76, simplejpeg 1.55-1.9",
        "work:decode_and_resize/filter:bicubic: pillow_simd 1.755-2.145, torchvision 1.755-2.145,"
        " torchcodec 1.755-2.145, simplejpeg 1.9-2.35",
    ],
    "claims": ["simd-images-4x-to-6x", "simd-images-faster"],
    "arms": ["pillow", "pillow_simd", "torchvision", "torchcodec", "simplejpeg", "opencv_area"],
    "controls": ["opencv_area"],  # another filter
    "l2": "none",
    "page_cache": "none",
    "sweep": {
        "work": ["resize", "decode_and_resize"],
        "filter": ["bilinear", "bicubic"],
    },
    "check": {
        "meaning": "largest difference from the filter in FP64, of 255",
        "tolerance": 1,
    },
}

IMAGES = 16
WIDTH, HEIGHT, FILE_BYTES = 500, 375, 112e3
SIDE = 224
# A box in place of a triangle: up to 36 was seen, where an image shifted by a pixel differs by 230.
AREA_TOLERANCE = 64.0
DECODERS = ("torchcodec", "simplejpeg")  # whose images torchvision makes small
SIMD_FOLDER = "GPULIFT_PILLOW_SIMD"
SIMD_REMEDY = (
    "CC='cc -mavx2' pip install --no-deps --no-binary :all: --target FOLDER pillow-simd, and name "
    f"the folder in {SIMD_FOLDER}"
)


@dataclass(frozen=True)
class Library:
    """How one decodes and resizes. `given` turns pixels [height, width, 3] into its image."""

    decode: Callable[[bytes], Any]
    given: Callable[[Any], Any]
    resize: Callable[[Any], Any]
    pixels: Callable[[Any], Any] = np.asarray
    tolerance: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class Resizing:
    """Each step resizes all images; what the last one gave is kept, as the library gives it."""

    def __init__(
        self,
        library: Library,
        files: Sequence[bytes],
        pixels: Sequence[Any],
        wanted: Sequence[Any],
    ) -> None:
        self._library = library
        self._files = files
        self._wanted = wanted
        self._images = [library.given(one) for one in pixels]
        self._resized: list[Any] = []

    def resize(self) -> None:
        """Images that were decoded before."""
        self._resized = [self._library.resize(image) for image in self._images]

    def decode_and_resize(self) -> None:
        """Files in memory."""
        library = self._library
        self._resized = [library.resize(library.decode(file)) for file in self._files]

    def largest_difference(self) -> float:
        """Of any value that the last step gave from the one wanted."""
        return max(float(difference.max()) for difference in self._differences())

    def mean_difference(self) -> float:
        """Of all values."""
        return float(np.mean([difference.mean() for difference in self._differences()]))

    def _differences(self) -> list[Any]:
        if len(self._resized) != len(self._wanted):
            raise RuntimeError(f"{len(self._resized)} of {len(self._wanted)} images were resized")
        return [
            difference(self._library.pixels(image), wanted)
            for image, wanted in zip(self._resized, self._wanted, strict=True)
        ]


def make(arm: str, point: Mapping[str, int | str], seed: int, gpu: int | None) -> Arm:
    """The images, resized once in each step."""
    bicubic = point["filter"] == "bicubic"
    if arm in DECODERS and point["work"] == "resize":
        raise Skip(f"{arm} decodes, and leaves the resizing to others")
    library = LIBRARIES[arm](bicubic)
    from gpulift_work.images import (
        synthetic_jpegs,
    )  # not before: an arm chooses which Pillow it imports

    files = synthetic_jpegs(IMAGES, WIDTH, HEIGHT, FILE_BYTES, seed)
    pixels = [pixels_of(file) for file in files]
    resizing = Resizing(library, files, pixels, [filtered(one, bicubic) for one in pixels])
    return Arm(
        step=resizing.resize if point["work"] == "resize" else resizing.decode_and_resize,
        error=resizing.largest_difference,
        metrics=lambda: {"mean_difference_levels": resizing.mean_difference()},
        tolerance=library.tolerance,
        items=IMAGES,
        item="image",
        versions=library.versions,
        notes={
            "threads": "1",
            "images": f"{IMAGES} synthetic JPEGs of {WIDTH} x {HEIGHT} pixels to {SIDE} x {SIDE}",
        },
    )


def pixels_of(file: bytes) -> Any:
    """A decoded file, [height, width, 3]."""
    return np.asarray(importlib.import_module("PIL.Image").open(io.BytesIO(file)))


def filtered(pixels: Any, bicubic: bool) -> Any:
    """What the filter makes of an image, rounded after each direction as all libraries do."""
    across, down = weights(WIDTH, bicubic), weights(HEIGHT, bicubic)
    narrow = rounded(np.einsum("xw,hwc->hxc", across, pixels.astype(np.float64), optimize=True))
    return rounded(np.einsum("yh,hxc->yxc", down, narrow, optimize=True)).astype(np.uint8)


def rounded(values: Any) -> Any:
    """To what 8 bits hold."""
    return np.clip(np.rint(values), 0, 255)


def weights(length: int, bicubic: bool) -> Any:
    """Of each old pixel of a line in each new one: a triangle, or Keys' cubic with a = -0.5, as
    wide as the image gets smaller."""
    scale = length / SIDE
    centres = (np.arange(SIDE) + 0.5) * scale
    far = np.abs(np.arange(length) + 0.5 - centres[:, None]) / scale
    near_part = 1 - 2.5 * far**2 + 1.5 * far**3
    far_part = 2 - 4 * far + 2.5 * far**2 - 0.5 * far**3
    cubic = np.where(far < 1, near_part, np.where(far < 2, far_part, 0))
    shape = cubic if bicubic else np.clip(1 - far, 0, None)
    return shape / shape.sum(axis=1, keepdims=True)


def difference(found: Any, wanted: Any) -> Any:
    """Of two arrays of pixels, whose shapes and types must be the same."""
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(f"resized to {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}")
    return np.abs(found.astype(np.int16) - wanted)


def pillow(bicubic: bool) -> Library:
    """Pillow, where it is not replaced by Pillow-SIMD."""
    package = importlib.import_module("PIL")
    if is_simd(package):
        raise Skip(
            "PIL is Pillow-SIMD here",
            f"install pillow, and Pillow-SIMD apart: {SIMD_REMEDY}",
        )
    return of_pil(bicubic, {"pillow": package.__version__})


def pillow_simd(bicubic: bool) -> Library:
    """The fork in its folder: both are called PIL, and a process has one of them."""
    folder = os.environ.get(SIMD_FOLDER, "")
    if not (Path(folder) / "PIL").is_dir():
        said = f"{SIMD_FOLDER} names no folder with PIL" if folder else f"{SIMD_FOLDER} is not set"
        raise Skip(f"no Pillow-SIMD: {said}", SIMD_REMEDY)
    sys.path.insert(0, folder)
    package = importlib.import_module("PIL")
    if not is_simd(package):
        raise Skip(f"PIL {package.__version__} is not Pillow-SIMD", SIMD_REMEDY)
    return of_pil(bicubic, {"pillow-simd": package.__version__})


def is_simd(package: Any) -> bool:
    """The fork's releases are post-releases, which Pillow has none of."""
    return ".post" in package.__version__


def of_pil(bicubic: bool, versions: Mapping[str, str]) -> Library:
    """PIL, whichever it is."""
    image = importlib.import_module("PIL.Image")
    kernel = image.Resampling.BICUBIC if bicubic else image.Resampling.BILINEAR
    return Library(
        decode=lambda file: image.open(io.BytesIO(file)),
        given=image.fromarray,
        resize=lambda one: one.resize((SIDE, SIDE), kernel),
        versions=versions,
    )


def torchvision(bicubic: bool) -> Library:
    """Tensors of uint8 with channels last in memory, which its decoder gives, too."""
    torch, vision = importlib.import_module("torch"), importlib.import_module("torchvision")
    functional = importlib.import_module("torchvision.transforms.v2.functional")
    torch.set_num_threads(1)
    modes = functional.InterpolationMode
    kernel = modes.BICUBIC if bicubic else modes.BILINEAR
    return Library(
        decode=lambda file: vision.io.decode_jpeg(
            torch.frombuffer(bytearray(file), dtype=torch.uint8)
        ),
        given=lambda pixels: torch.tensor(pixels).permute(2, 0, 1),
        resize=lambda one: functional.resize(
            one, [SIDE, SIDE], interpolation=kernel, antialias=True
        ),
        pixels=lambda tensor: tensor.permute(1, 2, 0).numpy(),
        versions={"torch": torch.__version__, "torchvision": vision.__version__},
    )


def torchcodec(bicubic: bool) -> Library:
    """The decoder that follows torchvision's."""
    package = importlib.import_module("torchcodec")
    resizing = torchvision(bicubic)
    return replace(
        resizing,
        decode=importlib.import_module("torchcodec.decoders").decode_jpeg,
        versions={**resizing.versions, "torchcodec": package.__version__},
    )


def simplejpeg(bicubic: bool) -> Library:
    """libjpeg-turbo, which gives the layout that torchvision's resizing is made for."""
    package = importlib.import_module("simplejpeg")
    torch = importlib.import_module("torch")
    resizing = torchvision(bicubic)
    return replace(
        resizing,
        decode=lambda file: torch.from_numpy(package.decode_jpeg(file, "RGB")).permute(2, 0, 1),
        versions={**resizing.versions, "simplejpeg": package.__version__},
    )


def opencv_area(bicubic: bool) -> Library:
    """OpenCV's means over areas."""
    if bicubic:
        raise Skip("OpenCV has no bicubic filter that reads all pixels of a large image")
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(1)
    return Library(
        decode=lambda file: cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR_RGB),
        given=lambda pixels: pixels.copy(),
        resize=lambda one: cv2.resize(one, (SIDE, SIDE), interpolation=cv2.INTER_AREA),
        tolerance=AREA_TOLERANCE,
        versions={"opencv": cv2.__version__},
    )


LIBRARIES: Mapping[str, Callable[[bool], Library]] = {
    "pillow": pillow,
    "pillow_simd": pillow_simd,
    "torchvision": torchvision,
    "torchcodec": torchcodec,
    "simplejpeg": simplejpeg,
    "opencv_area": opencv_area,
}
