"""input/workers: all kinds of workers give the same images in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work import feeding  # noqa: E402
from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

ARMS = manifest(__file__)["arms"]
TOLERANCE = manifest(__file__)["check"]["tolerance"]
POINT = {"model": "resnet18", "workers": "all_cores"}
BATCH = 2


@pytest.fixture(name="trained")
def batches_that_were_trained_on() -> list[Any]:
    """In their order."""
    return []


@pytest.fixture(name="workers")
def workers_script(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    files: list[Path],
    trained: list[Any],
) -> Any:
    """The script with few images, three cores and a step that keeps them."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "FILES", 4)
    monkeypatch.setattr(module, "stored", lambda *_: files[:4])
    monkeypatch.setattr(module, "scratch", lambda: tmp_path)
    for where in (module, feeding):
        monkeypatch.setattr(where, "cores", lambda: 3)
    step = feeding.Step(BATCH, torch.device("cpu"), trained.append, lambda: None, "kept")
    monkeypatch.setattr(module, "step_behind", lambda *_: step)
    return module


@pytest.mark.parametrize("arm", ARMS)
def test_many_workers_keep_the_order_beyond_an_epoch(workers: Any, arm: str) -> None:
    found = workers.make(arm, POINT, 7, None)
    for _ in range(3):
        found.before()
        found.step()
        found.rest()
    assert found.error() <= TOLERANCE
    assert found.items == BATCH * (1 if arm == "in_process" else 3)
    assert found.metrics()["step_alone_s"] >= 0


def test_all_arms_train_on_the_same_images(workers: Any, trained: list[Any]) -> None:
    firsts = []
    for arm in ARMS:
        trained.clear()
        found = workers.make(arm, POINT, 7, None)
        found.before()
        found.step()
        firsts.append(trained[0])
    assert all(one.equal(firsts[0]) for one in firsts)
    assert firsts[0].dtype == torch.float32


def test_an_arm_that_loads_another_image_does_not_pass(
    workers: Any, monkeypatch: pytest.MonkeyPatch, files: list[Path]
) -> None:
    right = feeding.pillow_cut(files)
    loaded: list[Any] = []

    def load_other(key: tuple[int, int]) -> Any:
        loaded.append(key)
        return right((0, (key[1] + (len(loaded) == 2 * BATCH)) % 4))  # the last one trained on

    monkeypatch.setattr(workers, "pillow_cut", lambda _: load_other)
    found = workers.make("in_process", POINT, 7, None)
    found.before()
    found.step()
    assert found.error() > TOLERANCE


def test_more_workers_than_cores_are_a_skip(workers: Any) -> None:
    assert workers.workers_of("all_cores") == 3
    assert workers.workers_of(2) == 2
    with pytest.raises(Skip, match="4 workers need as many cores, and there are 3"):
        workers.make("threads", {"model": "resnet18", "workers": 4}, 7, None)
