"""job/frontier: what compiled layers keep by arm, and that what is elsewhere comes back."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters  # noqa: E402
from torch._functorch import config as functorch_config  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402

CPU = torch.device("cpu")
TOKENS = 512
INSIDE = (TOKENS, 128)  # of the toy's MLP
ATTENDED = (1, 4, TOKENS)  # of its attention: the sums of each head
RULE = ("betas", "eps", "weight_decay")
compile_with = torch.compile


@pytest.fixture(name="graphs", autouse=True)
def graphs_that_no_compiler_makes_faster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is compiled is traced and cut in two as for a GPU, and that is all."""
    monkeypatch.setattr(torch, "compile", lambda work, **_: compile_with(work, backend="aot_eager"))
    with functorch_config.patch(activation_memory_budget=1.0):  # and puts it back
        yield


@pytest.fixture(name="eager")
def code_that_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """eager: for what does not depend on graphs."""
    monkeypatch.setattr(torch, "compile", lambda work, **_: work)


def job_of(technique: ModuleType, arm: str) -> Any:
    torch._dynamo.reset()  # as in a process of its own
    counters.clear()
    return technique.Job(technique.at_length("llama_toy", TOKENS), CPU, 7, arm)


def kept_by(job: Any) -> list[Any]:
    """What its layers keep for the backward pass, but for weights."""
    kept: list[Any] = []

    def note(one: Any) -> Any:
        kept.append(one)
        return one

    run = job.training.model.hidden

    def hidden(tokens: Any) -> Any:
        with saved_tensors_hooks(note, lambda one: one):
            return run(tokens)

    job.training.model.hidden = hidden
    job.training.make_gradients()
    weights = {one.data_ptr() for one in job.parameters}
    return [one for one in kept if one.data_ptr() not in weights]


@pytest.mark.parametrize(
    ("arm", "shapes"),
    [
        ("none", {INSIDE, ATTENDED}),
        ("attention", {INSIDE}),
        ("mlp", {ATTENDED}),
        ("full", set()),
    ],
)
def test_compiled_layers_keep_what_the_arm_says_and_train_alike(
    technique: ModuleType, arm: str, shapes: set[tuple[int, ...]]
) -> None:
    job = job_of(technique, arm)
    found = {tuple(one.shape) for one in kept_by(job)}
    assert counters["stats"]["unique_graphs"] == 2, "a layer's and the loss's"
    assert found & {INSIDE, ATTENDED} == shapes
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]


def test_the_budget_is_half_of_what_layers_keep_by_themselves(technique: ModuleType) -> None:
    plain, half = (
        sum(one.nbytes for one in kept_by(job_of(technique, arm))) for arm in ("none", "budget")
    )
    assert half < 0.7 * plain


class Host(saved_tensors_hooks):  # type: ignore[misc]
    """Stands for TRL's, which needs a GPU. `loses`: it gives back zeros."""

    loses = False

    def __init__(self, max_fwd_stash_size: int) -> None:
        self.entered, self.given, self.in_flight = 0, 0, max_fwd_stash_size
        self.kept: list[Any] = []
        self.weights: set[int] = set()

        def pack(one: Any) -> Any:
            self.given += 1
            if one.untyped_storage().data_ptr() in self.weights:
                return one
            self.kept.append(one)
            return torch.zeros_like(one) if self.loses else one.contiguous().clone()

        super().__init__(pack, lambda one: one)

    def update_model_params(self, model: Any) -> None:
        self.weights = {one.untyped_storage().data_ptr() for one in model.parameters()}

    def __enter__(self) -> None:
        self.entered += 1
        super().__enter__()


class Stays(saved_tensors_hooks):  # type: ignore[misc]
    """TRL's around what is not to go."""

    def __init__(self) -> None:
        super().__init__(lambda one: one, lambda one: one)


@pytest.fixture(name="host")
def library_that_offloads(monkeypatch: pytest.MonkeyPatch) -> type[Host]:
    """host: what arms import as TRL's class."""
    monkeypatch.setattr(Host, "loses", False)
    module: Any = SimpleNamespace(OffloadActivations=Host, NoOpManager=Stays)
    monkeypatch.setitem(sys.modules, "trl", SimpleNamespace(__version__="1.2"))
    monkeypatch.setitem(sys.modules, "trl.models.activation_offloading", module)
    monkeypatch.setitem(sys.modules, "accelerate", SimpleNamespace(PartialState=lambda: None))
    return Host


@pytest.mark.parametrize(
    ("arm", "like"), [("full_checkpoints_on_host", "full"), ("mlp_rest_on_host", "mlp")]
)
def test_all_that_layers_keep_but_weights_goes_to_the_host(
    technique: ModuleType, host: type[Host], arm: str, like: str
) -> None:
    job = job_of(technique, arm)
    job.begin()  # with weights elsewhere
    job.training.make_gradients()
    assert job.offloading.entered == 1, "once for all layers"
    assert job.versions == {"trl": "1.2"}
    expected = kept_by(job_of(technique, like))
    assert sorted(one.numel() for one in job.offloading.kept) == sorted(
        one.numel() for one in expected
    )


def test_copies_of_two_layers_may_be_under_way(technique: ModuleType, host: type[Host]) -> None:
    job = job_of(technique, "mlp_rest_on_host")
    job.training.make_gradients()
    of_each = job.offloading.given // len(job.training.model.layers)
    assert 2 * of_each <= job.offloading.in_flight < 3 * of_each


