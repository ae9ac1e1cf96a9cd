"""Steps that are taken again from a state that was saved."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import saved  # noqa: E402
from gpulift_probe.saved import Saved  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.world

STEPS, SAVED_AT, REPLAYED = 20, 10, 3


class Training:
    """A loop with what changes from step to step: momentum, statistics, schedule, scale, draws."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        self.model = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=0.1, total_steps=STEPS
        )
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)

    def step(self, batch: Any) -> float:
        """The loss."""
        self.optimizer.zero_grad()
        noise = random.random() + np.random.random()
        loss = (self.model(batch) + noise).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return float(loss.detach())

    def run(self, first: int, last: int) -> list[float]:
        """So many steps, each with a batch of its own."""
        return [self.step(torch.full((6, 4), float(place))) for place in range(first, last)]

    def weights(self) -> list[Any]:
        """All that a checkpoint would hold."""
        return [tensor.clone() for tensor in self.model.state_dict().values()]


def test_a_training_goes_on_as_if_nothing_had_been() -> None:
    plain = Training()
    losses = plain.run(0, STEPS)
    again = Training()
    before = again.run(0, SAVED_AT)
    state = Saved([again.optimizer])
    marks, replays = state.marks(), []
    for _ in range(REPLAYED):
        state.restore()
        assert state.marks() == marks
        replays.append((again.run(SAVED_AT, SAVED_AT + 1), state.marks()))
    assert replays == [replays[0]] * REPLAYED
    assert replays[0][1] != marks
    state.restore()
    state.release()
    assert before + again.run(SAVED_AT, STEPS) == losses
    assert all(map(torch.equal, again.weights(), plain.weights()))


def changed(change: Callable[[Training], None]) -> bool:
    """Whether marks tell it."""
    training = Training()
    training.run(0, 1)
    state = Saved([training.optimizer])
    before = state.marks()
    with torch.no_grad():
        change(training)
    return bool(state.marks() != before)


def test_marks_are_of_all_bits() -> None:
    def swap(training: Training) -> None:
        weight = training.model[0].weight
        weight[0], weight[1] = weight[1].clone(), weight[0].clone()

    def negate_zero(training: Training) -> None:
        training.model[1].running_mean.fill_(0.0)
        training.model[1].running_mean.neg_()

    assert not changed(lambda _: None)
    assert changed(swap)
    assert changed(negate_zero)
    assert changed(lambda training: training.optimizer.state.popitem())
    assert changed(lambda training: training.model[1].num_batches_tracked.add_(1))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.bool),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, 3).t(),
        torch.ones(2, 2).to_sparse(),
        torch.ones(()),
        torch.ones(saved.LOT + 1, dtype=torch.int8),
    ],
    ids=str,
)
def test_marks_of_any_tensor(tensor: Any) -> None:
    marks = saved.marks_of(tensor)
    assert marks == saved.marks_of(tensor.clone())
    assert marks != saved.marks_of(torch.zeros_like(tensor))
    assert saved.bytes_of(tensor) == tensor.element_size() * tensor.numel()


def test_a_tensor_without_numbers() -> None:
    assert saved.marks_of(torch.ones(0)) == [0]


def test_tensors_that_are_made_of_others() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    tensor = TwoTensor(torch.ones(3), torch.zeros(3))
    assert saved.bytes_of(tensor) == 24
    assert len(saved.marks_of(tensor)) == 2


def test_bytes_are_of_parameters_states_and_buffers() -> None:
    training = Training()
    fresh = Saved([training.optimizer]).bytes
    training.run(0, 1)
    weights = sum(one.numel() * 4 for one in training.model.parameters())
    steps = 4 * len(list(training.model.parameters()))
    assert Saved([training.optimizer]).bytes - fresh == 2 * weights + steps


def test_a_state_that_came_later_is_gone() -> None:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.AdamW(weights, lr=0.1)

    def step(*used: Any) -> None:
        optimizer.zero_grad()
        sum(one.sum() for one in used).backward()
        optimizer.step()

    step(weights[0])
    state, first = Saved([optimizer]), optimizer.state[weights[0]]
    step(*weights)
    first["more"] = 1
    state.restore()
    assert list(optimizer.state) == [weights[0]]
    assert optimizer.state[weights[0]] is first
    assert first["step"] == 1
    assert "more" not in first


def test_what_a_script_replaced_is_put_back() -> None:
    training = Training()
    training.run(0, 1)
    norm, (weight, *_) = training.model[1], training.model.parameters()
    state, mean, moment = Saved([training.optimizer]), norm.running_mean, None
    moment = training.optimizer.state[weight]["exp_avg"]
    values = [one.clone() for one in (weight, mean, moment)]
    norm.running_mean = torch.ones(8)
    training.optimizer.state[weight]["exp_avg"] = torch.ones(8, 4)
    weight.data = torch.ones(8, 4)
    state.restore()
    assert norm.running_mean is mean
    assert training.optimizer.state[weight]["exp_avg"] is moment
    assert all(map(torch.equal, (weight, mean, moment), values))


