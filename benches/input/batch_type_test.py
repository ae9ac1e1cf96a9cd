"""input/batch_type: all arms make the same batch, and a batch that is wrong is found."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

SCRIPT = Path(__file__).with_name("batch_type.py")
sys.path.insert(0, str(SCRIPT.parents[2] / "core" / "python"))

from gpulift_manifest import manifest_of  # noqa: E402


def load() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("batch_type_under_test", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


batch_type = load()
MANIFEST = manifest_of("input/batch_type", SCRIPT)
TOLERANCE = MANIFEST["check"]["tolerance"]
GPUS = [
    None,
    pytest.param(0, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def pixels(count: int) -> list[Any]:
    """Images without any two that are alike."""
    generator = torch.Generator().manual_seed(7)
    shape = (3, batch_type.SIDE, batch_type.SIDE)
    return [torch.randint(256, shape, dtype=torch.uint8, generator=generator) for _ in range(count)]


def batches(arm: str, samples: list[Any]) -> Any:
    """Of the arm, without a GPU."""
    return batch_type.Batches(arm, samples, lambda one: one, False)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("given", ["pixels", "jpegs"])
@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_an_arm_passes_its_check(name: str, given: str, gpu: int | None) -> None:
    arm = batch_type.make(name, {"given": given, "images": 3}, 7, gpu)
    arm.step()
    arm.synchronize()
    assert arm.error() <= TOLERANCE
    assert (arm.items, arm.item) == (3, "image")
    assert arm.notes["device"].startswith("cuda" if gpu is not None else "none")


def test_only_the_first_arm_makes_fp32_on_the_host() -> None:
    made = {}
    for arm in MANIFEST["arms"]:
        one = batches(arm, pixels(2))
        one.step()
        made[arm] = one._batch.dtype
    assert made == {
        "fp32_on_host": torch.float32,
        "uint8": torch.uint8,
        "uint8_kept_buffer": torch.uint8,
    }


def test_only_the_kept_buffer_is_used_again() -> None:
    for arm in MANIFEST["arms"]:
        one = batches(arm, pixels(2))
        one.step()
        first = one._batch
        one.step()
        kept = one._batch.data_ptr() == first.data_ptr()
        assert kept == (arm == "uint8_kept_buffer"), arm


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
