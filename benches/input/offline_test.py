"""input/offline: the same pixels however they were prepared, and the pass that an epoch bears."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("offline.py")
sys.path.insert(0, str(ROOT / "core" / "python"))

import gpulift_samples  # noqa: E402
from gpulift_images import synthetic_jpegs  # noqa: E402
from gpulift_manifest import manifest_of  # noqa: E402
from gpulift_worker import Arm, Skip, scratch  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("offline_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


offline = load()
MANIFEST = manifest_of("input/offline", SCRIPT)
FILES = synthetic_jpegs(20, 120, 90, 6e3, 7)
POINTS = [case["point"] for case in MANIFEST["cases"]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The case's scratch folder, on what passes for a disk, and work of a small size."""
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    monkeypatch.setattr(gpulift_samples, "disk_facts", lambda _: {"in_memory": False})
    monkeypatch.setattr(offline, "BYTES_PER_S", 1e12)
    monkeypatch.setattr(offline, "LATENCY_S", 0.0)
    monkeypatch.setattr(offline, "synthetic_jpegs", lambda *_: FILES)
    scratch.cache_clear()
    yield tmp_path / "case"
    scratch.cache_clear()


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    try:
        arm: Arm = offline.make(name, point, 7, None)
    except (ModuleNotFoundError, Skip) as missing:
        pytest.skip(str(missing))
    arm.before()
    arm.step()
    return arm


@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point.values())))
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_an_arm_passes_its_check_in_every_case(name: str, point: dict[str, Any]) -> None:
    arm = make(name, point)
    assert arm.error is not None
    assert arm.error() <= (arm.tolerance or 0)
    arm.before()
    arm.step()  # a second one
    assert arm.error() <= (arm.tolerance or 0)


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
    link = gpulift_samples.ThrottledReader(1e12, 0.0)
    images = offline.Images(tmp_path / "own", FILES[1:] + FILES[:1], link)
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