def test_lists_of_an_optimizer_that_searches() -> None:
    weight = nn.Parameter(torch.tensor([3.0, 2.0]))
    optimizer = torch.optim.LBFGS([weight], lr=0.1, max_iter=2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight**4).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    state = Saved([optimizer])
    ends = []
    for _ in range(2):
        state.restore()
        optimizer.step(closure)
        ends.append((weight.tolist(), len(optimizer.state[weight]["old_dirs"])))
    assert ends[0] == ends[1]


def test_rates_that_a_script_sets_itself() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight], lr=0.1)

    def step(rate: float) -> float:
        for group in optimizer.param_groups:
            group["lr"] = rate
        weight.grad = torch.ones(1)
        optimizer.step()
        return float(weight.detach())

    step(0.1)
    state = Saved([optimizer])
    replays = []
    for count in range(3):
        state.restore()
        replays.append(step(0.1 / (count + 2)))
    assert replays == [replays[0]] * 3
    state.restore()
    assert optimizer.param_groups[0]["lr"] == 0.1
    state.release()
    assert step(0.05) > replays[0]


def test_a_rate_that_is_a_tensor() -> None:
    rate = torch.tensor(0.1)
    optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(1))], lr=rate)
    state = Saved([optimizer])
    rate.fill_(3)
    state.restore()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.1)


def test_a_scaler_that_is_off() -> None:
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    training = Training()
    Saved([training.optimizer]).restore()
    assert not scaler.is_enabled()


def test_objects_that_break_when_they_are_asked() -> None:
    class Hostile:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise RuntimeError("nobody asks")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    hostile, unfinished = Hostile(), nn.Module.__new__(nn.Module)
    assert all(gc.is_tracked(one) for one in (hostile, unfinished))
    training = Training()
    assert training.model in list(saved.instances(nn.Module))
    Saved([training.optimizer]).restore()


def test_buffers_without_numbers_are_left_out() -> None:
    real, meta, lazy, none = nn.BatchNorm1d(2), nn.BatchNorm1d(2), nn.LazyBatchNorm1d(), nn.Module()
    meta.to("meta")
    none.register_buffer("nothing", None)
    every = [id(entries) for entries in saved.buffers()]
    assert id(real._buffers) in every
    assert not {id(meta._buffers), id(lazy._buffers)} & set(every)
    Saved([]).restore()
    assert none.nothing is None


def test_scripted_modules() -> None:
    with pytest.warns(DeprecationWarning, match="jit"):
        norm = torch.jit.script(nn.BatchNorm1d(2))
    state = Saved([])
    norm(torch.ones(3, 2))
    assert norm.num_batches_tracked == 1
    state.restore()
    assert norm.num_batches_tracked == 0


def test_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [torch.tensor([1], dtype=torch.uint8), torch.tensor([2], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(gpus))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda states: gpus.__setitem__(0, states))
    numbers = saved.random_numbers()
    draws = random.random(), float(np.random.random()), float(torch.rand(()))
    assert not saved.drawn_alike(numbers, saved.random_numbers())
    gpus[0] = torch.tensor([3], dtype=torch.uint8)
    saved.set_random_numbers(numbers)
    assert draws == (random.random(), float(np.random.random()), float(torch.rand(())))
    assert [int(one) for one in gpus[0]] == [1, 2]
    torch.set_rng_state(numbers["torch"])
    gpus[0] = torch.tensor([1], dtype=torch.uint8)
    assert saved.drawn_alike(numbers, saved.random_numbers())


class OnGpu:
    """A tensor that says it is on a GPU; the copy is on the host, and pinned."""

    is_cuda, device = True, "cuda:1"

    def detach(self) -> OnGpu:
        """As it is."""
        return self

    def clone(self) -> str:
        """Beside it."""
        return "beside"


def test_copies_lie_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = OnGpu()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 1200))
    assert saved.fits(640 - 1, [torch.ones(1), gpu])  # 200 are left to arms
    assert not saved.fits(640, [torch.ones(1), gpu])
    assert saved.fits(640, [torch.ones(1)])
    empty = torch.empty(1)
    made: list[Any] = []

    def make(_: Any, **options: Any) -> Any:
        made.append(options)
        return empty

    monkeypatch.setattr(torch, "empty_like", make)
    monkeypatch.setattr(torch.Tensor, "copy_", lambda copy, _: copy)
    assert saved.kept(gpu, True) == "beside"
    assert saved.kept(gpu, False) is empty
    assert made == [{"device": "cpu", "pin_memory": True}]
