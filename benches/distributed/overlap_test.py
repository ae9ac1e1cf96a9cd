"""distributed/overlap: all forms give the same gradients, and what does not exchange is found."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
rank_group = importlib.import_module("rank_group")  # lies with the worker and not in the package

Hellos = Callable[..., list[dict[str, Any]]]
Altered = Callable[[Path, str], Path]
SCRIPT = Path(__file__).with_name("overlap.py")
GLOO = {"ranks": 2, "link": "gloo", "network": "gpt"}
SMALL = """
from gpulift_work import distributed

distributed.cores = lambda: 8
technique.NETWORKS["gloo"]["gpt"] = "gpt_toy"
"""
WRONG = (
    SMALL
    + """
def after_exchange(change):
    def exchange_and_change(replica):
        technique.exchange_at_the_end(replica)
        exchange = replica.exchange
        def both():
            exchange()
            change(replica)
        replica.exchange = both
    return exchange_and_change

def alter_on_rank_1(replica):
    if replica.group.rank == 1:
        replica.gradients()[0].mul_(1 + 1e-6)

def scale(replica):
    for one in replica.gradients():
        one.mul_(1.001)

def idle(replica):
    pass

technique.EXCHANGES = {
    "idle": idle,
    "of_one_rank": after_exchange(alter_on_rank_1),
    "scaled": after_exchange(scale),
}
"""
)


def test_all_forms_give_the_same_bits_on_two_ranks(
    altered: Altered, hellos_of_ranks: Hellos
) -> None:
    script = altered(SCRIPT, SMALL)
    errors = set()
    for arm in ("one_at_the_end", "per_parameter", "buckets_25", "bucket_view", "static_graph"):
        first, second = hellos_of_ranks(script, arm, GLOO)
        assert first["check_error"] < 1e-5, (arm, first)
        assert first["cost"]["items"] == 2 * 8 * 32
        assert first["metrics"]["gradient_bytes"] == 424_960
        errors |= {first["check_error"], second["check_error"]}
    assert len(errors) == 1


def test_no_form_exchanges_more_than_gradients(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    wrapped = "gpulift_work.distributed.DistributedDataParallel"
    monkeypatch.setattr(wrapped, lambda _, **options: said.append(options))
    group = replace(technique.join("gloo", None), ranks=2)
    for exchange in technique.EXCHANGES.values():
        exchange(technique.Replica("gpt_toy", group, 7))
    assert [one["broadcast_buffers"] for one in said] == [False] * 5


@pytest.mark.parametrize(("network", "parameters"), [("llama", 78_144), ("llama_untied", 82_240)])
def test_an_output_layer_of_its_own_is_exchanged_too(
    altered: Altered, hellos_of_ranks: Hellos, network: str, parameters: int
) -> None:
    for hello in hellos_of_ranks(
        altered(SCRIPT, SMALL), "bucket_view", {**GLOO, "network": network}
    ):
        assert hello["check_error"] < 1e-5, hello
        assert hello["metrics"]["gradient_bytes"] == 4 * parameters


HELD = (
    SMALL
    + """
import gc

from gpulift_worker import Failed
from torch.nn.parallel import DistributedDataParallel

def make(*case):
    arm = technique.make(*case)

    def rest():
        arm.rest()
        if any(isinstance(each, DistributedDataParallel) for each in gc.get_objects()):
            raise Failed("buckets are held at rest")

    return technique.replace(arm, rest=rest)
