"""A first launch checks a training whole, by one reference for all arms; later ones that it repeats
what the first did. What is wrong is refused by either."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpulift_case  # noqa: E402
from gpulift_work import first_steps, repeats, training  # noqa: E402
from gpulift_work.first_steps import FirstSteps  # noqa: E402
from gpulift_worker import Failed  # noqa: E402

HOST = torch.device("cpu")
TOLERANCE = 0.02
Facts = Mapping[str, float]
Change = Callable[[FirstSteps], object]


@pytest.fixture(autouse=True)
def no_case_afterwards() -> Iterator[None]:
    """What a test said of its case."""
    yield
    gpulift_case.begin({"seed": 0})


def begin(launch: int = 1, earlier: Facts | None = None, shared: Path | None = None) -> int:
    """The seed of a launch, whose case it begins."""
    seed = 10 + launch
    told = {"launch": launch, "check_seed": 11, "earlier": earlier}
    gpulift_case.begin({"seed": seed, "shared": None if shared is None else str(shared), **told})
    return seed


def job_of(seed: int, change: Change = lambda _: None) -> FirstSteps:
    """In BF16, as whole steps are."""
    job = FirstSteps("llama_toy", HOST, seed)
    job.training.bf16 = True
    job.checked_steps = 2
    change(job)
    return job


def halve_gradients(job: FirstSteps) -> None:
    for parameter in job.training.model.layers[1].parameters():
        parameter.register_hook(lambda gradient: gradient / 2)


def skip_a_layer(job: FirstSteps) -> None:
    job.training.model.layers[1].forward = lambda state, *_, **__: state


def compute_a_layer_twice(job: FirstSteps) -> None:
    layer = job.training.model.layers[1]
    once = layer.forward
    layer.forward = lambda state, *given, **named: once(once(state, *given, **named), *given)


def leave_out_updates(job: FirstSteps) -> None:
    job.training.optimizer.step = lambda *_: None


def keep_other_rows(job: FirstSteps) -> None:
    loss = job.training.loss_of
    job.training.loss_of = lambda given, target: loss(given[:4], target[:4])


@pytest.fixture(name="facts", scope="module")
def facts_of_a_first_launch() -> Facts:
    """By a whole check."""
    job = job_of(begin())
    assert 0 < job.error() < TOLERANCE
    return job.facts


@pytest.fixture(name="computed")
def references_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of those that were."""
    seeds = []
    genuine = first_steps.exact_steps

    def noted(name: str, device: Any, seed: int, *others: Any) -> Any:
        seeds.append(seed)
        return genuine(name, device, seed, *others)

    monkeypatch.setattr(first_steps, "exact_steps", noted)
    return seeds


def test_arms_of_a_case_share_a_reference_and_find_what_they_would_by_their_own(
    tmp_path: Path, computed: list[int], facts: Facts
) -> None:
    seed = begin(shared=tmp_path)
    for _ in range(2):
        job = job_of(seed)
        arm = job.arm(1)
        assert job.error() < TOLERANCE
        assert job.facts == facts
        assert arm.notes == {"device": "cpu", "torch_threads": "1"}
    assert computed == [11]


@pytest.mark.parametrize("change", [halve_gradients, skip_a_layer, compute_a_layer_twice])
def test_a_fault_is_refused_by_the_shared_reference(
    tmp_path: Path, computed: list[int], change: Change
) -> None:
    seed = begin(shared=tmp_path)
    assert job_of(seed).error() < TOLERANCE
    found = outcome(job_of(seed, change))
    assert found == "failed" or found > TOLERANCE
    assert computed == [11]


def outcome(job: FirstSteps) -> Any:
    """The error, or that it failed."""
    try:
        return job.error()
    except Failed:
        return "failed"


def test_a_reference_of_another_seed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = first_steps.exact_steps
    monkeypatch.setattr(
        first_steps,
        "exact_steps",
        lambda name, device, seed, *others: genuine(name, device, seed + 1, *others),
    )
    found = outcome(job_of(begin(shared=tmp_path)))
    assert found == "failed" or found > 5 * TOLERANCE


