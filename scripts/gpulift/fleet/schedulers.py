"""What starts commands on nodes: a scheduler that runs there already."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpulift.ground import place, programs
from gpulift.ground.errors import FAILED, GpuliftError
from gpulift.ranks.key import VARIABLE

ANSWER_S = 60.0
MASTER_PORT = 29500  # torch's own
# A rank for each GPU of this node. The first line of its input is the secret that they share, which
# no list of processes shows. They all keep the input, whose end ends them.
RANKS = f"""\
read -r {VARIABLE}
export {VARIABLE}
exec 3<&0
local=0 started=
while [ "$local" -lt "$LOCAL_WORLD_SIZE" ]; do
  RANK=$((FIRST_RANK + local)) LOCAL_RANK=$local "$@" <&3 &
  started="$started $!" local=$((local + 1))
done
code=0
for rank in $started; do wait "$rank" || code=$?; done
exit "$code"
"""


@dataclass(frozen=True)
class Node:
    """One node as its scheduler knows it; `lacking` is why nothing can be started there."""

    name: str
    gpus: int = 0
    lacking: str = ""
    place: str = ""  # its pod, or Ray's number of it
    address: str = ""  # at which other nodes reach it
    partitioned: bool = False  # its GPUs are parts of some, of which a process sees one


class Scheduler(Protocol):
    """Lists nodes, and runs commands on them: the programs that do so end as the command does."""

    name: str
    shares_folder: bool  # else nodes keep what they write, and it is fetched
    at_once: int  # programs that are here at a time, by the memory that each takes
    gpulift: Sequence[str]  # as nodes call it

    def nodes(self) -> list[Node]:
        """All that there are, those that cannot run anything included. Raises GpuliftError where
        the scheduler does not say."""

    def commands(self, nodes: Sequence[Node], command: Sequence[str]) -> list[list[str]]:
        """What is called here to run a command: on one node once, on several by given ranks."""


def ranks_of(nodes: Sequence[Node]) -> int:
    """Of each node: one for each GPU that all of them have; one of a node alone."""
    return max(1, min(node.gpus for node in nodes)) if len(nodes) > 1 else 1


def given_ranks(nodes: Sequence[Node], command: Sequence[str]) -> list[list[str]]:
    """For each node what starts its ranks, as torchrun would."""
    if len(nodes) == 1:
        return [list(command)]
    ranks = ranks_of(nodes)
    given = {
        "MASTER_ADDR": nodes[0].address,
        "MASTER_PORT": MASTER_PORT,
        "WORLD_SIZE": ranks * len(nodes),
        "LOCAL_WORLD_SIZE": ranks,
    }
    variables = [f"{name}={value}" for name, value in given.items()]
    return [
        ["env", *variables, f"FIRST_RANK={number * ranks}", "sh", "-c", RANKS, "sh", *command]
        for number in range(len(nodes))
    ]


def own_gpulift() -> list[str]:
    """This one, for nodes that have it at the same place."""
    if place.INSTALLED:
        return [shutil.which("gpulift") or "gpulift"]
    return [str(place.FILES / "gpulift")]


def program(name: str) -> Path:
    """A program of a scheduler. Raises GpuliftError where it is not here."""
    file = shutil.which(name)
    if file is None:
        raise GpuliftError(f"{name} is not here: call this on a machine that has it on its PATH")
    return Path(file)


def answer_of(*command: str | Path, of: str = "") -> str:
    """What a scheduler's program says. Raises GpuliftError where it fails or is silent; the error
    is `of` that program, where its own name says little."""
    name = of or program(str(command[0])).name
    try:
        done = programs.finished(command, ANSWER_S)
    except subprocess.TimeoutExpired:
        raise GpuliftError(f"{name} has not answered within {ANSWER_S:g} s", FAILED) from None
    if done.returncode:
        why = programs.text_of(done.stderr).strip() or f"ended with exit code {done.returncode}"
        raise GpuliftError(f"{name}: {why.splitlines()[-1]}", FAILED)
    return programs.text_of(done.stdout)