"""
)


@pytest.mark.parametrize("arm", ["one_at_the_end", "static_graph"])
def test_ranks_step_in_windows_between_which_they_hold_no_buckets(
    altered: Altered, arm: str
) -> None:
    with rank_group.RankGroup(altered(SCRIPT, HELD)) as group:
        assert all("check_error" in said for said in group.hello(arm, GLOO))
        for _ in range(2):
            assert all(said["host_s"] > 0 for said in group.window(2))
        assert group.exit_codes() == [0, 0]


@pytest.mark.parametrize(
    ("covers", "share"),
    [
        ([], 0.0),
        ([(4.0, 9.0)], 0.0),
        ([(0.0, 20.0)], 1.0),
        ([(1.0, 2.0), (11.0, 12.5)], 0.625),
        ([(1.5, 2.0), (1.0, 1.75), (0.5, 1.25), (2.0, 2.5)], 0.375),
    ],
)
def test_what_of_the_exchange_is_hidden(
    technique: ModuleType, covers: list[tuple[float, float]], share: float
) -> None:
    assert technique.hidden_share([(1.0, 2.5), (10.0, 12.5)], covers) == share


def test_a_trace_tells_kernels_of_nccl_from_others(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu, on_host = technique.DeviceType.CUDA, technique.DeviceType.CPU
    events = [
        SimpleNamespace(
            name=name,
            time_range=SimpleNamespace(start=start, end=8.0),
            device_type=device,
            is_user_annotation=name.startswith("nccl:"),
        )
        for name, start, device in (
            ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0.0, on_gpu),
            ("nccl:all_reduce", 0.0, on_gpu),
            ("cudaLaunchKernel", 0.0, on_host),
            ("gemm", 6.0, on_gpu),
        )
    ]
    steps: list[int] = []
    trace = SimpleNamespace(start=list, stop=list, events=lambda: events)
    monkeypatch.setattr(technique, "profile", lambda **_: trace)
    replica = SimpleNamespace(
        device=torch.device("cuda", 0),
        group=SimpleNamespace(rank=0),
        step=lambda: steps.append(1),
        synchronize=list,
    )
    assert technique.hidden_exchange(replica) == {"exchange_hidden_share": 0.25}
    replica.group.rank = 1
    assert technique.hidden_exchange(replica) == {}
    assert len(steps) == 2 * technique.TRACED_STEPS, "all ranks step, or the first would wait"


def test_processors_with_fewer_cores_than_ranks_skip(
    altered: Altered, hellos_of_ranks: Hellos
) -> None:
    script = altered(SCRIPT, SMALL.replace("lambda: 8", "lambda: 2"))
    for hello in hellos_of_ranks(script, "buckets_25", {**GLOO, "ranks": 3}):
        assert hello["skipped"] == "its 3 ranks need a core each, and there are 2"


@pytest.mark.parametrize("arm", ["idle", "of_one_rank"])
def test_ranks_that_hold_other_gradients_are_found(
    altered: Altered, hellos_of_ranks: Hellos, arm: str
) -> None:
    hellos = hellos_of_ranks(altered(SCRIPT, WRONG), arm, GLOO)
    assert "rank 1 does not hold what rank 0 holds" in hellos[1].get("failed", "")


def test_gradients_that_are_wrong_on_all_ranks_are_found(
    altered: Altered, hellos_of_ranks: Hellos
) -> None:
    for hello in hellos_of_ranks(altered(SCRIPT, WRONG), "scaled", GLOO):
        assert hello["check_error"] == pytest.approx(1e-3, rel=0.01)


def test_links_of_gpus_are_skipped_without(hellos_of_ranks: Hellos) -> None:
    for hello in hellos_of_ranks(SCRIPT, "buckets_25", {**GLOO, "link": "host"}):
        assert hello["skipped"] == "its ranks need a GPU each"


def test_a_replica_draws_its_weights_on_its_device(
    technique: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_on = []

    def note(*_: Any, **__: Any) -> None:
        drawn_on.append(torch.empty(0).device.type)
        raise StopIteration

    monkeypatch.setattr(technique.Replica.__base__, "__init__", note)
    group = technique.join("gloo", None)
    for device in ("meta", "cpu"):
        with pytest.raises(StopIteration):
            technique.Replica("gpt_toy", replace(group, device=torch.device(device)), 7)
    assert drawn_on == ["meta", "cpu"]
    assert torch.empty(0).device.type == "cpu"
