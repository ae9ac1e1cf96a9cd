"""input/pipeline: every rung gives the same images in the same order; what is wrong is found."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from technique_script import load

torch = pytest.importorskip("torch")

ARMS = ("naive", "workers", "libjpeg_turbo", "uint8", "packed", "gpu_decode")
ON_HOST = ARMS[:-1]
ALL_CORES = {"model": "resnet18", "cores": "all"}


@pytest.fixture(name="pipeline")
def pipeline_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The script, with few small images and a folder of its own."""
    module: Any = load(__file__)
    few = module.replace(module.SOURCES["resnet50"], files=4, images=2, batch=2, step_s=1e-3)
    module.SOURCES["resnet50"] = few
    module.SOURCES["resnet18"] = module.replace(
        module.SOURCES["resnet18"], files=8, images=4, batch=2, step_s=1e-3
    )
    monkeypatch.setattr(module, "cores", lambda: 2)
    monkeypatch.setenv("GPULIFT_SCRATCH", str(tmp_path / "case"))
    module.scratch.cache_clear()
    allowed = os.sched_getaffinity(0)
    yield module
    os.sched_setaffinity(0, allowed)
    module.scratch.cache_clear()


def made(pipeline: Any, arm: str, point: dict[str, Any], gpu: int | None = None) -> Any:
    """The arm, or a skip of the test where its package is missing."""
    if arm in ON_HOST[2:]:
        pytest.importorskip("simplejpeg")
    return pipeline.make(arm, point, 7, gpu)


def take_steps(arm: Any, steps: int) -> None:
    """As many as reach each sample."""
    for _ in range(steps):
        arm.step()


@pytest.mark.parametrize("arm", ON_HOST)
def test_every_arm_keeps_the_order_beyond_an_epoch(pipeline: Any, arm: str) -> None:
    found = made(pipeline, arm, ALL_CORES)
    for _ in range(3):  # more rounds than an epoch has
        found.step()
        found.synchronize()
        found.rest()
    assert found.error() <= found.tolerance
    assert found.items == (2 if arm == "naive" else 4)
    assert "emulated" in found.notes["step"]


def test_the_metrics_say_where_the_time_goes_and_what_the_loader_gives(pipeline: Any) -> None:
    found = made(pipeline, "workers", ALL_CORES)
    metrics = found.metrics()
    found.rest()
    assert 0 < metrics["data_wait_share"] < 1
    assert 0 < metrics["accelerator_busy_share"] <= 1
    assert metrics["loader_images_per_s"] > 0
    assert metrics["loader_images_per_cpu_s"] > 0


def test_a_crop_is_new_in_every_epoch_and_the_same_in_every_arm(pipeline: Any) -> None:
    crop = pipeline.Cropping(500, 375)
    places = [crop((epoch, 3)) for epoch in range(20)]
    assert len(set(places)) == 20
    assert {place.flipped for place in places} == {True, False}
    assert places == [pipeline.Cropping(500, 375)((epoch, 3)) for epoch in range(20)]


def test_every_crop_lies_in_its_image(pipeline: Any) -> None:
    for width, height in ((500, 375), (64, 64), (3, 2)):
        crop = pipeline.Cropping(width, height)
        for number in range(300):
            place = crop((0, number))
            assert 0 <= place.left <= width - place.width
            assert 0 <= place.top <= height - place.height
            assert min(place.width, place.height) >= 1


def test_another_image_and_a_missing_flip_are_found(pipeline: Any, tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    files = pipeline.stored_files(tmp_path / "case", pipeline.SOURCES["resnet18"], 7)
    read = pipeline.one_by_one(files)
    wanted = pipeline.reference(read, pipeline.Cropping(64, 64), 32)
    first, second = wanted((0, 0)), wanted((0, 1))
    assert pipeline.largest_difference(first[None], [first]) == 0
    for other in (second, first.flip(2), first + 0.1):
        assert pipeline.largest_difference(other[None], [first]) > pipeline.GPU_TOLERANCE
    with pytest.raises(ValueError, match="a batch of 1 images, not 2"):
        pipeline.largest_difference(first[None], [first, second])


def test_a_pack_gives_every_file_and_leaves_none(pipeline: Any, tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    files = pipeline.stored_files(tmp_path / "case", pipeline.SOURCES["resnet18"], 7)
    read = pipeline.packed(files)
    for number, file in enumerate(files):
        assert read(number) == file.read_bytes()
    assert [one.name for one in (tmp_path / "case").iterdir()] == ["images"]


def test_a_truncated_jpeg_is_named_and_fails_the_arm(pipeline: Any) -> None:
    made(pipeline, "naive", ALL_CORES)
    images = pipeline.scratch() / "images"
    damaged = images / "00005.jpg"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    for arm in ("naive", "workers", "packed"):
        found = made(pipeline, arm, ALL_CORES)
        with pytest.raises(RuntimeError, match=r"sample 5: ") as raised:
            take_steps(found, 8)
        assert "\n" not in str(raised.value)


def test_it_keeps_to_the_cores_of_the_case_and_skips_where_there_are_too_few(
    pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(pipeline.os, "sched_setaffinity", lambda _, cores: kept.append(cores))
    monkeypatch.setattr(pipeline, "usable_cores", lambda: list(range(64)))
    monkeypatch.setattr(pipeline, "cores", lambda: 64)
    assert pipeline.keep_to(4) == 4
    assert pipeline.keep_to("all") == pipeline.MOST_WORKERS
    assert kept == [[0, 1, 2, 3], list(range(pipeline.MOST_WORKERS))]
    monkeypatch.setattr(pipeline, "cores", lambda: 2)
    with pytest.raises(pipeline.Skip, match="this machine has 2 cores, not 4"):
        pipeline.keep_to(4)


def test_decoding_on_the_gpu_is_skipped_without_one(pipeline: Any) -> None:
    with pytest.raises(pipeline.Skip, match="there is no GPU"):
        made(pipeline, "gpu_decode", ALL_CORES)


def test_files_of_a_batch_arrive_in_one_tensor_with_their_sizes(pipeline: Any) -> None:
    keys, (same_keys, sizes, everything) = pipeline.joined([((0, 4), b"abc"), ((0, 2), b"de")])
    assert keys == same_keys == [(0, 4), (0, 2)]
    assert sizes == [3, 2]
    assert bytes(everything.numpy()) == b"abcde"


def test_every_arm_has_a_rung_and_every_model_a_source(pipeline: Any) -> None:
    assert list(pipeline.RUNGS) == pipeline.TECHNIQUE["arms"] == list(ARMS)
    assert list(pipeline.SOURCES) == pipeline.TECHNIQUE["sweep"]["model"]
