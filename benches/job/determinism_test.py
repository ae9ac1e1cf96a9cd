"""job/determinism: each arm sets what it says, and bits that do not repeat are found."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gpulift_case  # noqa: E402
from gpulift_work import training  # noqa: E402
from gpulift_worker import Failed, Skip  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

TOY = {"model": "llama_toy"}
CPU = torch.device("cpu")
DEFAULT = (False, False, True, None, True)


@pytest.fixture(autouse=True)
def switches_that_are_put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process has one arm, and tests have many."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    gpulift_case.begin({"seed": 7})
    yield
    gpulift_case.begin({"seed": 0})
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(name="job")
def job_of_an_arm(technique: ModuleType) -> Callable[..., Any]:
    """job(arm, model): its switches set, at the seed of all launches here."""

    def job(arm: str, model: str = "llama_toy") -> Any:
        technique.choose(arm)
        return technique.Job(model, CPU, 7, arm)

    return job


@pytest.mark.parametrize(
    ("arm", "switches"),
    [
        ("off", DEFAULT),
        ("warn", (True, True, True, ":4096:8", False)),
        ("on", (True, False, True, ":4096:8", False)),
        ("on_no_fill", (True, False, False, ":4096:8", False)),
        ("attention", (False, False, False, None, True)),
    ],
)
def test_an_arm_sets_its_switches_and_passes(
    technique: ModuleType, arm: str, switches: tuple[object, ...]
) -> None:
    made = technique.make(arm, TOY, 7, None)
    made.step()
    assert made.error() <= 1e-6
    assert switches == (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        torch.backends.cudnn.benchmark,
    )
    found = made.metrics()
    assert (found["bits_repeat"], found["differing_share"]) == (1, 0)
    assert 0 <= found["check_bits"] < 2**53
    assert "bits_repeat_over_launches" not in found
    assert arm not in made.notes


def test_of_an_arm_for_attention_alone_nothing_else_is_deterministic(
    job: Callable[..., Any],
) -> None:
    seen: dict[bool, set[str]] = {False: set(), True: set()}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen[torch.are_deterministic_algorithms_enabled()].add(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    training_of_arm = job("attention").training
    with Watch():
        loss = training_of_arm.make_loss()
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    assert kernel in seen[True]
    assert "mm" not in seen[True]
    seen[True].clear()
    with Watch():
        loss.backward()
    assert seen[True] - {"detach"} == {f"{kernel}_backward"}  # which makes nothing
    assert not {kernel, f"{kernel}_backward"} & seen[False]


def flip_a_bit_in(job: Any, steps: set[int]) -> None:
    """Of a gradient of the last parameter, the least one, as a sum in another order may."""
    genuine, taken = job.training.make_gradients, iter(range(1000))

    def make_gradients() -> None:
        genuine()
        if next(taken) in steps:
            job.parameters[-1].grad.view(torch.int32)[0] ^= 1

    job.training.make_gradients = make_gradients


@pytest.mark.parametrize("arm", ["off", "warn", "on", "on_no_fill", "attention"])
def test_one_bit_of_a_gradient_that_does_not_repeat_is_found(
    technique: ModuleType, job: Callable[..., Any], arm: str
) -> None:
    one = job(arm)
    flip_a_bit_in(one, {one.checked_steps + 2 * technique.STEPS})  # the first of another repeat
    if arm in technique.PROMISING:
        with pytest.raises(Failed, match="bits of 1 of 4 repeats are not those of the first time"):
            one.error()
    else:
        assert one.error() <= 1e-6
        assert (one.facts["bits_repeat"], one.facts["differing_share"]) == (0, 0.25)


@pytest.mark.parametrize("arm", ["off", "on"])
@pytest.mark.parametrize("same", [True, False])
def test_a_later_launch_has_the_bits_of_the_first(
    technique: ModuleType, job: Callable[..., Any], arm: str, same: bool
) -> None:
    first = job(arm)
    first.error()
    earlier = first.facts
    gpulift_case.begin({"seed": 8, "check_seed": 7, "launch": 2, "earlier": earlier})
    later = technique.Job("llama_toy", CPU, 8, arm)
    if not same:
        flip_a_bit_in(later, set(range(2, 100)))  # of all after those that any training repeats
    if arm == "on" and not same:
        with pytest.raises(Failed, match="bits are not those of the first launch"):
            later.error()
        return
    assert later.error() == 0
    assert later.facts["bits_repeat"] == 1
    assert later.facts["bits_repeat_over_launches"] == same
    assert (later.facts["check_bits"] == earlier["check_bits"]) == same


def test_convolutions_repeat_as_well(
    job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setitem(training.IMAGE_PRODUCTS, "resnet18", (2, 1))
    one = job("on", "resnet18")
    assert one.try_step() == ""
    assert one.error() <= 1e-4
    assert one.facts["bits_repeat"] == 1


def test_an_arm_that_has_nothing_to_set_is_skipped(technique: ModuleType) -> None:
    with pytest.raises(Skip, match="the model has no attention") as skipped:
        technique.make("attention", {"model": "resnet50_256"}, 7, None)
    assert skipped.value.remedy == "take a language model"


@pytest.mark.parametrize(
    ("arm", "told"), [("off", ""), ("warn", "put_"), ("on", "put_ has no deterministic way")]
)
def test_an_operation_without_a_deterministic_way_is_told_or_skips_the_arm(
    job: Callable[..., Any], arm: str, told: str
) -> None:
    one = job(arm)
    genuine = one.training.loss_of

    def loss_of(*batch: Any) -> Any:
        torch.zeros(2).put_(torch.tensor([0]), torch.ones(1))
        return genuine(*batch)

    one.training.loss_of = loss_of
    if arm == "on":
        with pytest.raises(Skip, match=told):
            one.try_step()
    else:
        assert one.try_step() == told


def test_another_error_of_the_first_step_is_no_skip(
    job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job("on")

    def fail() -> None:
        raise RuntimeError("this operation is not deterministic because it uses CuBLAS")

    monkeypatch.setattr(one.training, "make_gradients", fail)
    with pytest.raises(RuntimeError, match="uses CuBLAS"):
        one.try_step()


@pytest.mark.parametrize("changed", ["a bit", "exchanged", "exchanged tensors", "nothing"])
def test_a_digest_tells_bits_and_places(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.setattr(technique, "WORDS", 4)  # so that a tensor has parts
    numbers = [torch.randn(3, 3), torch.randn(3, 3)]
    before = technique.digest_of(numbers)
    if changed == "a bit":
        numbers[1].view(torch.int32)[2, 2] ^= 1
    elif changed == "exchanged":
        numbers[0] = numbers[0].flip(0)
    elif changed == "exchanged tensors":
        numbers.reverse()
    assert (technique.digest_of(numbers) == before) == (changed == "nothing")
    assert 0 <= before < 2**53
