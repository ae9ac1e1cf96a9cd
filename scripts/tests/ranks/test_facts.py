"""What ranks tell of their hosts, and who is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpulift.ground.errors import GpuliftError
from gpulift.ranks import facts
from gpulift.ranks.launched import Launched

Json = dict[str, Any]
ALIKE = {"gpulift": "1234567", "torch": "2.11.0", "NCCL": "2.28.9", "GPU": "NVIDIA H100"}


def rank(node: str, gpu: int | None = None, **other: str) -> Json:
    about = {"host": {"cpu": f"of {node}"}}
    fabric = {"link": "ethernet"}
    alike = ALIKE | {name: value for name, value in other.items()}
    return {"node": node, "gpu": gpu, "alike": alike, "about": about, "fabric": fabric}


FOUR = [rank("b", 0), rank("b", 1), rank("a", 0), rank("a", 1)]


def test_nodes_are_numbered_as_their_first_ranks_are() -> None:
    assert facts.nodes_of(FOUR) == [0, 0, 1, 1]
    assert facts.nodes_of([FOUR[2], FOUR[0], FOUR[3]]) == [0, 1, 0]


def test_a_boot_is_a_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = facts.node_here()
    assert facts.node_here() == here
    other = tmp_path / "boot_id"
    other.write_text("58605327-9882-4076-ae6a-500add82a018\n")
    monkeypatch.setattr(facts, "BOOT_ID", other)
    assert facts.node_here() != here


def test_places_tell_where_a_rank_is() -> None:
    places = facts.places_of(FOUR)
    assert places[3] == {"node": 1, "local_rank": 1, "local_ranks": 2, "gpu": 1}
    assert [place["local_rank"] for place in places] == [0, 1, 0, 1]


def test_records_hear_of_each_host_once() -> None:
    told = facts.for_records(FOUR, "slurm")
    assert (told["launcher"], told["ranks"], told["nodes"]) == ("slurm", 4, 2)
    assert [host["host"]["cpu"] for host in told["hosts"]] == ["of b", "of a"]
    assert [host["ranks"] for host in told["hosts"]] == [2, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpulift", "7654321"), ("torch", "2.10.0"), ("NCCL", "2.27"), ("GPU", "NVIDIA A100")],
)
def test_who_differs_is_named(name: str, value: str) -> None:
    told = rf"rank 2 \(node 1\) has {name} {value}, and rank 0 {ALIKE[name]}"
    with pytest.raises(GpuliftError, match=told):
        facts.require_alike([rank("a"), rank("a"), rank("b", None, **{name: value})])
    facts.require_alike(FOUR)


@pytest.mark.parametrize(
    ("packages", "told"),
    [
        ('{"nvidia-nccl-cu13": "2.28", "nvidia-nccl-cu12": "2.27"}', ("none", "2.27, 2.28")),
        ('{"torch": "2.11.0"}', ("2.11.0", "none")),
    ],
)
def test_versions_are_told_in_one_order(
    tmp_path: Path, packages: str, told: tuple[str, str]
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{packages}'\n")
    python.chmod(0o755)
    assert facts.versions_of(python) == dict(zip(("torch", "NCCL"), told, strict=True))


def place(local_rank: int) -> Launched:
    return Launched("slurm", 9, 16, local_rank, "127.0.0.1", 29500)


def test_a_rank_has_the_gpu_of_its_number_or_the_one_that_it_sees() -> None:
    assert facts.own_gpu([4, 5], place(1)) == 5
    assert facts.own_gpu([0], place(7)) == 0
    with pytest.raises(GpuliftError, match="number 2 on its host, which has 2 GPUs"):
        facts.own_gpu([0, 1], place(2))


def test_the_way_to_this_host_is_its_loopback() -> None:
    assert facts.ends_towards(place(0)) == ("127.0.0.1", "127.0.0.1")
    assert facts.fabric_of(facts.interface_of("127.0.0.1"))["link"] == "loopback"
    assert facts.interface_of("192.0.2.1") == ""
    assert "link" not in facts.fabric_of("")
