"""Switches of optimizers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import optimizers  # noqa: E402
from torch import nn  # noqa: E402

from tests.advise.steps import CUDA, named, seen, state  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]

KINDS = {"foreach": (torch.optim.AdamW, torch.optim.RMSprop), "fused": (torch.optim.AdamW,)}


def trained(kind: Any = torch.optim.AdamW, **options: Any) -> Any:
    """A step of one layer and its optimizer."""
    module = nn.Linear(4, 4)
    return seen(modules=[module], optimizers=[kind(module.parameters(), lr=0.1, **options)])


def step(watched: Any) -> Any:
    """One more step; the weights behind it."""
    (module,), (optimizer,) = watched.modules, watched.optimizers
    optimizer.zero_grad()
    module(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    return module.weight.detach().clone()


def two_steps(watched: Any, turned: Any) -> list[Any]:
    """From the same weights always; the second step is the switch's, where there is one."""
    torch.manual_seed(1)
    watched.modules[0].reset_parameters()
    first = step(watched)
    if turned is None:
        return [first, step(watched)]
    turned.flip()
    second = step(watched)
    turned.back()
    return [first, second]


@pytest.mark.parametrize("name", ["foreach", "fused"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.Adagrad, {}),
    ],
)
def test_the_update_is_the_same(name: str, kind: Any, options: dict[str, Any]) -> None:
    plain = two_steps(trained(kind, **options), None)
    watched = trained(kind, **options)
    turned = named(name, watched)
    assert turned.state(watched) == ("tried", "")
    torch.testing.assert_close(two_steps(watched, turned), plain)
    # And goes on as it was.
    torch.testing.assert_close(step(watched), step_three(kind, options))


def step_three(kind: Any, options: dict[str, Any]) -> Any:
    """The weights behind the third step of a plain training."""
    watched = trained(kind, **options)
    two_steps(watched, None)
    return step(watched)


def test_which_is_flipped_runs() -> None:
    watched = trained()
    names = {"foreach": "aten::_foreach_add_", "fused": "aten::_fused_adamw_"}
    step(watched)
    for name, operator in names.items():
        turned = named(name, watched)
        turned.flip()
        assert operator in profiled(watched)
        turned.back()
        assert operator not in profiled(watched)


def profiled(watched: Any) -> set[str]:
    """Operators of one more step."""
    with torch.autograd.profiler.profile(use_kineto=True) as profile:
        step(watched)
    return {event.name for event in profile.function_events}


@pytest.mark.parametrize("name", ["foreach", "fused"])
def test_what_the_script_asked_for_is_turned_off(name: str) -> None:
    watched = trained(**{name: True})
    assert state(name, watched) == ("already on", "the script asks for it")
    plain = two_steps(trained(), None)
    torch.testing.assert_close(two_steps(watched, named(name, watched)), plain)
    group = watched.optimizers[0].param_groups[0]
    assert group[name] is True


def test_groups_may_differ() -> None:
    layers = nn.Linear(4, 4), nn.Linear(4, 4)
    groups = [{"params": layers[0].parameters(), "fused": True}, {"params": layers[1].parameters()}]
    watched = seen(modules=list(layers), optimizers=[torch.optim.AdamW(groups)])
    assert state("fused", watched) == ("tried", "")
    turned = named("fused", watched)
    turned.flip()
    during = [group["fused"] for group in watched.optimizers[0].param_groups]
    turned.back()
    after = [group["fused"] for group in watched.optimizers[0].param_groups]
    assert (during, after) == ([True, True], [True, None])


def test_foreach_is_the_default_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_default_to_fused_or_foreach", lambda *_: (False, True))
    watched = trained()
    assert state("foreach", watched) == ("already on", "it is torch's default here")
    turned = named("foreach", watched)
    turned.flip()
    group = watched.optimizers[0].param_groups[0]
    assert group["foreach"] is False
    turned.back()
    assert group["foreach"] is None
    # torch takes the default where neither was set; False is set, too.
    assert state("foreach", trained(fused=False)) == ("tried", "")


@pytest.mark.parametrize(
    ("name", "kind", "options", "why"),
    [
        ("fused", torch.optim.RMSprop, {}, "no optimizer of the script has it"),
        ("foreach", torch.optim.LBFGS, {}, "no optimizer of the script has it"),
        ("foreach", torch.optim.AdamW, {"fused": True}, "the fused one is on"),
        ("foreach", torch.optim.SGD, {"differentiable": True}, "the optimizer is differentiable"),
        ("fused", torch.optim.SGD, {"differentiable": True}, "the optimizer is differentiable"),
    ],
)
def test_optimizers_without(name: str, kind: Any, options: dict[str, Any], why: str) -> None:
    assert state(name, trained(kind, **options)) == ("not applicable", why)


def test_a_learning_rate_that_is_a_tensor_has_no_foreach() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], lr=torch.tensor(0.1))
    watched = seen(modules=[], optimizers=[optimizer])
    assert state("foreach", watched) == ("not applicable", "the learning rate is a tensor")
    assert state("fused", watched) == ("tried", "")


