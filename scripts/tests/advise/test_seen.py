"""What the observer tells of one step."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import noted, optimizers, seen, waits  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.advise import steps  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]

ROWS = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    """Whatever other tests did in this process."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


class Training:
    """Two layers, a loss that is a module, and what a test puts `beside` them."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.loss = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self) -> None:
        """One step."""
        self.optimizer.zero_grad()
        self.loss(self.model(ROWS).float(), ROWS).backward()
        self.optimizer.step()


def watched(run: Any) -> Any:
    """What is seen of it."""
    observer = seen.Observer()
    observer.begin()
    try:
        run()
    finally:
        told = observer.end()
    return told


def test_a_step_is_seen() -> None:
    training = Training()
    told = watched(training.step)
    assert told.modules == [training.model, training.loss]
    assert told.optimizers == [training.optimizer]
    assert told.operators["aten::addmm"] == 2
    assert told.operators["aten::mm"] == 3  # of backward
    assert told.device == torch.device("cpu")
    assert (told.calls, told.autocast) == ({}, False)
    assert noted.notes(told) == []


def test_nothing_stays_of_the_step_before() -> None:
    observer, training = seen.Observer(), Training()
    for _ in range(2):
        observer.begin()
        training.step()
        told = observer.end()
    assert told.operators["aten::addmm"] == 2
    observer.begin()
    told = observer.end()
    assert (told.modules, told.optimizers, dict(told.operators)) == ([], [], {})


def test_it_may_begin_and_end_behind_an_optimizers_step() -> None:
    observer, training = seen.Observer(), Training()
    told: list[Any] = []

    def behind_step(*_: Any) -> None:
        if told:
            told.append(observer.end())
        else:
            observer.begin()
            told.append(None)

    hook = register_optimizer_step_post_hook(behind_step)
    training.step()
    training.step()
    hook.remove()
    assert told[1].optimizers == [training.optimizer]
    assert told[1].operators["aten::addmm"] == 2


def test_the_device_is_that_of_the_parameters() -> None:
    parameter = nn.Parameter(torch.ones(2, device="meta"))
    parameter.grad = torch.ones_like(parameter)
    told = watched(torch.optim.SGD([parameter], foreach=False).step)
    assert told.device.type == "meta"


@pytest.mark.parametrize("inside", [False, True])
def test_autocast_is_seen(inside: bool) -> None:
    training = Training()
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    if inside:
        training.model.forward = autocast(training.model.forward)
        assert watched(training.step).autocast
    else:
        assert watched(autocast(training.step)).autocast
    assert not watched(Training().step).autocast


def test_modules_that_backward_calls_again_are_no_outermost_ones() -> None:
    model = nn.Linear(4, 4)

    class Checkpointed(nn.Module):  # type: ignore[misc]
        """Forgets what it computed."""

        def forward(self, rows: Any) -> Any:
            """See torch."""
            return checkpoint(model, rows, use_reentrant=False)

    outer = Checkpointed()
    told = watched(lambda: outer(ROWS).sum().backward())
    assert told.modules == [outer]
    assert told.operators["aten::addmm"] == 2


def test_a_compiled_model_is_seen() -> None:
    training = Training()
    assert not watched(training.step).compiled
    training.model = torch.compile(training.model, backend="aot_eager")
    training.step()
    for rows in (ROWS, torch.ones(3, 4)):  # the second has it compiled again while it is watched
        told = watched(lambda rows=rows: training.model(rows).sum().backward())
        assert told.compiled
        assert told.modules == [training.model]
        assert told.operators["aten::addmm"] > 0
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def test_a_torch_without_its_compiler_has_compiled_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert not watched(Training().step).compiled


def test_the_scripts_own_profiler_goes_on() -> None:
    training = Training()
    with torch.autograd.profiler.profile(use_kineto=True) as profile:
        told = watched(training.step)
    assert any(event.name == "aten::addmm" for event in profile.function_events)
    assert not told.operators
    assert told.optimizers == [training.optimizer]
    assert noted.notes(told) == [
        "operators: not known, since the script runs a profiler itself",
    ]


def test_a_profiler_that_is_yet_to_start_is_left_room() -> None:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    assert not watched(Training().step).operators
    del profile
    gc.collect()
    assert watched(Training().step).operators


def test_calls_are_counted() -> None:
    training = Training()

    def step() -> None:
        training.step()
        for owner in (training.model, training.optimizer):
            owner.zero_grad(set_to_none=False)
        ROWS.to("meta")
        ROWS.to(torch.float64)
        assert training.model[0].weight.sum().item() is not None  # nothing waits for a processor

    told = watched(step)
    assert told.calls == {optimizers.ZEROED: 2, seen.COPIES: 1, seen.COPIED_BYTES: 32}


def test_reads_and_synchronizations_of_the_script_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for owner in waits.WAITS:
        monkeypatch.setattr(owner, "synchronize", lambda *_: None)
    number = torch.ones((), device="meta")

    def step() -> None:
        torch.cuda.synchronize()
        torch.cuda.Event.synchronize(None)
        for read in (number.item, number.cpu, lambda: float(number)):
            try:
                read()
            except (NotImplementedError, RuntimeError):
                continue  # there is no number on this device
        exec(compile("synchronize()", torch.__file__, "exec"), vars(torch.cuda))

        printing = os.path.join(os.path.dirname(torch.__file__), "_tensor_str.py")
        with contextlib.suppress(NotImplementedError, RuntimeError):  # as print of a tensor does
            exec(compile("read()", printing, "exec"), {"read": number.item})

    told = watched(step)
    assert told.calls == {"synchronize": 2, "item": 4}
    assert sum(told.lines["item"].values()) == 4
    assert all(line.startswith("test_seen.py:") for line in told.lines["item"])
    assert " (test_seen.py:" in noted.notes(told)[0]


def by_hand(layers: int) -> None:
    """Attention of so many layers, forward and backward."""
    query = torch.ones(2, 4, 8, requires_grad=True)
    for _ in range(layers):
        (F.softmax(query @ query.transpose(1, 2), -1) @ query).sum().backward()


def test_attention_by_hand_is_noted() -> None:
    assert noted.notes(watched(lambda: by_hand(3))) == [
        "attention by hand: 3 products over a softmax a step; "
        "F.scaled_dot_product_attention does it in one kernel"
    ]


def test_attention_that_is_torchs_and_other_softmaxes_are_not() -> None:
    query = torch.ones(2, 2, 4, 8)
    assert noted.notes(watched(lambda: F.scaled_dot_product_attention(query, query, query))) == []
    assert noted.notes(watched(lambda: F.softmax(ROWS @ ROWS.T, -1))) == []


def test_what_waits_is_noted() -> None:
    calls = {"item": 2, "synchronize": 1, seen.COPIES: 3, seen.COPIED_BYTES: 19_300_000}
    assert noted.notes(steps.seen(calls=calls)) == [
        "values read back: 2 a step, each of which waits for the device",
        "torch.cuda.synchronize and the like: 1 a step",
        "pageable memory: 3 copies to the device a step, 19.3 MB; "
        "from pinned memory they need not wait",
    ]
