"""Synthetic JPEGs: the same for the same seed, and of the size that is asked for."""

from __future__ import annotations

import importlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image


@pytest.fixture(name="images")
def images_module() -> Any:
    """The module that arms import."""
    return importlib.import_module("gpulift_work.images")


def test_a_seed_gives_the_same_bytes_in_every_process(images: Any) -> None:
    seed = 2**64 - 1  # the largest that the engine gives
    files = images.synthetic_jpegs(2, 96, 64, 5e3, seed)
    assert files == images.make_jpegs(2, 96, 64, 5e3, seed)
    assert len(set(files) | set(images.synthetic_jpegs(2, 96, 64, 5e3, 1))) == 4


def test_a_process_without_simd_makes_the_same_bytes(
    images: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = images.synthetic_jpegs(2, 300, 200, 40e3, 7)
    monkeypatch.setenv("JSIMD_FORCENONE", "1")
    assert images.synthetic_jpegs(2, 300, 200, 40e3, 7) == files


def test_the_current_folder_is_no_source_of_modules(
    images: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}/no/such/folder")
    assert len(images.synthetic_jpegs(1, 96, 64, 5e3, 7)) == 1


@pytest.mark.parametrize("mean_bytes", [6e3, 12e3, 24e3])
def test_the_mean_size_is_met_and_the_sizes_differ(images: Any, mean_bytes: float) -> None:
    sizes = [len(file) for file in images.make_jpegs(6, 200, 150, mean_bytes, 7)]
    assert sum(sizes) / len(sizes) == pytest.approx(mean_bytes, rel=0.005)
    assert max(sizes) > 1.1 * min(sizes)


def test_the_files_are_jpegs_of_this_size_with_coarse_colours(images: Any) -> None:
    for width, height in ((96, 64), (97, 65)):
        (file,) = images.make_jpegs(1, width, height, 5e3, 7)
        image = images.Image.open(io.BytesIO(file))
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (width, height))
        sampling = [(across, down) for _, across, down, _ in image.layer]
        assert sampling == [(2, 2), (1, 1), (1, 1)]  # 4:2:0


@pytest.mark.parametrize("mean_bytes", [100, 1e6])
def test_a_size_that_no_noise_gives_is_refused_in_one_line(images: Any, mean_bytes: float) -> None:
    with pytest.raises(ValueError, match=r"no JPEGs of 96 x 64 pixels .* bytes$") as refused:
        images.synthetic_jpegs(1, 96, 64, mean_bytes, 7)
    assert len(str(refused.value).splitlines()) == 1


def test_photographs_have_the_mean_and_the_mixed_sizes_of_imagenet(images: Any) -> None:
    files = images.photographs(7, scale=0.25)
    sizes = [Image.open(io.BytesIO(file)).size for file in files]
    assert len(files) == len(set(files)) == 12
    assert len(set(sizes)) == len(images.PHOTOGRAPHS)
    assert sum(map(len, files)) / 12 == pytest.approx(112e3 / 16, rel=0.05)