@pytest.mark.parametrize("loses", [False, True])
def test_what_does_not_come_back_from_the_host_is_found(
    technique: ModuleType, host: type[Host], monkeypatch: pytest.MonkeyPatch, loses: bool
) -> None:
    monkeypatch.setattr(host, "loses", loses)
    job = job_of(technique, "mlp_rest_on_host")
    if loses:
        with pytest.raises(Exception, match="gradient"):
            job.error()
    else:
        assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("first", [1, 3])
def test_what_comes_back_lies_as_it_lay(
    technique: ModuleType, order: tuple[int, ...], first: int
) -> None:
    hooks = technique.in_order(Host(5))
    kept = torch.randn(first, 4, 5).permute(order)
    found = hooks.unpack_hook(hooks.pack_hook(kept))
    torch.testing.assert_close(found, kept)
    assert found.stride() == kept.stride()


@pytest.mark.parametrize(
    ("arm", "package"),
    [
        ("mlp_rest_on_host", "accelerate"),
        ("mlp_rest_on_host", "trl"),
        ("full_optimizer_in_8_bits", "bitsandbytes"),
    ],
)
def test_without_its_library_an_arm_names_the_package(
    technique: ModuleType,
    host: type[Host],
    monkeypatch: pytest.MonkeyPatch,
    arm: str,
    package: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "trl.models.activation_offloading")
    with pytest.raises(ModuleNotFoundError, match=package):
        job_of(technique, arm)


def test_the_optimizer_of_the_last_layers_is_on_the_host_and_begins_anew(
    technique: ModuleType, on_a_gpu: None, eager: None
) -> None:
    job = job_of(technique, "full_half_optimizer_on_host")
    optimizer = job.training.optimizer
    _, last = job.training.model.layers
    expected = {one for one in last.parameters() if one.dim() == 2}
    assert set(optimizer.param_d2h_map) == expected
    here = {one for group in optimizer.d_opt.param_groups for one in group["params"]}
    assert here == set(job.parameters) - expected
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]
    job.rest()
    assert not any(part.state for part in (*optimizer.optim_dict.values(), optimizer.d_opt))
    job.begin()
    for weight, copy in optimizer.param_d2h_map.items():
        torch.testing.assert_close(weight.detach(), copy.detach())


def test_a_host_that_updates_nothing_is_found(
    technique: ModuleType, on_a_gpu: None, eager: None
) -> None:
    job = job_of(technique, "full_half_optimizer_on_host")
    for part in job.training.optimizer.optim_dict.values():
        part.step = lambda: None
    with pytest.raises(Exception, match="is not updated"):
        job.error()


def test_the_reference_has_the_loss_of_all_logits_and_their_gradients(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(technique, "CHUNK", 5)  # of 12 tokens, so that the last is smaller
    state, weight = (torch.randn(rows, 8, requires_grad=True) for rows in (12, 7))
    target = torch.randint(7, (12,))
    whole = torch.nn.functional.cross_entropy(state @ weight.T, target)
    expected = torch.autograd.grad(whole, [state, weight])
    loss = technique.loss_by_chunks(state, weight, target)
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(torch.autograd.grad(loss, [state, weight]), expected)


def test_nothing_of_the_reference_stays_in_memory(
    technique: ModuleType, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(technique, "none")
    layer = type(job.training.model.layers[0])

    def layers() -> int:
        return sum(type(one) is layer for one in gc.get_objects())

    gc.collect()
    before, left = layers(), []
    monkeypatch.setattr(technique, "free_memory", lambda _: left.append(layers() - before))
    gc.disable()
    try:
        job.own_reference()
    finally:
        gc.enable()
    assert left == [0]


def test_moments_in_8_bits_train_alike_and_are_dropped(technique: ModuleType, eager: None) -> None:
    pytest.importorskip("bitsandbytes")
    job = job_of(technique, "full_optimizer_in_8_bits")
    expected = job_of(technique, "none").training.optimizer.param_groups[0]
    (group,) = job.training.optimizer.param_groups
    assert group["lr"] == pytest.approx(expected["lr"])
    assert [group[key] for key in RULE] == [expected[key] for key in RULE]
    assert job.error() <= technique.TECHNIQUE["check"]["tolerance"]
    kinds = {one["state1"].dtype for one in job.training.optimizer.state.values()}
    assert kinds == {torch.uint8, torch.float32}, "those of norms are small"
    job.rest()
    assert not job.training.optimizer.state


@pytest.mark.parametrize(
    "arm", ["full_checkpoints_on_host", "mlp_rest_on_host", "full_half_optimizer_on_host"]
)
def test_what_needs_a_gpu_is_skipped_without(technique: ModuleType, arm: str) -> None:
    with pytest.raises(Exception, match="needs a GPU"):
        technique.make(arm, {"model": "llama_toy", "tokens": 4096}, 7, None)


def test_every_arm_has_a_setting_and_a_step_is_one_row(technique: ModuleType, eager: None) -> None:
    assert list(technique.SETTINGS) == technique.TECHNIQUE["arms"]
    arm = technique.make("full", {"model": "llama_toy", "tokens": 4096}, 7, None)
    assert (arm.items, arm.item, arm.roof) == (4096, "token", "")
