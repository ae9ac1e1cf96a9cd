"""input/pipeline: every rung gives the same images in the same order; what is wrong is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from gpulift_work import feeding  # noqa: E402
from technique_script import load, manifest  # noqa: E402

ARMS = manifest(__file__)["arms"]
ON_HOST = ARMS[:3]
POINT = {"model": "emulated", "cores": "all"}


@pytest.fixture(name="pipeline")
def pipeline_script(
    two_cores: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: list[Path]
) -> Any:
    """The script on two cores, with few small images."""
    module: Any = load(__file__)
    monkeypatch.setattr(module, "FILES", 8)
    monkeypatch.setattr(module, "stored", lambda *_: files[:8])
    monkeypatch.setattr(module, "scratch", lambda: tmp_path)
    monkeypatch.setattr(module, "LEAST_IMAGES", 2)
    monkeypatch.setattr(module, "LOOKED_IMAGES", 2)
    monkeypatch.setattr(feeding, "EMULATED_BATCH", 2)
    monkeypatch.setattr(feeding, "EMULATED_S", 1e-3)
    return module


@pytest.mark.parametrize("arm", ON_HOST)
def test_every_arm_keeps_the_order_beyond_an_epoch(pipeline: Any, arm: str) -> None:
    found = pipeline.make(arm, POINT, 7, None)
    for _ in range(5):  # more than an epoch has
        found.before()
        found.step()
        found.synchronize()
        found.rest()
    assert found.error() <= manifest(__file__)["check"]["tolerance"]
    assert found.items == (2 if arm == "naive" else 4)
    assert "emulated" in found.notes["step"]


def test_while_a_step_is_taken_the_next_batch_is_loaded(
    pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    take = pipeline.ProcessLoader.take

    def noted(loader: Any) -> Any:
        calls.append("load")
        return take(loader)

    def step_behind(*_: Any) -> feeding.Step:
        train, wait = lambda _: calls.append("step"), lambda: calls.append("wait")
        return feeding.Step(2, torch.device("cpu"), train, wait, "noted")

    monkeypatch.setattr(pipeline.ProcessLoader, "take", noted)
    monkeypatch.setattr(pipeline, "step_behind", step_behind)
    found = pipeline.make("naive", POINT, 7, None)
    found.before()
    assert calls[-2:] == ["load", "wait"]
    calls.clear()
    found.step()
    assert calls == ["step", "load"]


def test_the_loop_without_workers_has_one_thread(
    pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "leave_a_core_free", lambda: torch.set_num_threads(2))
    assert pipeline.make("workers", POINT, 7, None).notes["torch_threads"] == "2"
    assert pipeline.make("naive", POINT, 7, None).notes["torch_threads"] == "1"


def test_the_metrics_say_where_the_time_goes_and_leave_the_step_as_it_was(pipeline: Any) -> None:
    found = pipeline.make("workers", POINT, 7, None)
    found.before()
    found.step()
    found.rest()
    metrics = found.metrics()
    assert 0 < metrics["data_wait_share"] < 1
    assert 0 < metrics["step_rate_share"] <= 1
    assert metrics["step_alone_s"] >= 1e-3
    assert metrics["loader_images_per_s"] > 0
    assert metrics["loader_cpu_s_per_image"] > 0
    found.before()
    found.step()
    found.rest()
    assert found.error() <= manifest(__file__)["check"]["tolerance"]


@pytest.mark.parametrize("arm", ["naive", "tensors"])  # either decoder, with and without workers
def test_a_truncated_jpeg_is_named_and_fails_the_arm(
    pipeline: Any,
    monkeypatch: pytest.MonkeyPatch,
    files: list[Path],
    tmp_path: Path,
    arm: str,
) -> None:
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(files[5].read_bytes()[:500])
    monkeypatch.setattr(pipeline, "stored", lambda *_: [*files[:5], damaged, *files[6:8]])
    monkeypatch.setattr(pipeline, "LEAST_IMAGES", 8)
    found = pipeline.make(arm, POINT, 7, None)
    with pytest.raises(RuntimeError, match=r"sample 5: ") as raised:
        found.before()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("arm", ARMS[3:])
def test_what_is_taken_to_a_gpu_is_skipped_where_the_step_is_emulated(
    pipeline: Any, arm: str
) -> None:
    with pytest.raises(pipeline.Skip, match="takes nothing to a GPU"):
        pipeline.make(arm, POINT, 7, None)
