"""Synthetic JPEGs for Python arms: the same bytes for the same seed, of a size that is asked for.

A photograph's spectrum falls with its frequency, so noise with that spectrum lies over a few flat
shapes, and as much of it as makes files of the size wanted at quality 90. Real photographs they are
not: whoever measures with them says so.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

QUALITY = 90
SHAPES = 12
CHROMA = 0.3  # noise of both colour planes, over that of luma
SPREAD = 0.25  # of the logarithm of noise from one image to another
MOST_NOISE = 256.0  # standard deviations of luma, beyond which nearly all pixels are black or white
NEAR_ENOUGH = 0.005  # of the size asked for
# Width and height of photographs as ImageNet has them, and how many of twelve: the mean is 197,000
# pixels in 112 kB, and no two sizes can be stacked.
PHOTOGRAPHS = {
    (500, 375): 3,
    (375, 500): 2,
    (500, 333): 2,
    (333, 500): 1,
    (640, 480): 1,
    (800, 600): 1,
    (320, 240): 1,
    (256, 256): 1,
}
BYTES_PER_PIXEL = 0.57


@dataclass(frozen=True)
class _Picture:
    """Planes of luma and both chromas without noise, and the noise that comes over them."""

    shapes: Sequence[Any]
    noises: Sequence[Any]

    def encode(self, noise: float) -> bytes:
        """As JPEG, with this much noise."""
        planes = [
            Image.fromarray(np.clip(flat + noise * one, 0, 255).astype(np.uint8))
            for flat, one in zip(self.shapes, self.noises, strict=True)
        ]
        file = io.BytesIO()
        image = Image.merge("YCbCr", planes)
        image.save(file, "JPEG", quality=QUALITY, subsampling="4:2:0")
        return file.getvalue()


def synthetic_jpegs(
    count: int, width: int, height: int, mean_bytes: float, seed: int
) -> list[bytes]:
    """Different images whose files have this mean size, within half a percent.

    A process of its own makes them: what that takes is no memory of the arm's. Raises ValueError
    where no noise gives this size.
    """
    folder = Path(__file__).resolve().parents[1]
    asked = map(str, (count, width, height, mean_bytes, seed))
    command = [sys.executable, "-m", "gpulift_work.images", *asked]
    # An empty entry is the current folder, where a numpy.py may lie.
    named = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *named])}
    made = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if made.returncode != 0:
        said = made.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(f"making JPEGs failed: {said[0] if said else made.returncode}")
    files: list[bytes] = pickle.loads(made.stdout)
    return files


def photographs(seed: int, scale: float = 1.0) -> list[bytes]:
    """Twelve of mixed sizes, each side so many times as long as ImageNet's."""
    sizes = [
        (round(scale * width), round(scale * height), count)
        for (width, height), count in PHOTOGRAPHS.items()
    ]
    return [
        file
        for width, height, count in sizes
        for file in synthetic_jpegs(count, width, height, BYTES_PER_PIXEL * width * height, seed)
    ]


def make_jpegs(count: int, width: int, height: int, mean_bytes: float, seed: int) -> list[bytes]:
    """The same in this process."""
    pictures = [
        _picture(width, height, np.random.default_rng([seed, index])) for index in range(count)
    ]

    def encoded(noise: float) -> list[bytes]:
        return [picture.encode(noise) for picture in pictures]

    low, high = 0.0, MOST_NOISE
    while high - low > 1e-3:
        noise = (low + high) / 2
        files = encoded(noise)
        over = sum(map(len, files)) / count / mean_bytes - 1
        if abs(over) < NEAR_ENOUGH:
            return files
        low, high = (low, noise) if over > 0 else (noise, high)
    raise ValueError(
        f"no JPEGs of {width} x {height} pixels at quality {QUALITY} have {mean_bytes:.0f} bytes"
    )


def _picture(width: int, height: int, generator: np.random.Generator) -> _Picture:
    """One image: its shapes, and its own share of the noise."""
    image = Image.new("YCbCr", (width, height), _colour(generator))
    draw = ImageDraw.Draw(image)
    for index in range(SHAPES):
        left, right = sorted(generator.integers(0, width, 2).tolist())
        top, bottom = sorted(generator.integers(0, height, 2).tolist())
        paint = draw.ellipse if index % 2 else draw.rectangle
        paint((left, top, right, bottom), fill=_colour(generator))
    contrast = math.exp(generator.normal(0, SPREAD))
    luma = contrast * _noise(width, height, generator)
    # As coarse as 4:2:0 stores it.
    chromas = [
        CHROMA * contrast * _noise((width + 1) // 2, (height + 1) // 2, generator) for _ in "br"
    ]
    fine = [one.repeat(2, axis=0).repeat(2, axis=1)[:height, :width] for one in chromas]
    return _Picture([np.asarray(plane, np.float32) for plane in image.split()], [luma, *fine])


def _colour(generator: np.random.Generator) -> tuple[int, int, int]:
    """Luma and both chromas, not so near to black and white that noise would be cut off."""
    luma, blue, red = generator.integers(64, 192, 3).tolist()
    return luma, blue, red


def _noise(width: int, height: int, generator: np.random.Generator) -> Any:
    """Noise of standard deviation 1 whose amplitude falls as 1 / frequency."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = np.inf  # no mean
    spectrum = np.fft.rfft2(generator.standard_normal((height, width))) / frequency
    values = np.fft.irfft2(spectrum, (height, width))
    return (values / values.std()).astype(np.float32)


def main(arguments: Sequence[str]) -> None:
    """Writes the files that the arguments of make_jpegs() ask for, pickled."""
    count, width, height, mean_bytes, seed = arguments
    files = make_jpegs(int(count), int(width), int(height), float(mean_bytes), int(seed))
    pickle.dump(files, sys.stdout.buffer)


if __name__ == "__main__":
    main(sys.argv[1:])
