"""All switches alike: known by name, and undone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import arms, flags, optimizers, switch  # noqa: E402
from torch import nn  # noqa: E402

from tests.advise.steps import named, seen, settings, state  # noqa: E402

OF_RANKS = ("exchange", "no_sync", "reshard")  # test_ranks flips them, in processes of several

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]


def everything() -> Any:
    """A step in which each switch has something to change."""
    calls = {"item": 1, "synchronize": 1, optimizers.ZEROED: 1}
    model = nn.Linear(4, 4)
    model.bias.grad = torch.ones(4)
    return seen(
        modules=[nn.DataParallel(model)],
        optimizers=[torch.optim.AdamW([model.weight])],
        calls=calls,
        compiled=True,
        operators={"aten::convolution": 1},
    )


def test_the_switches_are_known_by_their_names() -> None:
    names = [one.name for one in arms.switches(seen())]
    assert names == [
        *("tf32", "attention_cudnn", "attention_flash", "attention_efficient"),
        *("bf16", "foreach", "fused", "set_to_none", "compile", "reads", "synchronize", "threads"),
        *("anomaly", "fill", "deterministic", "data_parallel", "unread", "second_pass"),
        *OF_RANKS,
    ]
    assert {one.keeps for one in arms.switches(seen())} == {"bits", "step", "work"}


@pytest.fixture
def slowest_first() -> Iterator[None]:
    """The first of attention's back ends is none that a switch puts there."""
    order = torch._C._get_sdp_priority_order()
    slowest = int(torch._C._SDPBackend.MATH)
    torch._C._set_sdp_priority_order([slowest, *(one for one in order if one != slowest)])
    yield
    torch._C._set_sdp_priority_order(order)


@pytest.fixture
def costly() -> Iterator[None]:
    """Modes that some leave on."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_anomaly_enabled(True, False)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_anomaly_enabled(False, True)


@pytest.mark.parametrize(
    "name", [one.name for one in arms.switches(seen()) if one.name not in OF_RANKS]
)
@pytest.mark.usefixtures("slowest_first", "costly")
def test_a_flip_is_undone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = torch.get_num_threads() + 1
    monkeypatch.setattr(flags, "physical_cores", lambda: more)
    watched = everything()
    module, group = watched.modules[0], watched.optimizers[0].param_groups[0]

    def state_now() -> Any:
        bias = module.module.bias
        own = set(vars(module)), set(vars(watched.optimizers[0])), bias.requires_grad, id(bias.grad)
        return settings(), dict(group), own

    before = state_now()
    turned = named(name, watched)
    for _ in range(2):
        turned.flip()
        during = state_now()
        turned.back()
        assert during != before
        assert state_now() == before


def test_back_without_a_flip_does_nothing() -> None:
    for turned in arms.switches(everything()):
        turned.back()


def test_without_cuda_what_is_of_cuda_is_not_applicable() -> None:
    watched = everything()
    for name in ("tf32", "attention_flash", "reads", "synchronize"):
        assert state(name, watched) == ("not applicable", switch.NO_CUDA)
