"""input/offline: the same pixels however they were prepared, and the pass that an epoch bears."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from gpulift_work.images import synthetic_jpegs
from technique_script import assert_passes_twice, error_of, load, made

offline = load(__file__)
FILES = synthetic_jpegs(20, 120, 90, 6e3, 7)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(offline, "synthetic_jpegs", lambda *_: FILES)
    return disk


make = partial(made, offline)


@pytest.mark.parametrize("name", ["pre_resized_jpeg", "raw_pixels"])
@pytest.mark.parametrize(("epochs", "images"), [(1, 20), (20, 1)])
def test_an_epoch_bears_its_part_of_the_pass(
    monkeypatch: pytest.MonkeyPatch, name: str, epochs: int, images: int
) -> None:
    arm = make(name, {"store": "warm", "epochs": epochs})
    prepared: list[int] = []
    real = offline.prepared

    def counted(arm: str, number: int, file: bytes) -> bytes:
        prepared.append(number)
        return bytes(real(arm, number, file))

    monkeypatch.setattr(offline, "prepared", counted)
    arm.step()
    assert prepared == list(range(images))
    assert error_of(arm) <= (arm.tolerance or 0)


@pytest.mark.parametrize("name", offline.TECHNIQUE["arms"])
def test_images_of_a_store_are_those_of_the_disk(folder: Path, name: str) -> None:
    pytest.importorskip("s3fs")
    arm = make(name, {"store": "s3", "epochs": 1})
    assert_passes_twice(arm)
    assert arm.notes["store"].startswith("rclone")
    assert arm.precondition is None
    stored = folder / name / "store" / ("source" if name == "online" else "prepared")
    (stored / "samples.pack").write_bytes(b"")  # nothing is left of it on the way to a step
    with pytest.raises((OSError, ValueError)):
        arm.step()


def test_a_cold_case_is_proven_so() -> None:
    arm = make("raw_pixels", {"store": "cold", "epochs": 20})
    assert arm.precondition is not None
    assert arm.notes["cold"].startswith("cold in this machine")


def test_online_has_no_pass(folder: Path) -> None:
    make("online", {"store": "warm", "epochs": 1})
    assert not (folder / "online" / "written").exists()


def test_order_and_flips_are_drawn_anew_in_every_epoch() -> None:
    epochs = offline.Epochs("online", None, 7)
    first = epochs.drawn()
    assert first == epochs.drawn()
    epochs._epoch += 1
    second = epochs.drawn()
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert 0 < sum(first[1]) < offline.COUNT


def test_an_image_in_the_place_of_another_does_not_pass(tmp_path: Path) -> None:
    images = offline.Images(tmp_path / "own", FILES[1:] + FILES[:1], None)
    epochs = offline.Epochs("online", images, 7)
    epochs.step()
    assert epochs.error(FILES) > offline.JPEG_TOLERANCE


def test_a_truncated_jpeg_names_the_sample() -> None:
    with pytest.raises(ValueError, match="sample 3: "):
        offline.pixels_of(3, FILES[3][:400])
    with pytest.raises(ValueError, match="sample 4: "):
        offline.pixels_of(4, b"no image")


def test_truncated_pixels_name_the_sample() -> None:
    epochs = offline.Epochs("raw_pixels", None, 7)
    with pytest.raises(ValueError, match="sample 3 is truncated: 5 of 150528 bytes"):
        epochs._pixels(3, bytes(5))
