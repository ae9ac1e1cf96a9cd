"""Switches that leave out waiting, tried on tensors of the processor in a GPU's place."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_probe import arms, waits  # noqa: E402
from torch import nn  # noqa: E402

from tests.advise.steps import CUDA, named, seen, state  # noqa: E402

pytestmark = [pytest.mark.usefixtures("unchanged"), pytest.mark.world]


def test_what_waits_is_tried_where_it_was_called() -> None:
    for name, call in (("reads", "item"), ("synchronize", "synchronize")):
        assert state(name, seen(CUDA, calls={call: 2})) == ("tried", "")
        assert state(name, seen(CUDA))[0] == "not applicable"
    assert "upper bound" in named("reads", seen()).label


def test_a_line_reads_what_it_read_before() -> None:
    turned = named("reads", seen())
    read: list[list[Any]] = []
    for flipped in (True, False):
        if flipped:
            turned.flip()
        for value in (1.0, 2.0):
            number = torch.tensor([value])
            read.append([number.item(), float(number), number.tolist(), number.cpu().numpy()[0]])
            read[-1].append(f"{number[0]:.1f}")
        turned.back()
    assert read == [
        [1.0, 1.0, [1.0], 1.0, "1.0"],
        [1.0, 1.0, [1.0], 1.0, "1.0"],
        [1.0, 1.0, [1.0], 1.0, "1.0"],
        [2.0, 2.0, [2.0], 2.0, "2.0"],
    ]


def test_lines_and_windows_are_told_apart() -> None:
    turned = named("reads", seen())

    def window(*values: int) -> list[Any]:
        turned.flip()
        read = [torch.tensor(value).item() for value in values]
        turned.back()
        return read

    turned.flip()
    here = torch.tensor(7).item()
    there = torch.tensor(8).item()
    turned.back()
    assert (here, there) == (7, 8)
    assert window(1, 2) == [1, 1]
    assert window(3) == [1]  # of the window before: none waits for its first either


def test_a_copy_that_is_written_to_is_the_scripts_own() -> None:
    turned = named("reads", seen())
    turned.flip()
    for _ in range(2):
        copy = torch.zeros(1).cpu()
        assert copy.item() == 0
        copy += 1
    turned.back()


def test_a_loop_that_waits_for_a_value_ends() -> None:
    turned = named("reads", seen())
    turned.flip()
    count = torch.tensor(0)
    while count.item() < 5:
        count += 1
    turned.back()
    assert waits.item(count) >= 5


def test_what_is_not_one_value_of_the_device_is_read_truly() -> None:
    module = nn.Linear(1, 1)
    turned = named("reads", seen())
    turned.flip()
    many = [torch.full((2,), value).tolist() for value in (1, 2)]
    losses = [module(torch.full((1, 1), value)).cpu() for value in (1.0, 2.0)]
    turned.back()
    assert many == [[1, 1], [2, 2]]
    assert losses[0] is not losses[1]
    assert all(loss.requires_grad for loss in losses)
    elsewhere = named("reads", seen(CUDA))
    elsewhere.flip()
    read = [torch.tensor(value).item() for value in (1, 2)]
    elsewhere.back()
    assert read == [1, 2]


def test_a_scaler_still_finds_infinities() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    turned = named("reads", seen())
    turned.flip()
    weights = []
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        weights.append(parameter.detach().clone())
    turned.back()
    torch.testing.assert_close(torch.cat(weights), torch.tensor([0.9, 0.9, 0.8]))
    assert scaler.get_scale() == 2.0


def test_the_script_does_not_wait_and_the_probe_does(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    for owner in waits.WAITS:
        name = owner.__name__
        monkeypatch.setattr(owner, "synchronize", lambda *_, name=name: waited.append(name))
    turned = named("synchronize", seen(CUDA, calls={"synchronize": 1}))
    turned.flip()
    torch.cuda.synchronize()
    torch.cuda.Stream.synchronize(None)
    torch.cuda.Event.synchronize(None)
    assert waited == []
    in_torch = compile("synchronize()", torch.__file__, "exec")
    exec(in_torch, {"synchronize": torch.cuda.synchronize})
    turned.back()
    assert waited == ["torch.cuda"]
    torch.cuda.synchronize()
    assert waited == ["torch.cuda"] * 2


def test_what_the_probe_waits_with_is_torchs_own() -> None:
    own = (arms.synchronize, arms.wait_event, arms.wait_stream, arms.item)
    watched = seen(calls={"item": 1, "synchronize": 1})
    turned = [named("reads", watched), named("synchronize", watched)]
    for one in turned:
        one.flip()
    assert torch.cuda.synchronize is not own[0]
    assert [arms.item(torch.tensor(value)) for value in (1, 2)] == [1, 2]
    for one in turned:
        one.back()
    torchs = (torch.cuda.synchronize, torch.cuda.Event.synchronize, torch.cuda.Stream.synchronize)
    assert own == (*torchs, torch.Tensor.item)
