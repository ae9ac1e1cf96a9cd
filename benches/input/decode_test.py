"""input/decode: every decoder gives what Pillow gives, and what is wrong is found."""

from __future__ import annotations

import importlib
import importlib.util
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from technique_script import load

FOLDER = Path(__file__).parent
POINT = {"kilobytes": 112, "threads": "one"}
NO_SIMD = "libjpeg_turbo_no_simd"
ARMS = ("pillow", "libjpeg_turbo", "torchvision", NO_SIMD, "fast_dct")

FEW_IMAGES = """
import functools
import sys
import decode
from gpulift_worker import Skip
decode.IMAGES = {size: (2, *pixels) for size, (_, *pixels) in decode.IMAGES.items()}
decode.synthetic_jpegs = functools.cache(decode.synthetic_jpegs)
decode.cores = lambda: 3
def skip(said):
    print(f"skipped: {said}")
    raise SystemExit
"""


@pytest.fixture(name="decode")
def decode_script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with two images of each size."""
    monkeypatch.delenv("JSIMD_FORCENONE", raising=False)
    module: Any = load(__file__)
    few = {size: (2, *pixels) for size, (_, *pixels) in module.IMAGES.items()}
    monkeypatch.setattr(module, "IMAGES", few)
    return module


def lines_of(arm: str, code: str) -> list[str]:
    """What the code prints in a process of the arm's own, with the arm's variables."""
    environment = {name: text for name, text in os.environ.items() if name != "JSIMD_FORCENONE"}
    environment["PYTHONPATH"] = os.pathsep.join([str(FOLDER), *filter(None, sys.path)])
    environment |= {"JSIMD_FORCENONE": "1"} if arm == NO_SIMD else {}
    said = subprocess.run(
        [sys.executable, "-c", FEW_IMAGES + code, arm],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if said and said[0].startswith("skipped"):
        pytest.skip(said[0])
    return said


@pytest.mark.parametrize("arm", ["pillow", "libjpeg_turbo", "torchvision"])
def test_a_truncated_jpeg_is_named_and_is_no_image(arm: str) -> None:
    code = """
files = decode.synthetic_jpegs(2, 64, 64, 3e3, 7)
try:
    decoder = decode.DECODERS[sys.argv[1]]()
except Skip as reason:
    skip(reason)
images = [decoder.given(files[0]), decoder.given(files[1][:1000])]
try:
    decode.decode_all(decoder.decode, images)
except ValueError as error:
    print(error)
"""
    (said,) = lines_of(arm, code)[:1]
    assert said.startswith("image 1 of 2: ")


def test_the_fast_dct_is_not_exact(decode: Any) -> None:
    pytest.importorskip("simplejpeg")
    arm = decode.make("fast_dct", POINT, 7, None)
    arm.step()
    assert 0 < arm.error() <= arm.tolerance


def test_images_are_decoded_into_pages_that_are_there(decode: Any) -> None:
    arm = decode.make("pillow", {**POINT, "kilobytes": 760}, 7, None)
    if "glibc" not in arm.notes["malloc"]:
        pytest.skip(arm.notes["malloc"])
    count, width, height = decode.IMAGES[760]
    assert arm.metrics()["faults_per_step"] < 0.1 * count * width * height * 3 / mmap.PAGESIZE


@pytest.mark.parametrize("kilobytes", [28, 112, 760])
def test_the_files_have_the_mean_size_of_the_case(decode: Any, kilobytes: int) -> None:
    count, width, height = decode.IMAGES[kilobytes]
    files = decode.synthetic_jpegs(count, width, height, 1e3 * kilobytes, 7)
    assert sum(map(len, files)) / count == pytest.approx(1e3 * kilobytes, rel=0.1)


def test_one_wrong_pixel_is_found_and_so_is_another_shape(decode: Any) -> None:
    wanted = np.full((4, 5, 3), 250, np.uint8)
    found = wanted.copy()
    assert decode.difference(found, wanted) == 0
    found[3, 4, 2] = 3
    assert decode.difference(found, wanted) == 247
    with pytest.raises(ValueError, match=r"decoded uint8\(4, 5, 1\), not uint8\(4, 5, 3\)"):
        decode.difference(found[:, :, :1], wanted)
    with pytest.raises(ValueError, match="decoded float32"):
        decode.difference(found.astype(np.float32), wanted)


def test_an_arm_that_decodes_nothing_or_the_wrong_image_does_not_pass(decode: Any) -> None:
    files = decode.synthetic_jpegs(2, 64, 64, 3e3, 7)
    idle = decode.Decoding(decode.Decoder(decode.pillow_array), files, 1)
    with pytest.raises(RuntimeError, match="0 of 1 threads decoded"):
        idle.error()
    first = decode.pillow_array(files[0])
    stuck = decode.Decoding(decode.Decoder(lambda _: first), files, 1)
    stuck.step()
    assert stuck.error() > 16


def test_a_step_decodes_anew(decode: Any) -> None:
    decoded: list[Any] = []

    def counted(file: bytes) -> Any:
        decoded.append(decode.pillow_array(file))
        return decoded[-1]

    files = decode.synthetic_jpegs(2, 64, 64, 3e3, 7)
    decoding = decode.Decoding(decode.Decoder(counted), files, 3)
    decoding.step()
    decoding.step()
    assert len(decoded) == 2 * 3 * len(files)
    assert decoding.error() == 0


def test_an_error_on_a_thread_reaches_the_step(decode: Any) -> None:
    decoding = decode.Decoding(decode.Decoder(decode.pillow_array), [b"no image"], 2)
    with pytest.raises(ValueError, match="image 0 of 1: cannot identify"):
        decoding.step()


def test_the_control_never_runs_with_simd_and_the_others_never_without(
    decode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="started without JSIMD_FORCENONE=1"):
        decode.make(NO_SIMD, POINT, 7, None)
    monkeypatch.setenv("JSIMD_FORCENONE", "1")
    skip = importlib.import_module("gpulift_worker").Skip
    with pytest.raises(skip, match="JSIMD_FORCENONE is set") as skipped:
        decode.make("pillow", POINT, 7, None)
    assert skipped.value.remedy == "unset JSIMD_FORCENONE"


def test_a_library_that_has_no_simd_anyway_is_no_control(
    decode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JSIMD_FORCENONE", "1")
    skip = importlib.import_module("gpulift_worker").Skip
    times_s = iter([1.1e-3, 1.0e-3, 1.3e-3, 1.0e-3])
    monkeypatch.setattr(decode, "decode_time_s", lambda *_: next(times_s))
    with pytest.raises(skip, match=r"takes nothing from .*: 1\.10 ms with it, 1\.00"):
        decode.require_slower_without_simd(decode.pillow_array, b"")
    assert os.environ["JSIMD_FORCENONE"] == "1"
    decode.require_slower_without_simd(decode.pillow_array, b"")
