"""host/busy_cores: loaders load beside steps alone, as many of them as the arm says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from technique_script import load, manifest, points

busy_cores = load(__file__)
MANIFEST = manifest(__file__)


@pytest.fixture(autouse=True)
def short_looks(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of three cores, on which few files are loaded for a moment."""
    monkeypatch.setattr(busy_cores, "cores", lambda: 3)
    monkeypatch.setattr(busy_cores, "FILES", 4)
    monkeypatch.setattr(busy_cores, "BATCH", 2)
    monkeypatch.setattr(busy_cores, "LOOKED_S", 0.5)


def test_arms_have_the_same_loss_beside_as_many_loaders_as_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    busy: list[bool] = []

    class Counted:
        def __init__(self, count: int, work: Any, *, nice: int) -> None:
            asked.append((count, nice))

        def resume(self) -> None:
            busy.append(True)

        def pause(self) -> None:
            busy.append(False)

    monkeypatch.setattr(busy_cores, "Neighbours", Counted)
    losses = []
    for name in MANIFEST["arms"]:
        arm = busy_cores.make(name, {"bound": "launches"}, 7, None)
        arm.step()
        arm.rest()
        losses.append(arm.value())
        assert busy == [True, False] * 2
        busy.clear()
    assert asked == [(3, 0), (3, 19), (2, 0), (1, 0), (0, 0)]
    assert losses == pytest.approx([losses[0]] * 5, rel=MANIFEST["check"]["tolerance"])


def test_loaders_load_images_beside_the_steps() -> None:
    arm = busy_cores.make("half", {"bound": "launches"}, 7, None)
    arm.step()
    arm.rest()
    assert arm.metrics()["loader_images_per_s"] > 0
    idle = busy_cores.make("idle", {"bound": "launches"}, 7, None)
    assert idle.metrics() == {"loader_images_per_s": 0}


def test_every_arm_and_case_is_known() -> None:
    assert list(busy_cores.LOADERS) == MANIFEST["arms"]
    assert [point["bound"] for point in points(__file__)] == list(busy_cores.MODELS)
