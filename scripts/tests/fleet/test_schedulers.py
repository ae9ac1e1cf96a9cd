"""What Slurm, Kubernetes and Ray say of their nodes, and how they are told to run something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpulift.fleet import kubernetes, ray_nodes, schedulers, slurm
from gpulift.fleet.kubernetes import Kubernetes
from gpulift.fleet.ray_nodes import Ray
from gpulift.fleet.schedulers import Node
from gpulift.fleet.slurm import Slurm
from gpulift.ground.errors import GpuliftError
from tests.fleet.standins import pod

SINFO = """\
n1|idle|gpu:h100-80gb:8(S:0-1),nic:2
n2|mixed|gpu:4(S:0)
n3|allocated-|(null)
n4|idle*|(null)
n5|down*|(null)
n6|drained|(null)
n7|idle~|gpu:a100:1,gpu:h100:2
"""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """All programs are here, and this is no job."""
    for module in (slurm, ray_nodes):
        monkeypatch.setattr(module, "program", Path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def says(monkeypatch: pytest.MonkeyPatch, module: Any, *answers: str) -> None:
    told = iter(answers)
    monkeypatch.setattr(module, "answer_of", lambda *command, of="": next(told))


def test_slurm_names_its_nodes_with_their_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, slurm, SINFO)
    nodes = {node.name: node for node in Slurm("all").nodes()}
    assert [node.gpus for node in nodes.values()] == [8, 4, 0, 0, 0, 0, 3]
    lacking = {name: node.lacking for name, node in nodes.items() if node.lacking}
    assert lacking == {"n4": "not responding", "n5": "down", "n6": "drained"}


def test_an_unknown_partition_is_named_with_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says(monkeypatch, slurm, "\n", "tests\nothers\n")
    with pytest.raises(GpuliftError, match="no partition with nodes; there is tests, others"):
        Slurm("test").nodes()


def test_a_job_of_slurm_starts_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with pytest.raises(GpuliftError, match="call it outside"):
        Slurm("all").nodes()


def test_slurm_starts_a_rank_for_each_gpu_that_all_nodes_have() -> None:
    ((program, *options),) = Slurm("all").commands([Node("n1", 8), Node("n2", 4)], ["go"])
    assert program == "srun"
    assert options[-1] == "go"
    wanted = {"--nodelist=n1,n2", "--nodes=2", "--ntasks-per-node=4", "--ntasks=8"}
    assert wanted | {"--gpus-per-node=4", "--exclusive"} <= set(options)
    ((_, *alone),) = Slurm("all").commands([Node("n1", 8)], ["go"])
    assert {"--ntasks=1", "--gpus-per-node=8"} <= set(alone)
    ((_, *without),) = Slurm("all").commands([Node("n1")], ["go"])
    assert not [option for option in without if "gpus" in option]


def test_kubernetes_names_nodes_by_their_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pending = pod("n3", phase="Pending", conditions=[{"status": "False", "message": "no GPU left"}])
    field = {"key": "metadata.name", "operator": "In", "values": ["n3"]}
    del pending["spec"]["nodeName"]
    pending["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [field]}]
            }
        }
    }
    pods = [pending, pod("n2", containerStatuses=[{"state": image}]), pod("n1", 8)]
    pods.append(pod("n4", phase="Unknown"))
    pods.append(pod("n1", phase="Failed"))  # which is being replaced
    says(monkeypatch, kubernetes, json.dumps({"items": pods}))
    assert Kubernetes("gpus").nodes() == [
        Node("n1", 8, "", "pod-of-n1", "ip-of-n1"),
        Node("n2", 0, "its pod does not run: no such image", "pod-of-n2"),
        Node("n3", 0, "its pod does not run: no GPU left", "pod-of-n3"),
        Node("n4", 0, "its pod does not run: Unknown", "pod-of-n4"),
    ]


@pytest.mark.parametrize(
    ("answer", "words"),
    [('{"items": []}', "apply -f ci/cluster/fleet.yaml"), ("[]", "not JSON"), ("no", "not JSON")],
)
def test_kubernetes_without_pods(monkeypatch: pytest.MonkeyPatch, answer: str, words: str) -> None:
    says(monkeypatch, kubernetes, answer)
    with pytest.raises(GpuliftError, match=words):
        Kubernetes("gpus").nodes()


def test_ray_names_nodes_by_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a1b2c3d4", "n1", True, 8), ("b1b2c3d4", "n1", True, 0), ("c1", "n2", True, 0)]
    rows += [("d1", "n2", False, 0), ("e1", "n3", False, 0)]
    listed = [
        {"id": id, "host": host, "address": f"ip-of-{host}", "alive": alive, "gpus": gpus}
        for id, host, alive, gpus in rows
    ]
    says(monkeypatch, ray_nodes, f"a warning\n{json.dumps(listed)}\n")
    assert Ray("head:6379").nodes() == [
        Node("n1-a1b2c3", 8, "", "a1b2c3d4", "ip-of-n1"),
        Node("n1-b1b2c3", 0, "", "b1b2c3d4", "ip-of-n1"),
        Node("n2", 0, "", "c1", "ip-of-n2"),
        Node("n3", 0, "dead", "e1", "ip-of-n3"),
    ]
    says(monkeypatch, ray_nodes, "")
    with pytest.raises(GpuliftError, match="lists no nodes"):
        Ray("head:6379").nodes()


def test_nodes_without_a_scheduler_of_ranks_are_given_theirs() -> None:
    nodes = [Node("n1", 8, place="p1", address="ip1"), Node("n2", 2, place="p2", address="ip2")]
    first, second = Kubernetes("gpus").commands(nodes, ["go", "on"])
    assert first[:6] == ["kubectl", "--namespace=gpus", "exec", "--stdin", "p1", "--"]
    assert {"MASTER_ADDR=ip1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2", "FIRST_RANK=0"} < set(first)
    assert {"MASTER_ADDR=ip1", "FIRST_RANK=2"} < set(second)
    assert first[-2:] == second[-2:] == ["go", "on"]
    ((*_, alone),) = Kubernetes("gpus").commands(nodes[:1], ["go"])
    assert alone == "go"


def test_a_program_that_is_not_here_is_named() -> None:
    with pytest.raises(GpuliftError, match="no-such-program is not here"):
        schedulers.program("no-such-program")