def test_complex_and_sparse_parameters_have_neither() -> None:
    numbers = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    watched = seen(modules=[], optimizers=[torch.optim.AdamW([numbers])])
    rows = nn.Embedding(4, 4, sparse=True)
    sparse = seen(modules=[rows], optimizers=[torch.optim.SGD(rows.parameters())])
    rows(torch.tensor([1])).sum().backward()
    alone = seen(modules=[], optimizers=sparse.optimizers)
    for name in ("foreach", "fused"):
        assert state(name, watched) == ("not applicable", "parameters are complex")
        assert state(name, sparse) == ("not applicable", "gradients are sparse")
        assert state(name, alone) == ("not applicable", "gradients are sparse")


def test_devices_without_a_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = nn.Parameter(torch.ones(2, device="meta"))
    adagrad = seen(modules=[], optimizers=[torch.optim.Adagrad([parameter])])
    assert state("fused", adagrad)[1] == "Adagrad has it on processors alone"
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: ["cuda"])
    assert state("fused", trained())[1] == "this torch has no such kernel for the device"


def on_device(*, made_in_window: bool = False, **options: Any) -> tuple[Any, Any]:
    """A parameter on a device that only pretends, and its optimizer behind some steps."""
    parameter = nn.Parameter(torch.ones(2, device="meta"))
    optimizer = torch.optim.AdamW([parameter], **options)
    if not made_in_window:
        optimizer.state[parameter] = {"step": torch.tensor(3.0)}
    return parameter, optimizer


@pytest.fixture(name="pretending")
def _pretending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    # A device that only pretends gives no numbers back.
    monkeypatch.setattr(optimizers, "_return_step", lambda state, step: state.update(step=step))


@pytest.mark.usefixtures("pretending")
def test_fused_has_its_steps_on_the_device() -> None:
    parameter, optimizer = on_device()
    steps = optimizer.state[parameter]["step"]
    turned = named("fused", seen(CUDA, modules=[], optimizers=[optimizer]))
    turned.flip()
    assert optimizer.state[parameter]["step"].device == parameter.device
    assert optimizer._step_supports_amp_scaling is True
    turned.back()
    assert optimizer.state[parameter]["step"] is steps
    assert not hasattr(optimizer, "_step_supports_amp_scaling")


@pytest.mark.usefixtures("pretending")
def test_steps_of_an_optimizer_that_is_capturable_stay() -> None:
    parameter, optimizer = on_device(made_in_window=True, capturable=True)
    steps = torch.zeros((), device="meta")
    optimizer.state[parameter] = {"step": steps}
    turned = named("fused", seen(CUDA, modules=[], optimizers=[optimizer]))
    for _ in range(2):
        turned.flip()
        assert optimizer.state[parameter]["step"] is steps
        turned.back()
    assert optimizer.state[parameter]["step"] is steps


@pytest.mark.usefixtures("pretending")
def test_steps_that_a_window_made_leave_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter, optimizer = on_device(made_in_window=True)
    turned = named("fused", seen(CUDA, modules=[], optimizers=[optimizer]))
    turned.flip()
    made = torch.zeros((), device="meta")
    optimizer.state[parameter] = {"step": made}
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "to", lambda *_, **_options: torch.tensor(1.0))
        turned.back()
    assert optimizer.state[parameter]["step"].device.type == "cpu"


def test_a_step_that_was_moved_returns_with_its_count() -> None:
    steps, moved = torch.tensor(3.0, dtype=torch.float64), torch.tensor(5.0)
    held = {"step": moved}
    optimizers._return_step(held, steps)
    assert held["step"] is steps
    assert steps == 5


@pytest.mark.parametrize("asked", [None, True])
def test_a_scaler_works_with_either(asked: Any) -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1, fused=asked)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    turned = named("fused", seen(modules=[], optimizers=[optimizer]))
    weights = []
    for factor in (1.0, float("inf"), 1.0):
        turned.flip()
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        weights.append(parameter.detach().clone())
        turned.back()
    torch.testing.assert_close(torch.cat(weights), torch.tensor([0.9, 0.9, 0.8]))
    assert getattr(optimizer, "_step_supports_amp_scaling", None) is asked


def test_zero_grad_frees_gradients() -> None:
    module = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    watched = seen(modules=[module], optimizers=[optimizer], calls={optimizers.ZEROED: 1})
    assert state("set_to_none", watched) == ("tried", "")
    assert state("set_to_none", seen())[0] == "not applicable"
    turned = named("set_to_none", watched)
    for owner in (optimizer, module):
        module(torch.ones(2, 4)).sum().backward()
        owner.zero_grad(set_to_none=False)
        assert module.weight.grad is not None
        turned.flip()
        owner.zero_grad(False)
        assert module.weight.grad is None
        turned.back()
