"""precision/training_step: its arms train alike, in their own formats, and count their work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work.training import TWINS, Training, work_of_step  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

TOY = {"model": "gpt_toy"}
CPU = torch.device("cpu")
ARMS = ["fp32", "tf32", "bf16", "fp16", "all_bf16"]


@pytest.fixture(name="switches", autouse=True)
def switches_that_are_put_back() -> Iterator[Any]:
    """torch.backends: a process has one arm, and tests have many."""
    cudnn = torch.backends.cudnn.allow_tf32
    yield torch.backends
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = cudnn
    torch.backends.cudnn.benchmark = False


def test_an_arm_counts_its_tokens(technique: ModuleType) -> None:
    arm = technique.make("bf16", TOY, 7, None)
    assert (arm.items, arm.item, arm.roof) == (8 * 32, "token", "")
    masked = 8 * 6 * 2 * 64 * 32**2  # rows x 6 x layers x width x tokens^2: half of all scores
    assert arm.flops == counted_flops("gpt_toy") - masked
    assert arm.metrics() == {}, "the host counts no memory of a device"


def tolerance_of(technique: ModuleType, arm: str) -> float:
    found: float = technique.TOLERANCES.get(arm, technique.TECHNIQUE["check"]["tolerance"])
    return found


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_is_as_exact_as_its_format_and_no_less(technique: ModuleType, name: str) -> None:
    job = technique.Job("gpt_toy", CPU, 7, name)
    tolerance = tolerance_of(technique, name)
    assert job.error() <= tolerance
    loss = job.training.loss_of
    job.training.loss_of = lambda *batch: 1.3 * loss(*batch)
    job.loss_tolerance = 1.0
    assert job.error() > tolerance


@pytest.mark.parametrize("name", ARMS)
def test_steps_without_an_update_are_found(technique: ModuleType, name: str) -> None:
    job = technique.Job("gpt_toy", CPU, 7, name)
    job.training.update = lambda: None
    with pytest.raises(Exception, match=r"losses of 5 steps are 0\.\d+ from TF32's"):
        job.error()


@pytest.mark.parametrize("name", ARMS)
def test_the_format_is_the_one_difference(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, switches: Any, name: str
) -> None:
    arm = technique.make(name, TOY, 7, None)
    arm.error()
    allowed = (switches.cuda.matmul.allow_tf32, switches.cudnn.allow_tf32)
    assert allowed == (name != "fp32", True), "as before the check"
    assert not switches.cudnn.benchmark
    assert ("no master weights" in arm.notes.get(name, "")) == (name == "all_bf16")
    kinds = set()
    linear = torch.nn.Linear.forward

    def noted(layer: Any, given: Any) -> Any:
        found = linear(layer, given)
        kinds.add((layer.weight.dtype, found.dtype))
        return found

    monkeypatch.setattr(torch.nn.Linear, "forward", noted)
    arm.rest()
    arm.wake()
    weights = torch.bfloat16 if name == "all_bf16" else torch.float32
    products = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name, weights)
    assert kinds == {(weights, products)}


def test_a_scale_that_is_too_large_is_lowered_before_the_check(technique: ModuleType) -> None:
    job = technique.Job("gpt_toy", CPU, 7, "fp16")
    job.training.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    assert job.error() <= tolerance_of(technique, "fp16")
    assert job.training.scaler.get_scale() < 2.0**40


def test_channels_stay_last_over_a_rest(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setitem(TWINS, "resnet50_256", replace(TWINS["resnet50_256"], batch=1))
    job = technique.Job("resnet50_256", CPU, 7, "all_bf16")
    weight = job.training.model.layer1[0].conv2.weight
    before = weight.detach().clone()
    job.rest()
    assert weight.numel() == 0
    job.begin()
    assert weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(weight.detach(), before)


def test_work_is_that_of_the_arms_in_cpp(technique: ModuleType) -> None:
    images = {"flops": 2 * 3.110281936896e12, "items": 256, "item": "image"}
    assert work_of_step("resnet50_256") == images
    assert work_of_step("gpt2") == {"flops": 6.537477095424e12, "items": 8192, "item": "token"}


def test_roofs_are_of_what_most_products_are_in(technique: ModuleType) -> None:
    assert [technique.roof_of(arm, "llama_1b") for arm in ARMS] == [
        f"gemm/{name}" for name in ("fp32", "tf32", "bf16", "fp16", "bf16")
    ]
    assert technique.roof_of("fp32", "resnet50_256") == "gemm/tf32"


def test_work_is_what_torch_counts(technique: ModuleType) -> None:
    pytest.importorskip("torchvision")
    images = work_of_step("resnet50_256")
    assert images["flops"] / images["items"] == counted_flops("resnet50_256", batch=1)


def counted_flops(name: str, batch: int | None = None) -> int:
    """Of a step without data."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        training = Training(name, torch.device("meta"), 7, plain=True, batch=batch)
        training.loss_of(training.input, training.target).backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", ["tf32", "bf16", "all_bf16"])
def test_a_card_without_the_formats_is_skipped(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(technique, "device_of", lambda gpu: SimpleNamespace(type="cuda"))
    with pytest.raises(Exception, match="the GPU has no TF32 and no BF16"):
        technique.make(name, {"model": "gpt2"}, 7, 0)


@pytest.mark.parametrize("name", ["llama_1b", "vit_l16", "resnet50_256"])
def test_real_sizes_need_a_gpu(technique: ModuleType, name: str) -> None:
    with pytest.raises(Exception, match=f"a training step of {name} takes seconds on a processor"):
        technique.make("bf16", {"model": name}, 7, None)
