"""input/prefetch: whole epochs of every arm, in their order, by workers that are kept or new."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work import feeding  # noqa: E402
from technique_script import load, manifest  # noqa: E402

ARMS = manifest(__file__)["arms"]
POINT = {"model": "resnet18", "images": "alike"}
BATCH = 2


@pytest.fixture(name="step")
def step_that_does_nothing() -> feeding.Step:
    """With batches of two."""
    return feeding.Step(BATCH, torch.device("cpu"), lambda _: None, lambda: None, "nothing")


@pytest.fixture(name="prefetch")
def prefetch_script(
    two_cores: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    files: list[Path],
    step: feeding.Step,
) -> Any:
    """The script on two cores, with few images."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "FILES", 4)
    monkeypatch.setattr(module, "BATCHES", {"resnet18": 5})
    monkeypatch.setattr(module, "stored", lambda *_: files[:4])
    monkeypatch.setattr(module, "scratch", lambda: tmp_path)
    monkeypatch.setattr(module, "step_behind", lambda *_: step)
    return module


@pytest.mark.parametrize("arm", ARMS)
def test_every_epoch_has_all_batches_in_their_order(prefetch: Any, arm: str) -> None:
    found = prefetch.make(arm, POINT, 7, None)
    for _ in range(2):
        found.step()
        assert found.error() <= manifest(__file__)["check"]["tolerance"]
    assert found.items == 5 * BATCH


def epochs(prefetch: Any, arm: str, read: Any, step: feeding.Step) -> Any:
    """Of two batches, by one worker."""
    return prefetch.Epochs(arm, read, [[(0, 0), (0, 1)], [(0, 2), (0, 3)]], 1, step)


def test_kept_workers_are_the_same_in_the_next_epoch_and_new_ones_are_not(prefetch: Any) -> None:
    for arm, processes in (("depth_2", 1), ("new_workers", 2)):
        seen: set[int] = set()
        step = feeding.Step(BATCH, torch.device("cpu"), seen.add, lambda: None, "nothing")
        found = epochs(prefetch, arm, lambda _: torch.tensor(os.getpid()), step)
        found._normalise = lambda batch: int(batch[0])
        for _ in range(2):
            found.step()
        assert len(seen - {os.getpid()}) == processes


def test_batches_that_are_wrong_swapped_or_missing_are_found(
    prefetch: Any, step: feeding.Step, files: list[Path]
) -> None:
    read = feeding.pillow_cut(files)
    found = epochs(prefetch, "depth_2", read, step)
    found.step()
    assert found.error(read) < 0.01
    assert found.error(lambda key: read((1, key[1]))) > 0.01
    found._taken.reverse()
    with pytest.raises(RuntimeError, match="2 batches, or not in their turn"):
        found.error(read)
    found._taken.pop()
    with pytest.raises(RuntimeError, match="1 batches"):
        found.error(read)


def test_each_sixteenth_file_is_exchanged_for_a_large_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module: Any = load(__file__)
    asked: list[Any] = []

    def large(folder: Path, *of: Any) -> list[Path]:
        asked.append(of)
        return [folder / str(number) for number in range(of[0])]

    monkeypatch.setattr(module, "stored", large)
    (tmp_path / "images").mkdir()
    files = [tmp_path / "images" / str(number) for number in range(32)]
    found = module.with_large(files, 7)
    assert asked == [(2, 7, 3.0)]
    changed = [number for number in range(32) if found[number] != files[number]]
    assert changed == [0, 16]
    assert found[16] == tmp_path / "large" / "1"


def test_a_killed_worker_fails_the_epoch_in_one_line(prefetch: Any, step: feeding.Step) -> None:
    found = epochs(prefetch, "depth_1", lambda _: threading.Event().wait(), step)
    of_other_tests = {process.pid for process in torch.multiprocessing.active_children()}

    def kill() -> None:
        for process in torch.multiprocessing.active_children():
            if process.pid not in of_other_tests:
                os.kill(process.pid, signal.SIGKILL)

    threading.Timer(0.5, kill).start()
    with pytest.raises(RuntimeError, match=r"^a worker process of the loader was killed"):
        found.step()
