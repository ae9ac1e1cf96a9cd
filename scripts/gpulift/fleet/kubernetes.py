"""Nodes of a cluster with Kubernetes: on each a pod of ci/cluster/fleet.yaml, which waits."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpulift.fleet.schedulers import Node, answer_of, given_ranks
from gpulift.ground.errors import FAILED, GpuliftError

LABEL = "app=gpulift-fleet"
GPUS = "nvidia.com/gpu"


class Kubernetes:
    """Commands are run by `kubectl exec`: the pods decide on image, GPUs and network."""

    name = "kubernetes"
    shares_folder = False
    at_once = 64
    gpulift: Sequence[str] = ("gpulift",)

    def __init__(self, namespace: str) -> None:
        self._kubectl = ("kubectl", f"--namespace={namespace}")
        self._namespace = namespace

    def nodes(self) -> list[Node]:
        """Those that have such a pod, or should have."""
        asked = ("get", "pods", f"--selector={LABEL}", "--output=json", "--request-timeout=30s")
        pods = _parsed(answer_of(*self._kubectl, *asked))
        if not pods:
            raise GpuliftError(
                f"--kubernetes {self._namespace}: no pod with the label {LABEL} is there;"
                f" {shlex.join(self._kubectl)} apply -f ci/cluster/fleet.yaml makes one"
                " on each node"
            )
        # Of one that is being replaced there are two: the one that runs is last.
        nodes = sorted(map(_node, pods), key=lambda node: (node.name, not node.lacking))
        return list({node.name: node for node in nodes}.values())

    def commands(self, nodes: Sequence[Node], command: Sequence[str]) -> list[list[str]]:
        """A kubectl for each node."""
        return [
            [*self._kubectl, "exec", "--stdin", node.place, "--", *started]
            for node, started in zip(nodes, given_ranks(nodes, command), strict=True)
        ]


def _parsed(answer: str) -> list[dict[str, Any]]:
    try:
        pods: list[dict[str, Any]] = json.loads(answer)["items"]
    except (ValueError, KeyError, TypeError):
        raise GpuliftError(
            "kubectl: what it says of pods is not JSON as expected", FAILED
        ) from None
    return pods


def _node(pod: Mapping[str, Any]) -> Node:
    containers = pod["spec"]["containers"]
    limits = [container.get("resources", {}).get("limits", {}) for container in containers]
    pod_name = pod["metadata"]["name"]
    return Node(
        name=pod["spec"].get("nodeName") or _wanted_node(pod) or pod_name,
        gpus=sum(int(limit.get(GPUS, 0)) for limit in limits),
        lacking=_lacking(pod["status"]),
        place=pod_name,
        address=pod["status"].get("podIP", ""),
    )


def _wanted_node(pod: Mapping[str, Any]) -> str:
    """That of a pod which waits for its node: what a DaemonSet demands of the scheduler."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(required, {})
    fields = (
        field
        for term in affinity.get("nodeSelectorTerms", ())
        for field in term.get("matchFields", ())
    )
    return next((field["values"][0] for field in fields if field["key"] == "metadata.name"), "")


def _lacking(status: Mapping[str, Any]) -> str:
    """Why the pod does not run: the first reason that is told."""
    states = [one.get("state", {}) for one in status.get("containerStatuses", ())]
    if states and all("running" in state for state in states):
        return ""
    told = [*(reason for state in states for reason in state.values())]
    told += [one for one in status.get("conditions", ()) if one.get("status") == "False"]
    reasons = (one.get("message") or one.get("reason") for one in told)
    why = next(filter(None, reasons), status.get("phase", "unknown"))
    return f"its pod does not run: {why}"
