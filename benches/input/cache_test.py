"""input/cache: what each cache asks the store for, and when it pays."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from gpulift_work import samples
from gpulift_worker import Arm
from technique_script import load, made, manifest

cache = load(__file__)
MANIFEST = manifest(__file__)


@pytest.fixture(autouse=True)
def folder(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case's scratch folder, and work of a small size."""
    monkeypatch.setattr(cache, "COUNT", 5)
    monkeypatch.setattr(cache, "STORES", {"100MB_s": (1e12, 0.0), "1GB_s": (1e12, 0.0)})
    return disk


def make(name: str, point: dict[str, Any]) -> Arm:
    """An arm of the case, after the step that is checked."""
    return made(cache, name, point)


FIRST = {"store": "1GB_s", "epoch": "first"}
LATER = {"store": "1GB_s", "epoch": "later"}


@pytest.mark.parametrize(
    ("name", "first", "later"),
    [
        ("remote_each_epoch", 5, 5),
        ("read_ahead_16", 5, 5),
        ("local_copy", 5, 0),
        ("ram_cache", 5, 0),
    ],
)
def test_a_cache_asks_the_store_in_the_first_epoch_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, first: int, later: int
) -> None:
    asked: list[int] = []
    read = samples.ThrottledReader.read

    def counted(self: Any, descriptor: int, size: int, offset: int) -> bytes:
        asked.append(offset)
        return bytes(read(self, descriptor, size, offset))

    monkeypatch.setattr(samples.ThrottledReader, "read", counted)
    for point, requests in ((FIRST, first), (LATER, later)):
        arm = make(name, point)
        for _ in range(2):
            arm.before()
            asked.clear()
            arm.step()
            assert len(asked) == requests
            assert arm.error is not None
            assert arm.error() == 0


@pytest.mark.parametrize(
    ("name", "in_flight"),
    [("remote_each_epoch", 1), ("read_ahead_16", 5), ("local_copy", 5), ("ram_cache", 5)],
)
def test_all_but_the_control_have_requests_in_flight_while_they_fill(
    monkeypatch: pytest.MonkeyPatch, name: str, in_flight: int
) -> None:
    together = threading.Barrier(in_flight, timeout=30)
    read = samples.ThrottledReader.read

    def meeting(self: Any, descriptor: int, size: int, offset: int) -> bytes:
        together.wait()
        return bytes(read(self, descriptor, size, offset))

    monkeypatch.setattr(samples.ThrottledReader, "read", meeting)
    assert make(name, FIRST).notes["load"].startswith("emulated")


def test_a_local_copy_is_cold_in_a_later_epoch(folder: Path) -> None:
    arm = make("local_copy", LATER)
    assert arm.precondition is not None
    assert (folder / "local_copy" / "copy").stat().st_size == 5 * cache.SIZE
    assert make("local_copy", FIRST).precondition is None
    assert make("ram_cache", LATER).precondition is None  # it has nothing on the disk


def test_a_copy_that_is_cut_off_names_the_sample(folder: Path) -> None:
    arm = make("local_copy", LATER)
    with open(folder / "local_copy" / "copy", "ab") as file:
        file.truncate(4 * cache.SIZE + 10)
    with pytest.raises(ValueError, match=f"sample 4 is truncated: 10 of {cache.SIZE} bytes"):
        arm.step()


@pytest.mark.parametrize("name", ["local_copy", "ram_cache"])
def test_metrics_say_when_a_cache_pays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([10.0, 13.0, 4.0] * cache.EPOCHS)
    monkeypatch.setattr(cache, "duration_s", lambda work: next(times_s))
    assert make(name, LATER).metrics() == {
        "remote_epoch_s": 10.0,
        "first_epoch_s": 13.0,
        "later_epoch_s": 4.0,
        "break_even_epochs": 1.5,
    }


def test_a_cache_that_is_slower_than_the_store_never_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([4.0, 5.0, 4.0] * cache.EPOCHS)
    monkeypatch.setattr(cache, "duration_s", lambda work: next(times_s))
    assert "break_even_epochs" not in make("local_copy", LATER).metrics()


def test_after_metrics_a_later_epoch_still_comes_from_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arm = make("ram_cache", LATER)
    arm.metrics()
    monkeypatch.setattr(samples.ThrottledReader, "read", None)  # nobody may call it
    arm.step()


@pytest.mark.parametrize("name", MANIFEST["arms"])
def test_a_store_slower_than_the_timeout_is_said(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cache, "STORES", {"1GB_s": (1e9, 60.0)})
    with pytest.raises(TimeoutError, match="the timeout is 30 s"):
        make(name, FIRST)
