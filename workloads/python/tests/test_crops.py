"""crops: what is resampled all at once is what torchvision cuts one by one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work.crops import cropped, weights_of  # noqa: E402
from gpulift_work.feeding import PIXELS, Place  # noqa: E402

PLACES = [
    Place(top=3, left=10, height=400, width=300, flipped=False),  # shrinks both sides
    Place(top=0, left=0, height=60, width=500, flipped=True),  # widens one, and shrinks the other
    Place(top=40, left=7, height=224, width=224, flipped=True),
    Place(top=1, left=2, height=1, width=30, flipped=False),
]


def images() -> list[Any]:
    generator = torch.Generator().manual_seed(7)
    sizes = [(3, 420, 320), (3, 60, 500), (3, 300, 240), (3, 90, 77)]
    return [torch.randint(256, size, dtype=torch.uint8, generator=generator) for size in sizes]


def test_crops_are_those_of_torchvision() -> None:
    given = images()
    found = cropped(given, PLACES)
    assert found.shape == (4, 3, PIXELS, PIXELS)
    for one, image, place in zip(found, given, PLACES, strict=True):
        expected = place.cut(image).float()
        assert (one - expected).abs().max() <= 1, "bytes are rounded between rows and columns"
        assert (one - expected).abs().mean() < 0.5


def test_a_crop_one_pixel_off_is_another() -> None:
    given = images()
    moved = [Place(one.top, one.left + 1, one.height, one.width - 1, one.flipped) for one in PLACES]
    off = (cropped(given, moved) - cropped(given, PLACES)).abs().mean(dim=(1, 2, 3))
    assert off.min() > 1


def test_weights_share_out_a_pixel_and_leave_out_what_is_padding() -> None:
    weights = weights_of(torch.tensor([10, 400]), 400)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, PIXELS))
    assert (weights >= 0).all()
    assert (weights[0, :, 10:] == 0).all()
