"""distributed/overlap: all forms give the same gradients, and what does not exchange is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

Hellos = Callable[..., list[dict[str, Any]]]
Altered = Callable[[Path, str], Path]
SCRIPT = Path(__file__).with_name("overlap.py")
GLOO = {"ranks": 2, "link": "gloo", "network": "gpt"}
SMALL = """
from gpulift_work import distributed

distributed.cores = lambda: 8
technique.NETWORKS = {"gloo": {"gpt": "gpt_toy"}}
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
    assert [one["broadcast_buffers"] for one in said] == [False] * 6


def test_the_baseline_is_torchs_default_and_what_hides_nothing_are_controls(
    technique: ModuleType,
) -> None:
    assert technique.TECHNIQUE["arms"][0] == "buckets_25"
    assert technique.TECHNIQUE["controls"] == ["one_at_the_end", "per_parameter", "one_bucket"]


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
