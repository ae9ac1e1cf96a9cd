"""input/loader_libraries: every library brings each image once an epoch; what is wrong is found."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work import feeding, loaders  # noqa: E402
from gpulift_worker import Skip  # noqa: E402
from technique_script import load, manifest  # noqa: E402

MANIFEST = manifest(__file__)
POINT = {"model": "emulated", "cores": "all"}
FILES, BATCH, WORKERS = 16, 2, 2


@pytest.fixture(name="libraries")
def script(two_cores: None, monkeypatch: pytest.MonkeyPatch, disk: Path, files: list[Path]) -> Any:
    """The script on two cores, with few small images."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "FILES", FILES)
    monkeypatch.setattr(module, "stored", lambda *_: files)
    monkeypatch.setattr(module, "LEAST_IMAGES", BATCH)
    monkeypatch.setattr(module, "LOOKED_IMAGES", BATCH)
    monkeypatch.setattr(loaders, "LOOK_S", 0.5)
    monkeypatch.setattr(loaders, "SILENT_S", 5)
    monkeypatch.setattr(feeding, "EMULATED_BATCH", BATCH)
    monkeypatch.setattr(feeding, "EMULATED_S", 1e-3)
    return module


def make(libraries: Any, arm: str) -> Any:
    """An arm; the test is skipped where its library is missing."""
    try:
        return libraries.make(arm, POINT, 7, None)
    except Skip as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_every_library_brings_all_images_in_each_epoch(libraries: Any, arm: str) -> None:
    found = make(libraries, arm)
    for _ in range(5):  # with what is made ahead, three epochs
        found.before()
        found.step()
        found.synchronize()
        found.rest()
        assert found.error() <= MANIFEST["check"]["tolerance"]
    assert found.items == WORKERS * BATCH
    assert len(found.versions) == 1
    metrics = found.metrics()
    assert 0 < metrics["data_wait_share"] < 1
    assert metrics["loader_cpu_s_per_image"] > 0
    assert "step_alone_s" not in metrics  # which would make a ladder of the arms


@pytest.mark.parametrize("arm", ["webdataset", "streaming"])
def test_workers_that_do_not_divide_the_images_never_wait_for_one_another_in_vain(
    libraries: Any, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    monkeypatch.setattr(feeding, "cores", lambda: 3)
    found = make(libraries, arm)
    for _ in range(3):
        found.before()
        found.step()
        found.rest()
    assert found.items == 3 * BATCH
    assert found.notes["files"].startswith("12 ")


def step_until_it_shows(arm: Any) -> None:
    """What is wrong with it."""
    for _ in range(20):
        arm.step()
        arm.rest()


@pytest.mark.parametrize("arm", MANIFEST["arms"])
def test_a_truncated_image_fails_the_arm_in_one_line(
    libraries: Any,
    monkeypatch: pytest.MonkeyPatch,
    files: list[Path],
    tmp_path: Path,
    arm: str,
) -> None:
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(files[5].read_bytes()[:500])
    monkeypatch.setattr(libraries, "stored", lambda *_: [*files[:5], damaged, *files[6:]])
    with pytest.raises(RuntimeError) as raised:
        step_until_it_shows(make(libraries, arm))
    if arm != "dali":  # which names what its operator does in many lines
        assert "sample 5: " in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_process_of_threads_that_is_killed_fails_the_arm(
    libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spdl: list[Any] = []
    by_spdl = libraries.by_spdl

    def kept(*given: Any) -> Any:
        spdl.append(by_spdl(*given))
        return spdl[0]

    monkeypatch.setitem(libraries.FEEDS, "spdl", kept)
    found = make(libraries, "spdl")
    os.kill(spdl[0].loader.processes[0], signal.SIGKILL)
    with pytest.raises(RuntimeError) as raised:
        step_until_it_shows(found)
    assert "\n" not in str(raised.value)


def test_a_missing_library_is_a_skip_that_says_what_installs_it(
    libraries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(libraries.LIBRARIES, "spdl", ("no_such_library", "spdl-core"))
    with pytest.raises(Skip, match="no_such_library is not installed") as raised:
        libraries.make("spdl", POINT, 7, None)
    assert "pip install 'spdl-core'" in raised.value.remedy


def test_full_shared_memory_is_a_skip(libraries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaders, "SHARED_MEMORY", "/dev/none")
    with pytest.raises(Skip, match="/dev/none"):
        libraries.make("dataloader", POINT, 7, None)
