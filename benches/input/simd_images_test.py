"""input/simd_images: every library gives what the filter gives, and what is wrong is found."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from technique_script import load


@pytest.fixture(name="simd_images")
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with two images."""
    monkeypatch.delenv("GPULIFT_PILLOW_SIMD", raising=False)
    module: Any = load(__file__)
    monkeypatch.setattr(module, "IMAGES", 2)
    return module


def skip_type() -> Any:
    """The exception of the worker that the script imported."""
    return importlib.import_module("gpulift_worker").Skip


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("pillow", "bicubic"),
        ("torchvision", "bicubic"),
        ("torchcodec", "bilinear"),
        ("simplejpeg", "bilinear"),
        ("opencv_area", "bilinear"),
    ],
)
def test_a_library_that_decodes_too_gives_what_the_filter_gives(
    simd_images: Any, name: str, kernel: str
) -> None:
    try:
        arm = simd_images.make(name, {"work": "decode_and_resize", "filter": kernel}, 7, None)
    except (skip_type(), ModuleNotFoundError) as reason:
        pytest.skip(str(reason))
    arm.step()
    tolerance = simd_images.TECHNIQUE["check"]["tolerance"]
    assert arm.error() <= (tolerance if arm.tolerance is None else arm.tolerance)
    assert arm.metrics()["mean_difference_levels"] < 3
    assert (arm.items, arm.item) == (2, "image")


def test_another_kernel_another_order_and_a_shift_do_not_pass(simd_images: Any) -> None:
    image = importlib.import_module("PIL.Image")
    images = importlib.import_module("gpulift_work.images")
    (file,) = images.synthetic_jpegs(1, simd_images.WIDTH, simd_images.HEIGHT, 112e3, 7)
    pixels = simd_images.pixels_of(file)
    wanted = simd_images.filtered(pixels, False)

    def largest(found: Any) -> int:
        return int(simd_images.difference(found, wanted).max())

    side = (simd_images.SIDE, simd_images.SIDE)
    nearest = np.asarray(image.fromarray(pixels).resize(side, image.Resampling.NEAREST))
    assert largest(simd_images.filtered(pixels, True)) > 1
    wrong = [nearest, wanted[:, :, ::-1], np.roll(wanted, 1, axis=1)]
    assert min(map(largest, wrong)) > simd_images.AREA_TOLERANCE


def test_every_new_pixel_is_a_mean_of_old_ones(simd_images: Any) -> None:
    for bicubic, width in ((False, 2), (True, 4)):
        found = simd_images.weights(500, bicubic)
        assert found.shape == (simd_images.SIDE, 500)
        assert found.sum(axis=1) == pytest.approx(1)
        read = np.count_nonzero(found, axis=1).max()
        assert read == pytest.approx(width * 500 / simd_images.SIDE, abs=1)


def test_pixels_of_another_shape_or_type_are_found(simd_images: Any) -> None:
    wanted = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(ValueError, match=r"resized to uint8\(5, 4, 3\), not uint8\(4, 5, 3\)"):
        simd_images.difference(wanted.transpose(1, 0, 2), wanted)
    with pytest.raises(ValueError, match="resized to float32"):
        simd_images.difference(wanted.astype(np.float32), wanted)


def test_an_arm_that_resized_nothing_does_not_pass(simd_images: Any) -> None:
    library = simd_images.pillow(False)
    pixels = np.zeros((simd_images.HEIGHT, simd_images.WIDTH, 3), np.uint8)
    resizing = simd_images.Resizing(library, [b""], [pixels], [simd_images.filtered(pixels, False)])
    with pytest.raises(RuntimeError, match="0 of 1 images were resized"):
        resizing.largest_difference()


@pytest.mark.parametrize("work", ["resize", "decode_and_resize"])
def test_only_the_second_work_decodes_in_a_step(simd_images: Any, work: str) -> None:
    decoded: list[bytes] = []
    pixels = np.zeros((2, 2, 3), np.uint8)

    def decode(file: bytes) -> Any:
        decoded.append(file)
        return pixels

    library = simd_images.Library(
        decode=decode,
        given=lambda given: given,
        resize=lambda image: image,
    )
    files = [b"one", b"two"]
    resizing = simd_images.Resizing(library, files, [pixels, pixels], [pixels, pixels])
    getattr(resizing, work)()
    assert decoded == (files if work == "decode_and_resize" else [])
    assert resizing.largest_difference() == 0


def test_the_fork_is_skipped_where_it_is_not_built(
    simd_images: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(skip_type(), match="GPULIFT_PILLOW_SIMD is not set") as skipped:
        simd_images.pillow_simd(False)
    assert "pip install" in skipped.value.remedy
    monkeypatch.setenv("GPULIFT_PILLOW_SIMD", str(tmp_path))
    with pytest.raises(skip_type(), match="names no folder with PIL"):
        simd_images.pillow_simd(False)


def test_pillow_is_not_measured_as_the_fork_nor_the_fork_as_pillow(
    simd_images: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = importlib.import_module("PIL")
    (tmp_path / "PIL").mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("GPULIFT_PILLOW_SIMD", str(tmp_path))
    monkeypatch.setattr(package, "__version__", "13.0.0")
    with pytest.raises(skip_type(), match=r"PIL 13\.0\.0 is not Pillow-SIMD"):
        simd_images.pillow_simd(False)
    monkeypatch.setattr(package, "__version__", "12.1.1.post0")
    assert simd_images.pillow_simd(False).versions == {"pillow-simd": "12.1.1.post0"}
    with pytest.raises(skip_type(), match="PIL is Pillow-SIMD here"):
        simd_images.pillow(False)


def test_a_missing_library_skips_its_arm(simd_images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {"cv2": "opencv_area", "torchcodec": "torchcodec", "simplejpeg": "simplejpeg"}
    for package, arm in arms.items():
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ModuleNotFoundError, match=package):  # the worker makes a skip of it
            simd_images.LIBRARIES[arm](False)
    with pytest.raises(skip_type(), match="no bicubic filter"):
        simd_images.opencv_area(True)


@pytest.mark.parametrize("arm", ["torchcodec", "simplejpeg"])
def test_a_decoder_is_not_measured_as_what_resizes(simd_images: Any, arm: str) -> None:
    with pytest.raises(skip_type(), match=f"{arm} decodes, and leaves the resizing to others"):
        simd_images.make(arm, {"work": "resize", "filter": "bilinear"}, 7, None)
