"""input/batch_type: both arms end as the same FP32, which one alone brings to the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from technique_script import load, manifest  # noqa: E402

MANIFEST = manifest(__file__)


@pytest.fixture(name="batch_type")
def script(two_cores: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script on two cores, with few images."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "FILES", 8)
    monkeypatch.setattr(module, "scratch", lambda: tmp_path)
    return module


@pytest.mark.parametrize("given", ["pixels", "jpegs"])
@pytest.mark.parametrize(
    ("arm", "sent"), [("fp32_in_worker", torch.float32), ("uint8", torch.uint8)]
)
def test_arms_send_their_type_and_end_in_fp32(
    batch_type: Any, arm: str, sent: Any, given: str
) -> None:
    found = batch_type.make(arm, {"given": given, "batch": 4}, 7, None)
    found.before()
    found.step()
    found.synchronize()
    found.rest()
    assert found.error() <= MANIFEST["check"]["tolerance"]
    assert found.items == 8
    assert rounds_of(found).last[1].dtype == sent
    assert found.metrics()["loader_cpu_s_per_image"] > 0


def rounds_of(arm: Any) -> Any:
    """Those that an arm steps."""
    return arm.step.__self__


def test_a_level_more_in_one_image_is_found(
    batch_type: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = batch_type.Normalising.__call__

    def wrong(self: Any, images: Any) -> Any:
        images[1] ^= 1
        return right(self, images)

    monkeypatch.setattr(batch_type.Normalising, "__call__", wrong)
    found = batch_type.make("uint8", {"given": "pixels", "batch": 4}, 7, None)
    found.step()
    assert found.error() > MANIFEST["check"]["tolerance"]
    found.rest()
