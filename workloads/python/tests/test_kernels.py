"""kernels: what arms that compare kernels share."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpulift_work import kernels  # noqa: E402
from gpulift_worker import Skip  # noqa: E402

HOST = torch.device("cpu")
SHAPE = (5, 64)  # few, as a processor sums up the gradients of a layer norm's weight in BF16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(7)


def rows_of(kind: str, *, residual: bool = True) -> kernels.NormRows:
    return kernels.NormRows(kind, SHAPE, residual=residual, device=HOST)


def test_a_replay_keeps_what_its_last_step_made() -> None:
    calls: list[int] = []

    def begin() -> Any:
        calls.append(0)
        return lambda: (torch.tensor(float(len(calls))),)

    replay = kernels.Replay(begin, HOST)
    assert calls == [0], "begun once, and not stepped"
    assert not replay.results
    calls.append(1)
    replay.step()
    assert replay.results[0].item() == 2.0


def test_a_backward_pass_is_taken_as_often_as_it_is_called() -> None:
    weight = torch.ones(3, requires_grad=True)
    work = kernels.backward_of([weight * weight], [weight], [torch.full((3,), 5.0)])
    assert work()[0].tolist() == work()[0].tolist() == [10.0] * 3


def test_sets_cycle_through_three_times_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(L2_cache_size=1000)
    )
    gpu = torch.device("cuda", 0)
    assert kernels.sets_beyond_cache(gpu, 100) * 100 > 3000
    assert kernels.sets_beyond_cache(gpu, 3001) == 1
    assert kernels.sets_beyond_cache(HOST, 100) == 1


def test_errors_are_relative_and_below_the_floor_absolute() -> None:
    expected = torch.tensor([4.0, 0.1], dtype=torch.float64)
    assert kernels.largest_error(torch.tensor([5.0, 0.1]), expected, 1.0) == pytest.approx(0.25)
    assert kernels.largest_error(torch.tensor([4.0, 0.6]), expected, 1.0) == pytest.approx(0.5)
    wrong = kernels.largest_error(torch.tensor([4.0, torch.nan]), expected, 1.0)
    assert wrong != wrong, "not a number stays none"


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize(
    ("kind", "arm"),
    [("layer_norm", "torch"), ("rms_norm", "torch"), ("rms_norm", "written_out")],
)
def test_a_pass_is_that_of_double_precision(
    kind: str, arm: str, which: str, residual: bool
) -> None:
    rows = rows_of(kind, residual=residual)
    replay = rows.replay(arm, which)
    replay.step()
    error = rows.error(replay.results, which)
    assert 0 < error < 1 / 32
    replay.step()
    assert rows.error(replay.results, which) == error, "a step leaves its inputs alone"


@pytest.mark.parametrize(
    ("kind", "which", "results"),
    [
        ("layer_norm", "forward", 2),
        ("layer_norm", "backward", 3),  # of the bias, too
        ("rms_norm", "forward", 2),
        ("rms_norm", "backward", 2),
    ],
)
def test_each_wrong_result_is_found(kind: str, which: str, results: int) -> None:
    rows = rows_of(kind)
    replay = rows.replay("torch", which)
    replay.step()
    right = list(replay.results)
    assert len(right) == results
    for place in range(results):
        wrong = [one.detach().clone() for one in right]
        wrong[place].view(-1)[5] += 64
        assert rows.error(wrong, which) > 1, place
    with pytest.raises(ValueError, match="zip"):
        rows.error(right[:1], which)


def test_liger_adds_where_it_can_and_may_write_over_the_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def fused(rows: Any, residual: Any, weight: Any, epsilon: float) -> Any:
        calls.append("fused")
        total = rows + residual
        return torch.nn.functional.rms_norm(total, weight.shape, weight, epsilon), total

    def rms(rows: Any, weight: Any, epsilon: float) -> Any:
        calls.append("rms")
        return torch.nn.functional.rms_norm(rows, weight.shape, weight, epsilon)

    def layer(rows: Any, weight: Any, bias: Any, epsilon: float) -> Any:
        calls.append("layer")
        return torch.nn.functional.layer_norm(rows, weight.shape, weight, bias, epsilon)

    functional = SimpleNamespace(
        liger_fused_add_rms_norm=fused, liger_rms_norm=rms, liger_layer_norm=layer
    )
    monkeypatch.setitem(sys.modules, "liger_kernel", SimpleNamespace())
    monkeypatch.setitem(
        sys.modules, "liger_kernel.transformers", SimpleNamespace(functional=functional)
    )
    monkeypatch.setattr(kernels, "require_kernels_of", lambda arm, device: None)
    for kind, residual in (("rms_norm", True), ("rms_norm", False), ("layer_norm", True)):
        rows = rows_of(kind, residual=residual)
        replay = rows.replay("liger", "forward")
        replay.step()
        assert 0 < rows.error(replay.results, "forward") < 1 / 32
    assert calls == ["fused", "rms", "layer"]

    rows = rows_of("rms_norm", residual=False)
    begun = rows.gradients[0].clone()
    backward = rows.replay("liger", "backward")
    rows.gradients[0].fill_(torch.inf)  # as after many steps that wrote over it
    rows.renew()
    assert torch.equal(rows.gradients[0], begun)
    backward.step()
    assert rows.error(backward.results, "backward") < 1 / 32


def test_an_arm_has_results_after_a_step_and_its_gradient_anew_ahead_of_each_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewed: list[object] = []
    monkeypatch.setattr(kernels.NormRows, "renew", lambda rows: renewed.append(rows))
    arm: Any = kernels.norm_arm(
        "torch", "rms_norm", "backward", (3, 256), residual=True, tolerance=1 / 32, gpu=None
    )
    with pytest.raises(ValueError, match="zip"):
        arm.error()
    arm.step()
    assert 0 < arm.error() <= arm.tolerance
    assert not renewed
    arm.wake()
    assert len(renewed) == 1


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_liger_needs_a_gpu(kind: str) -> None:
    with pytest.raises(Skip, match="Liger's kernels need a GPU"):
        rows_of(kind).replay("liger", "forward")
