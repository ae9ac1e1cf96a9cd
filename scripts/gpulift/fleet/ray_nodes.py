"""Nodes of a Ray cluster; what talks to it is `ray_task`, in the Python that has Ray."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpulift.fleet.schedulers import Node, answer_of, given_ranks, own_gpulift, program
from gpulift.ground.errors import FAILED, GpuliftError

TASK = Path(__file__).with_name("ray_task.py")


class Ray:
    """Each command is a task that takes all processors and GPUs of its node."""

    name = "ray"
    shares_folder = False
    at_once = 32

    def __init__(self, address: str) -> None:
        self._address = address
        self.gpulift: Sequence[str] = own_gpulift()

    def nodes(self) -> list[Node]:
        """Those that live; and dead ones, unless they live again by the same name."""
        answer = answer_of(*self._task("list"), of=f"Ray at {self._address}").strip()
        try:
            listed: list[dict[str, Any]] = json.loads(answer.splitlines()[-1])
        except (ValueError, IndexError):
            raise GpuliftError(f"Ray at {self._address}: it lists no nodes", FAILED) from None
        hosts = Counter(one["host"] for one in listed if one["alive"])
        nodes: dict[str, Node] = {}
        for one in sorted(listed, key=lambda one: (one["alive"], one["host"], one["id"])):
            several = hosts[one["host"]] > 1 and one["alive"]
            name = f"{one['host']}-{one['id'][:6]}" if several else one["host"]
            lacking = "" if one["alive"] else "dead"
            nodes[name] = Node(name, one["gpus"], lacking, one["id"], one["address"])
        return sorted(nodes.values(), key=lambda node: node.name)

    def commands(self, nodes: Sequence[Node], command: Sequence[str]) -> list[list[str]]:
        """A task for each node."""
        return [
            [*map(str, self._task("run", node.place)), *started]
            for node, started in zip(nodes, given_ranks(nodes, command), strict=True)
        ]

    def _task(self, *arguments: str) -> tuple[str | Path, ...]:
        return (program("ray").with_name("python"), TASK, self._address, *arguments)
