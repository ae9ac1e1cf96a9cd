"""input/batch_type: all arms make the same batch, and a batch that is wrong is found."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from technique_script import load, manifest  # noqa: E402

batch_type = load(__file__)
MANIFEST = manifest(__file__)
TOLERANCE = MANIFEST["check"]["tolerance"]


def pixels(count: int) -> list[Any]:
    """Images without any two that are alike."""
    generator = torch.Generator().manual_seed(7)
    shape = (3, batch_type.SIDE, batch_type.SIDE)
    return [torch.randint(256, shape, dtype=torch.uint8, generator=generator) for _ in range(count)]


def batches(arm: str, samples: list[Any]) -> Any:
    """Of the arm, for the host as the device."""
    return batch_type.Batches(arm, samples, lambda one: one, torch.device("cpu"))


@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_every_arm_makes_batches_of_files_too(name: str) -> None:
    arm = batch_type.make(name, {"given": "jpegs", "images": 3}, 7, None)
    arm.step()
    arm.synchronize()
    assert arm.error() <= TOLERANCE
    assert (arm.items, arm.item) == (3, "image")


@pytest.mark.parametrize(
    ("arm", "brought", "kept"),
    [
        ("fp32_on_host", torch.float32, False),
        ("uint8", torch.uint8, False),
        ("uint8_kept_buffer", torch.uint8, True),
    ],
)
def test_all_arms_end_in_fp32_which_the_first_alone_brings_to_the_device(
    monkeypatch: pytest.MonkeyPatch, arm: str, brought: Any, kept: bool
) -> None:
    stack, stacked = torch.stack, []

    def noted(images: Any, out: Any = None) -> Any:
        stacked.append(stack(images, out=out))
        return stacked[-1]

    one = batches(arm, pixels(2))
    monkeypatch.setattr(torch, "stack", noted)
    one.step()
    one.step()
    assert [batch.dtype for batch in stacked] == [brought] * 2
    assert (stacked[0].data_ptr() == stacked[1].data_ptr()) == kept
    assert one._batch.dtype == torch.float32


def test_without_a_device_there_is_nothing_to_leave_to_it() -> None:
    assert MANIFEST["gpus"] == 1


def test_another_order_another_value_and_no_batch_do_not_pass() -> None:
    one = batches("uint8", pixels(2))
    with pytest.raises(RuntimeError, match="no batch was made"):
        one.error()
    one.step()
    one._batch = one._batch.flip(0)
    assert one.error() > TOLERANCE
    one._batch = one._batch.flip(0)
    assert one.error() <= TOLERANCE
    one._batch[1, 2, 3, 4] += 1
    assert one.error() > TOLERANCE


def test_bytes_where_fp32_is_wanted_and_a_missing_image_are_found() -> None:
    images = pixels(2)
    with pytest.raises(ValueError, match=r"the batch is torch\.uint8\(2, 3, 224, 224\)"):
        batch_type.largest_difference(torch.stack(images), images)
    with pytest.raises(ValueError, match=r"the batch is torch\.float32\(1, 3, 224, 224\)"):
        batch_type.largest_difference(batch_type.normalised(torch.stack(images[:1])), images)
