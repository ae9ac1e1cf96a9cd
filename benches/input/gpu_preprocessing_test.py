"""input/gpu_preprocessing: batches are those of the files, and the training beside can be stopped.

Without a GPU all arms decode on the host, by the same calls.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

preprocessing = load(__file__)
MANIFEST = manifest(__file__)
TOLERANCE = MANIFEST["check"]["tolerance"]
GPU = 0 if torch.cuda.is_available() else None
POINT = {"kilobytes": 112, "beside": "nothing"}
TIMEOUT_S = 20.0


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three images, of which two are different."""
    monkeypatch.setattr(preprocessing, "IMAGES", {112: (2, 500, 375, 3), 760: (2, 1920, 1080, 3)})


@pytest.mark.skipif(GPU is not None, reason="the contract runs every arm on a GPU")
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_every_arm_makes_the_batch_of_its_files(name: str) -> None:
    try:
        arm = preprocessing.make(name, POINT, 7, GPU)
    except Skip as reason:
        pytest.skip(str(reason))
    arm.step()
    arm.synchronize()
    assert arm.error() <= TOLERANCE
    assert (arm.items, arm.item) == (3, "image")
    assert arm.metrics() == {}


def test_one_wrong_image_of_a_batch_does_not_pass() -> None:
    wanted = [torch.full((3, 224, 224), level, dtype=torch.uint8) for level in (10, 200)]
    batch = preprocessing.normalised(torch.stack([wanted[0], wanted[1], wanted[0]]))
    assert preprocessing.mean_difference([batch], 3, wanted) < 1e-3
    batch[2] = batch[1]
    assert preprocessing.mean_difference([batch], 3, wanted) == pytest.approx(190, rel=1e-4)
    with pytest.raises(RuntimeError, match="no batch was made"):
        preprocessing.mean_difference([], 3, wanted)
    with pytest.raises(ValueError, match=r"the batch is torch\.float32\(2, 3, 224, 224\)"):
        preprocessing.mean_difference([batch[:2]], 3, wanted)
    with pytest.raises(ValueError, match=r"the batch is torch\.float64"):
        preprocessing.mean_difference([batch.double()], 3, wanted)


def test_a_file_that_is_no_jpeg_fails_its_arm_from_any_thread() -> None:
    files = [torch.zeros(100, dtype=torch.uint8)] * 2
    for name in ("cores", "gpu_resize", "nvjpeg_batches"):
        made = preprocessing.PREPROCESSING[name](files, torch.device("cpu"))
        with pytest.raises(RuntimeError, match=r"(?i)jpeg"):
            made.batch()


class Counted:
    """Steps that are counted, and waited for."""

    def __init__(self) -> None:
        self.taken = 0
        self._stepped = threading.Event()

    def __call__(self) -> None:
        self.taken += 1
        self._stepped.set()

    def await_one(self) -> None:
        """Until one more was taken."""
        self._stepped.clear()
        assert self._stepped.wait(TIMEOUT_S)


def test_the_training_steps_only_while_it_is_told_to() -> None:
    counted = Counted()
    beside = preprocessing.Beside(counted)
    assert counted.taken == 0
    beside.resume()
    counted.await_one()
    beside.pause()
    taken = counted.taken
    threading.Event().wait(0.05)
    assert counted.taken == taken == beside.steps
    beside.resume()
    counted.await_one()
    beside.pause()
    assert counted.taken > taken


def test_a_training_that_fails_is_no_idle_gpu() -> None:
    tried = threading.Event()

    def step() -> None:
        tried.set()
        raise ValueError("broken")

    beside = preprocessing.Beside(step)
    beside.resume()
    assert tried.wait(TIMEOUT_S)
    beside.pause()
    with pytest.raises(RuntimeError, match="the training beside: broken"):
        beside.resume()


def test_a_training_step_is_compared_with_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocessing, "BESIDE_S", 0.05)
    counted = Counted()

    def slow() -> None:
        counted()
        threading.Event().wait(1e-3)

    beside = preprocessing.Beside(slow)

    def step() -> None:
        beside.resume()
        threading.Event().wait(1e-3)

    found = preprocessing.slowdown(beside, step, lambda: None)
    assert set(found) == {"training_step_s", "training_step_alone_s", "training_slowdown_ratio"}
    ratio = found["training_step_s"] / found["training_step_alone_s"]
    assert found["training_slowdown_ratio"] == pytest.approx(ratio)
    assert found["training_step_alone_s"] >= 1e-3
    taken = counted.taken
    threading.Event().wait(0.05)
    assert counted.taken == taken  # nothing of it works on


@pytest.mark.skipif(GPU is None, reason="no GPU")
def test_the_training_beside_reports_its_slowdown() -> None:
    arm = preprocessing.make("nvjpeg_batches", {**POINT, "beside": "training"}, 7, GPU)
    arm.step()
    arm.synchronize()
    arm.rest()
    assert arm.error() <= TOLERANCE
    found: Any = arm.metrics()
    assert found["training_slowdown_ratio"] > 0


def test_a_missing_dali_skips_its_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(Skip, match="the Python package") as skipped:
        preprocessing.make("dali", POINT, 7, GPU)
    assert skipped.value.remedy.startswith("install nvidia-dali-cuda130")


def test_every_arm_has_its_preprocessing() -> None:
    assert list(preprocessing.PREPROCESSING) == MANIFEST["arms"]
    assert {case["point"]["kilobytes"] for case in MANIFEST["cases"]} == {112, 760}
