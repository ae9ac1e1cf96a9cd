"""What photographs go through: the same cut in every arm, and what is wrong is found."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work import feeding  # noqa: E402
from gpulift_worker import Skip  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision import io  # noqa: E402

TOLERANCE = 0.5


@pytest.fixture(name="files", scope="module")
def few_small_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twenty-four, of which half are different."""
    return feeding.stored(tmp_path_factory.mktemp("case"), 24, 7, scale=0.25)


def test_files_are_written_once_and_nothing_else_is_left(files: list[Path]) -> None:
    folder = files[0].parent.parent
    assert feeding.stored(folder, 24, 8) == files
    assert [one.name for one in folder.iterdir()] == ["images"]
    assert files[0].read_bytes() == files[12].read_bytes()


def test_a_cut_is_new_in_every_epoch_and_the_same_in_every_arm(files: list[Path]) -> None:
    by_pillow, by_tensor = feeding.pillow_cut(files), feeding.tensor_cut(files)
    cuts = [by_pillow((epoch, 3)) for epoch in range(5)]
    assert len({one.numpy().tobytes() for one in cuts}) == 5
    assert by_pillow((2, 3)).equal(cuts[2])
    for number in range(12):
        wanted = by_pillow((1, number))
        found = feeding.NORMALISED(by_tensor((1, number)))
        assert feeding.largest_difference(found[None], [wanted]) <= TOLERANCE


def test_a_file_comes_with_the_place_that_other_arms_cut(files: list[Path]) -> None:
    by_tensor, load = feeding.tensor_cut(files), feeding.encoded(files)
    keys = [(1, number) for number in range(12)]
    told, (sizes, everything, places) = feeding.joined([(key, load(key)) for key in keys])
    assert told == keys
    assert {place.flipped for place in places} == {True, False}
    for key, file, place in zip(keys, everything.split(sizes), places, strict=True):
        assert bytes(file.numpy()) == files[key[1]].read_bytes()
        image = io.decode_jpeg(file, mode=io.ImageReadMode.RGB)
        assert place.cut(image).equal(by_tensor(key))


def test_bytes_become_on_the_device_what_the_transforms_give(files: list[Path]) -> None:
    pixels = torch.stack([feeding.pillow_cut(files)((0, number)) for number in range(2)])
    found = feeding.Normalising(torch.device("cpu"))(pixels)
    torch.testing.assert_close(found, feeding.NORMALISED(pixels))


def test_another_image_a_missing_flip_and_another_dtype_are_found(files: list[Path]) -> None:
    load = feeding.pillow_cut(files)
    first, second = load((0, 0)), load((0, 1))
    good = feeding.NORMALISED(first)[None]
    assert feeding.largest_difference(good, [first]) < 1e-3
    for other in (second, first.flip(2), (first.int() + 1).clamp(0, 255).byte()):
        assert feeding.largest_difference(feeding.NORMALISED(other)[None], [first]) > TOLERANCE
    for wrong in (good.double(), good[:, :, 1:], first[None]):
        with pytest.raises(ValueError, match=r"the batch is torch\."):
            feeding.largest_difference(wrong, [first])
    with pytest.raises(ValueError, match="not of 2"):
        feeding.largest_difference(good, [first, second])


def test_a_grey_file_is_three_channels_by_either_way(files: list[Path], tmp_path: Path) -> None:
    grey = tmp_path / "grey.jpg"
    Image.open(files[0]).convert("L").save(grey)
    for load in (feeding.pillow_cut([grey]), feeding.tensor_cut([grey])):
        assert load((0, 0)).shape == (3, feeding.PIXELS, feeding.PIXELS)


def test_it_keeps_to_the_cores_of_the_case_and_skips_where_there_are_too_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: kept.append(cores))
    monkeypatch.setattr(feeding, "usable_cores", lambda: list(range(64)))
    monkeypatch.setattr(feeding, "cores", lambda: 64)
    assert feeding.keep_to(4) == 4
    assert feeding.keep_to("all") == feeding.MOST_CORES
    assert kept == [[0, 1, 2, 3], list(range(feeding.MOST_CORES))]
    monkeypatch.setattr(feeding, "cores", lambda: 2)
    with pytest.raises(Skip, match="this machine has 2 cores, not 4"):
        feeding.keep_to(4)


def test_a_model_has_no_step_without_a_gpu() -> None:
    with pytest.raises(Skip, match="resnet50_256"):
        feeding.step_behind("resnet50_256", 7, None)


def test_threads_that_share_a_generator_cut_as_one_does(files: list[Path]) -> None:
    keys = [(epoch, number) for epoch in range(8) for number in range(24)]
    for load in (feeding.pillow_cut(files), feeding.tensor_cut(files)):
        with ThreadPoolExecutor(4) as pool:
            cuts = list(pool.map(load, keys))
        assert all(one.equal(load(key)) for key, one in zip(keys, cuts, strict=True))


def test_a_model_of_small_images_is_given_them_smaller() -> None:
    step = feeding.step_behind("resnet18", 7, None)
    step.train(torch.rand(step.batch, 3, feeding.PIXELS, feeding.PIXELS))
    assert step.said == "training on the processor"
    with pytest.raises(ValueError, match="batch_size"):
        step.train(torch.rand(2, 3, feeding.PIXELS, feeding.PIXELS))
