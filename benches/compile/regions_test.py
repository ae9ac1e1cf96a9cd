"""compile/regions: each arm compiles its part of the step, and says what that cost."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpulift_case  # noqa: E402
from gpulift_work import training  # noqa: E402

TOY = {"model": "llama_toy"}
CPU = torch.device("cpu")


@pytest.fixture(name="compiled")
def compiling_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was to be compiled, with the mode that was asked for."""
    compiled: list[str] = []

    def compile_nothing(work: Any, mode: str | None = None, **_: Any) -> Any:
        compiled.append(
            f"{getattr(work, '__qualname__', type(work).__name__)} {mode or ''}".strip()
        )
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)
    return compiled


@pytest.mark.parametrize(
    ("arm", "parts"),
    [
        ("layers", ["Module._call_impl"] * 2 + ["of_logits"]),
        ("model", ["Loss"]),
        ("whole_step", ["Loss", "Adam.step"]),
        ("searched", ["Module._call_impl max-autotune-no-cudagraphs"] * 2 + ["of_logits"]),
    ],
)
def test_an_arm_compiles_its_part(
    technique: ModuleType, compiled: list[str], arm: str, parts: list[str]
) -> None:
    job = technique.Job("llama_toy", CPU, 7)
    technique.REGIONS[arm](job.training)
    assert compiled == parts
    assert job.error() < 1e-6


def test_moments_are_the_same_tensors_after_a_rest(technique: ModuleType) -> None:
    job = technique.Job("llama_toy", CPU, 7)
    job.training.step()
    moments = job.moments()
    after_one = [moment.clone() for moment in moments]
    job.training.step()
    job.rest()
    assert sum(moment.untyped_storage().nbytes() for moment in moments) == 0
    job.wake()
    for kept, moment, expected in zip(moments, job.moments(), after_one, strict=True):
        assert kept is moment
        torch.testing.assert_close(moment, expected)


def test_what_compiling_cost_is_told(
    technique: ModuleType, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpulift_case.begin({"seed": 0})
    arm = technique.make("layers", TOY, 7, None)
    arm.step()
    arm.rest()
    assert arm.error() <= technique.TECHNIQUE["check"]["tolerance"]
    found = arm.metrics()
    assert found["cold_start_s"] > 0
    assert found["start_after_reset_s"] > 0
    assert (found["graph_breaks"], found["recompiles"]) == (0, 0)
    assert len(compiled) == 3
    # So that a later launch has what it repeats, without what compiling costs from what is found.
    gpulift_case.begin({"seed": 8, "check_seed": 0, "earlier": found})
    colds: list[bool] = []
    monkeypatch.setattr(technique, "use_cache_of_run", lambda _name, cold: colds.append(cold))
    later = technique.make("layers", TOY, 8, None)
    assert later.error() < 1e-6
    assert "cold_start_s" not in later.metrics()
    assert colds == [False]
    gpulift_case.begin({"seed": 0})


@pytest.mark.parametrize("name", ["model", "whole_step", "searched"])
def test_a_processor_compiles_no_more_than_layers(technique: ModuleType, name: str) -> None:
    with pytest.raises(Exception, match="takes minutes on a processor"):
        technique.make(name, TOY, 7, None)


def test_an_eager_arm_costs_nothing(technique: ModuleType, compiled: list[str]) -> None:
    arm = technique.make("eager", TOY, 7, None)
    arm.step()
    assert "cold_start_s" not in arm.metrics()
    assert not compiled
    assert (arm.items, arm.item) == (training.tokens_of_step("llama_toy"), "token")
