"""Arms of torch.compile's modes: what is wrong with their first steps is refused, and what it cost
to compile is told where it was paid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpulift_case  # noqa: E402
from gpulift_work import repeats, torch_arms, training  # noqa: E402
from gpulift_worker import Arm, Failed  # noqa: E402

TOLERANCE = 0.001  # of gpt_toy, which is in FP32: workloads/torch/twin.cpp
Change = Callable[[Any], object]


@pytest.fixture(name="compiled", autouse=True)
def compiling_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The modes that were asked for, and before each how its cache was."""
    asked: list[str] = []

    def compile_nothing(work: Any, mode: str = "") -> Any:
        asked.append(mode)
        return work

    monkeypatch.setattr(torch, "compile", compile_nothing)

    def use_cache(name: str, *, cold: bool) -> None:
        assert name == "gpt_toy-default"
        asked.append("cold" if cold else "found")

    monkeypatch.setattr(torch_arms, "use_cache_of_run", use_cache)
    yield asked
    gpulift_case.begin({"seed": 0})


def begin(launch: int = 1, earlier: Mapping[str, float] | None = None, **told: object) -> int:
    """The seed of a launch, whose case it begins."""
    seed = 10 + launch
    gpulift_case.begin({"seed": seed, "check_seed": 11, "earlier": earlier, **told})
    return seed


def made(seed: int, mode: str = "", change: Change | None = None, **said: bool) -> Arm:
    """An arm after the step that is checked. `change`: of its training before its first step."""
    with pytest.MonkeyPatch.context() as patched:
        if change is not None:
            first_steps = torch_arms.Job.take_first_steps

            def changed(job: torch_arms.Job) -> None:
                change(job.training)
                first_steps(job)

            patched.setattr(torch_arms.Job, "take_first_steps", changed)
        arm = torch_arms.make_arm("gpt_toy", seed, None, mode, **said)
    arm.step()
    return arm


def error_of(arm: Arm) -> float:
    assert arm.error is not None
    return arm.error()


@pytest.fixture(name="facts", scope="module")
def facts_of_a_first_launch() -> Mapping[str, float]:
    """By a whole check."""
    arm = made(begin())
    assert error_of(arm) == 0
    return arm.metrics()


def halve_a_gradient(one: Any) -> None:
    for parameter in one.model.layers[1].parameters():
        parameter.register_hook(lambda gradient: gradient / 2)


def halve_all_gradients(one: Any) -> None:
    for parameter in one.model.parameters():
        parameter.register_hook(lambda gradient: gradient / 2)


def skip_a_layer(one: Any) -> None:
    one.model.layers[1].forward = lambda state, *_: state


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (halve_a_gradient, "gradient"),
        (halve_all_gradients, "gradients are 0.500 times as large"),
        (skip_a_layer, "no gradient reaches h.1"),
    ],
)
def test_a_fault_is_refused_by_what_arms_share(tmp_path: Path, change: Change, said: str) -> None:
    seed = begin(shared=str(tmp_path))
    assert error_of(made(seed)) == 0
    with pytest.raises(Failed, match=said):
        made(seed, change=change)
    assert len(list(tmp_path.glob("*.reference"))) == 1


def other_rate(one: Any) -> None:
    one.optimizer.param_groups[0]["lr"] *= 1.1


def frozen(one: Any) -> None:
    one.optimizer.param_groups[0]["lr"] = 0


@pytest.mark.parametrize(("change", "least"), [(other_rate, 2), (frozen, 50)])
def test_steps_that_learn_otherwise_are_beyond_the_tolerance(change: Change, least: float) -> None:
    assert error_of(made(begin(), change=change)) > least * TOLERANCE


def test_a_damaged_reference_is_computed_anew(tmp_path: Path) -> None:
    seed = begin(shared=str(tmp_path))
    made(seed)
    (file,) = tmp_path.glob("*.reference")
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)
    arm = made(seed)
    assert error_of(arm) == 0
    assert "damaged" in arm.notes["reference"]


def test_a_later_launch_repeats_the_first_and_goes_on_from_its_own_seed(
    monkeypatch: pytest.MonkeyPatch, facts: Mapping[str, float]
) -> None:
    monkeypatch.setattr(torch_arms, "exact_steps", None)  # it needs none
    trainings: list[Any] = []
    arm = made(begin(2, facts), change=trainings.append)
    assert error_of(arm) == 0
    assert arm.notes["check"] == repeats.SAID
    (found,) = trainings
    own = training.Training("gpt_toy", found.device, 12)
    own.step()
    for mine, theirs in zip(found.model.parameters(), own.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(found.input, own.input)
    assert len(found.optimizer.state) == len(list(found.model.parameters())), "as it has in a step"


@pytest.mark.parametrize(
    "change", [halve_a_gradient, halve_all_gradients, skip_a_layer, other_rate, frozen]
)
def test_what_a_first_launch_did_not_do_is_refused(
    facts: Mapping[str, float], change: Change
) -> None:
    with pytest.raises(Failed, match="in the first launch"):
        error_of(made(begin(2, facts), change=change))


def test_what_compiling_cost_is_told_where_caches_were_cold(
    compiled: list[str], facts: Mapping[str, float]
) -> None:
    assert "cold_start_s" not in facts, "an eager arm compiles nothing"
    assert made(begin(), "default").metrics()["cold_start_s"] > 0
    assert compiled == ["cold", "default"]
    assert gpulift_case.spent_s()["compile"] > 0
    assert "cold_start_s" not in made(begin(2, facts), "default").metrics()
    assert compiled[2:] == ["found", "default"]
    assert made(begin(2, facts), "default", always_cold=True).metrics()["cold_start_s"] > 0
    assert compiled[4:] == ["cold", "default"]


def test_what_compiling_cost_is_paid_by_the_steps_that_it_saved() -> None:
    faster = torch_arms.compilation(10.0, 0.003, 0.001)
    assert faster["break_even_steps"] == pytest.approx(5000)
    slower = torch_arms.compilation(10.0, 1.0, 2.0)
    assert slower == {"cold_start_s": 10.0, "graph_breaks": 0.0, "recompiles": 0.0}
