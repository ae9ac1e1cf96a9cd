"""job/step: its arms are rungs of job/ladder, and three steps are enough to find a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import first_steps, jobs  # noqa: E402

TOY = {"model": "llama_toy"}
GPU = SimpleNamespace(type="cuda")


@pytest.fixture(autouse=True)
def switches_that_are_put_back() -> Iterator[None]:
    """A process has one arm, and tests have many."""
    yield
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def test_each_arm_has_all_that_the_one_before_it_has(technique: ModuleType) -> None:
    bf16, compiled, fp8 = (set(technique.SETTINGS[arm]) for arm in technique.TECHNIQUE["arms"])
    assert compiled - bf16 == {"compiled"}
    assert fp8 - compiled == {"fp8"}
    assert bf16 < compiled < fp8


def test_steps_without_an_update_are_found(technique: ModuleType) -> None:
    job = jobs.Job("llama_toy", torch.device("cpu"), 7, technique.SETTINGS["bf16"])
    job.checked_steps = technique.CHECKED_STEPS
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]
    job.training.optimizer.step = lambda: None
    with pytest.raises(Exception, match=r"losses of 3 steps are 0\.\d+ from TF32's"):
        job.error()


def test_a_processor_has_no_fp8(technique: ModuleType) -> None:
    with pytest.raises(Exception, match="products of 8-bit floats need a GPU"):
        technique.make("fp8", TOY, 7, None)


def test_a_card_that_is_too_small_for_the_check_says_what_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = SimpleNamespace(total_memory=25.3e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    first_steps.require_memory("gpt2", GPU)
    with pytest.raises(Exception, match="llama_1b needs 62 GB for its check, this card has 25") as (
        skipped
    ):
        first_steps.require_memory("llama_1b", GPU)
    assert skipped.value.remedy.startswith("take gpt2")  # type: ignore[attr-defined]
    card.total_memory = 85e9
    first_steps.require_memory("llama_1b", GPU)
