"""Nodes of a partition of Slurm: each job is an `srun` of its own, for whole nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from gpulift.fleet.schedulers import Node, answer_of, own_gpulift, program, ranks_of
from gpulift.ground.errors import GpuliftError
from gpulift.ground.near import near

AT_WORK = ("idle", "mixed", "allocated", "completing", "planned", "reserved")
SILENT = "*"  # behind a state: the node does not respond
MARKS = "*~#!%$@^-+"
PART = re.compile(r"gpu:\d+g\.")  # of MIG, as gpu:1g.10gb:7
GPUS = re.compile(r"gpu:(?:[^:,()]+:)?(\d+)")


class Slurm:
    """A site's account, time or reservation is taken by srun from SLURM_ACCOUNT, SLURM_TIMELIMIT
    and the like."""

    name = "slurm"
    shares_folder = True
    at_once = 256

    def __init__(self, partition: str) -> None:
        self._partition = partition
        self.gpulift: Sequence[str] = own_gpulift()

    def nodes(self) -> list[Node]:
        """Those of the partition."""
        program("srun")
        if "SLURM_JOB_ID" in os.environ:
            raise GpuliftError("this is in a job of Slurm, and starts jobs: call it outside of one")
        asked = ("--noheader", "--Node", f"--partition={self._partition}", "--format=%N|%T|%G")
        lines = answer_of("sinfo", *asked).splitlines()
        rows = [line.strip().split("|") for line in lines if line.count("|") == 2]
        if not rows:
            raise self._unknown()
        return [_node(name, state, resources) for name, state, resources in rows]

    def commands(self, nodes: Sequence[Node], command: Sequence[str]) -> list[list[str]]:
        """One srun, whose tasks are the ranks."""
        ranks = ranks_of(nodes)
        gpus = min(node.gpus for node in nodes)
        options = {
            "job-name": "gpulift",
            "partition": self._partition,
            "nodelist": ",".join(node.name for node in nodes),
            "nodes": len(nodes),
            "ntasks": ranks * len(nodes),
            "ntasks-per-node": ranks,
            "mem": 0,  # all of it
            "cpu-bind": "none",
            # The others go on where one rank ends: they say which it was.
            "kill-on-bad-exit": 0,
            "wait": 0,
            **({"gpus-per-node": gpus} if gpus else {}),
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return [["srun", "--exclusive", *given, *command]]

    def _unknown(self) -> GpuliftError:
        there = answer_of("sinfo", "--noheader", "--format=%R").split()
        names = ", ".join(near(self._partition, there) or there)
        return GpuliftError(f"--slurm {self._partition}: no partition with nodes; there is {names}")


def _node(name: str, state: str, resources: str) -> Node:
    word = state.rstrip(MARKS)
    lacking = word if word not in AT_WORK else "not responding" if SILENT in state else ""
    gpus = sum(map(int, GPUS.findall(resources)))
    return Node(name, gpus, lacking, partitioned=bool(PART.search(resources)))