def test_a_damaged_reference_is_computed_anew_by_who_finds_it_so(
    tmp_path: Path, computed: list[int]
) -> None:
    seed = begin(shared=tmp_path)
    job_of(seed).error()
    (file,) = tmp_path.glob("*.reference")
    changed = bytearray(file.read_bytes())
    changed[-1] ^= 1
    file.write_bytes(changed)
    job = job_of(seed)
    assert job.error() < TOLERANCE
    assert "damaged" in job.notes["reference"]
    assert computed == [11, 11]


def test_a_later_launch_repeats_the_first_without_a_reference(
    computed: list[int], facts: Facts
) -> None:
    job = job_of(begin(2, facts))
    arm = job.arm(1)
    own = job.training.input.clone()
    assert job.error() == 0  # a host adds in the same order
    assert job.facts == {name: value for name, value in facts.items() if name.startswith("check_")}
    assert arm.notes["check"] == repeats.SAID
    assert not computed
    assert not torch.equal(job.training.input, own), "of the seed of the first launch"
    job.rest()
    job.wake()
    assert torch.equal(job.training.input, own)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (halve_gradients, "gradients have a norm of"),
        (skip_a_layer, "gradients have a norm of|losses of two steps"),
        (compute_a_layer_twice, "gradients have a norm of|losses of two steps"),
        (leave_out_updates, "losses of two steps are 4"),
        (keep_other_rows, "losses of two steps"),
    ],
)
def test_what_a_first_launch_did_not_do_is_refused(facts: Facts, change: Change, said: str) -> None:
    with pytest.raises(Failed, match=said):
        job_of(begin(2, facts), change).error()


@pytest.mark.parametrize("name", ["check_parameters", "check_flops", "check_items"])
def test_other_work_is_refused(facts: Facts, name: str) -> None:
    with pytest.raises(Failed, match=f"{name} is"):
        job_of(begin(2, {**facts, name: facts[name] + 1})).error()


@pytest.mark.parametrize("name", [*repeats.LOSSES, repeats.NORM])
def test_a_number_of_the_first_launch_that_is_another_is_refused(facts: Facts, name: str) -> None:
    with pytest.raises(Failed, match="in the first launch"):
        job_of(begin(2, {**facts, name: 1.01 * facts[name]})).error()


def test_a_loss_that_is_no_number_is_refused(facts: Facts) -> None:
    def spoil(job: FirstSteps) -> None:
        loss = job.training.loss_of
        job.training.loss_of = lambda *given: loss(*given) * torch.nan

    with pytest.raises(Failed, match="losses of two steps are nan and nan"):
        job_of(begin(2, facts), spoil).error()


def test_an_arm_that_no_launch_has_checked_is_checked_whole(
    computed: list[int], facts: Facts
) -> None:
    missing = {name: value for name, value in facts.items() if name != repeats.NORM}
    job = job_of(begin(2, missing))
    assert job.error() < TOLERANCE
    assert computed == [11], "from the seed that later launches compare with"
    assert job.facts == facts


def test_bf16_in_another_order_of_sums_is_within_the_tolerances(facts: Facts) -> None:
    job = job_of(begin(2, facts))

    def in_another_order() -> None:
        FirstSteps.begin(job)
        one = job.training
        one.input, one.target = (each.flip(0).contiguous() for each in (one.input, one.target))

    job.begin = in_another_order  # type: ignore[method-assign]
    assert job.error() < repeats.LOSS_TOLERANCE / 20  # 0 where a processor adds alike both ways


def test_the_seed_of_the_arm_is_back_after_a_check_that_failed(facts: Facts) -> None:
    job = job_of(begin(2, facts), halve_gradients)
    with pytest.raises(Failed):
        job.error()
    assert job.seed == 12
    assert training.TWINS["llama_toy"].batch == len(job.training.input)


def test_what_an_arm_compiles_it_compiles_while_it_is_made() -> None:
    seed = begin()
    job_of(seed).arm(1)
    assert gpulift_case.spent_s() == {}
    job = job_of(seed)
    job.arm(1, compiles=True)
    assert gpulift_case.spent_s()["compile"] > 0
    assert job.training.loss is not None
