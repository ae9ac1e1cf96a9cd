"""input/gpu_preprocessing: batches are those of the files, and what a step beside costs is told.

Without a GPU all arms decode on the host, by the same calls where the library can.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work import feeding  # noqa: E402
from gpulift_work.loaders import AnyOrder  # noqa: E402
from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

MANIFEST = manifest(__file__)
TOLERANCE = MANIFEST["check"]["tolerance"]
POINT = {"cores": "all", "beside": "nothing"}
HOST = torch.device("cpu")


@pytest.fixture(name="preprocessing")
def script(
    two_cores: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[Path]
) -> Any:
    """The script on two cores, with few small images."""
    module: Any = load(__file__)
    for name, value in {"FILES": 8, "BATCH": 4, "TIMED_STEPS": 3}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "stored", lambda *_: files[:8])
    monkeypatch.setattr(module, "scratch", lambda: tmp_path)
    return module


@pytest.mark.parametrize("name", ["processes", "nvjpeg", "dali"])
def test_an_arm_makes_the_batches_of_its_files_beyond_an_epoch(
    preprocessing: Any, name: str
) -> None:
    try:
        arm = preprocessing.make(name, POINT, 7, None)
    except Skip as reason:
        pytest.skip(str(reason))
    for _ in range(3):
        arm.before()
        arm.step()
        arm.synchronize()
        arm.rest()
        assert arm.error() <= TOLERANCE
    assert (arm.items, arm.item) == (8, "image")
    assert arm.metrics()["loader_cpu_s_per_image"] > 0


def test_what_makes_another_image_of_one_does_not_pass(
    preprocessing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = preprocessing.cropped
    monkeypatch.setattr(preprocessing, "cropped", lambda *given: right(*given).roll(1, 0))
    arm = preprocessing.make("nvjpeg", POINT, 7, None)
    arm.step()
    assert arm.error() > TOLERANCE
    arm.rest()


def test_a_truncated_file_fails_its_arm_from_the_thread(
    preprocessing: Any,
    monkeypatch: pytest.MonkeyPatch,
    files: list[Path],
    tmp_path: Path,
) -> None:
    damaged = tmp_path / "damaged.jpg"
    whole = files[5].read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(
        preprocessing,
        "stored",
        lambda *_: [*files[:5], damaged, *files[6:8]],
    )
    arm = preprocessing.make("nvjpeg", POINT, 7, None)
    with pytest.raises(RuntimeError, match="truncated"):
        arm.step()


def test_a_training_step_is_compared_with_one_alone(preprocessing: Any) -> None:
    arm = preprocessing.make("nvjpeg", POINT, 7, None)
    rounds = arm.step.__self__
    taken: list[Any] = []

    def alone(_: Any) -> None:
        time.sleep(1e-3)

    def beside(batch: Any) -> None:
        taken.append(batch)
        time.sleep(3e-3)

    rounds.train = beside
    step = feeding.Step(4, HOST, alone, lambda: None, "")
    found = preprocessing.slowdown(rounds, step, None, lambda: None)
    assert len(taken) == rounds.batches + preprocessing.TIMED_STEPS
    assert found["training_step_alone_s"] >= 1e-3
    assert found["training_step_s"] >= 3e-3
    assert found["training_slowdown_ratio"] == pytest.approx(
        found["training_step_s"] / found["training_step_alone_s"]
    )


@pytest.mark.parametrize("arm", ["nvimagecodec", "dali"])
def test_a_missing_library_skips_its_arm_with_what_installs_it(
    preprocessing: Any, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    module, package = preprocessing.LIBRARIES[arm]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Skip, match="the Python package") as skipped:
        preprocessing.make(arm, POINT, 7, None)
    assert skipped.value.remedy.startswith(f"pip install '{package}'")


def test_every_arm_but_the_loader_and_dali_has_its_decoder(preprocessing: Any) -> None:
    assert ["processes", *preprocessing.DECODERS, "dali"] == MANIFEST["arms"]


def dali_of(preprocessing: Any, files: list[Path]) -> Any:
    library = pytest.importorskip("nvidia.dali", reason="no DALI is installed")
    return preprocessing.DaliLoader(library, files[:8], HOST, 2, 7)


def test_dali_cuts_at_random_where_it_says_in_an_order_of_its_own(
    preprocessing: Any, files: list[Path]
) -> None:
    loader = dali_of(preprocessing, files)
    check = AnyOrder(8, 4).checker()
    places = []
    for _ in range(6):
        keys, images = loader.take()
        check(keys)
        assert feeding.largest_difference(images, loader.by_pillow()) <= TOLERANCE
        places += loader._places
    assert len(set(places)) > 20, "each crop is drawn anew"
    assert {place.flipped for place in places} == {False, True}


def test_dali_rests_when_its_queue_is_full(preprocessing: Any, files: list[Path]) -> None:
    loader = dali_of(preprocessing, files)
    loader.take()
    assert loader.pause() > preprocessing.PREFETCH
    used_s = time.process_time()
    time.sleep(0.1)
    assert time.process_time() - used_s < 0.05


def test_what_does_not_come_to_rest_is_said(
    preprocessing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = preprocessing.DaliLoader.__new__(preprocessing.DaliLoader)
    loader._device = HOST
    ticks = itertools.count()
    monkeypatch.setattr(preprocessing, "process_time", lambda: float(next(ticks)))
    monkeypatch.setattr(preprocessing, "sleep", lambda _: None)
    monkeypatch.setattr(preprocessing, "IDLE_LIMIT_S", 0.0)
    with pytest.raises(RuntimeError, match="do not come to rest"):
        loader.pause()
